"""What earlier invocations left of each rollout."""

import json
from pathlib import Path
from typing import Any

import pytest

from gym_ray.errors import InputError
from gym_ray.recording.attempts import AttemptLog, Ended, Started, read_attempts
from gym_ray.recording.history import History
from gym_ray.recording.run_files import RecordFiles
from tests.recording.files import record

PLAN = [(task, 0) for task in range(4)]


def failure(task: int, attempt: int = 0, **fields: Any) -> bytes:
    row = {"_ng_task_index": task, "_ng_rollout_index": 0, "_ng_failure_class": "agent_run_error", **fields}
    if attempt:
        row["_ng_attempt_index"] = attempt
    return json.dumps(row).encode() + b"\n"


def past(folder: Path, results: bytes = b"", failures: bytes = b"", log: Path | None = None) -> History:
    good, bad = folder / "r-0.jsonl", folder / "r-0_failures.jsonl"
    good.write_bytes(results)
    bad.write_bytes(failures)
    return History.read(PLAN, RecordFiles([good], [bad], []), log)


def test_a_result_stands_whatever_its_reward_and_null_is_none(tmp_path: Path) -> None:
    unscored = b'{"_ng_task_index":2,"_ng_rollout_index":0}\n'
    history = past(tmp_path, record(0, reward=0.0) + record(1, reward=None) + unscored)
    assert [history.has_result(number) for number in range(4)] == [True, False, True, False]
    assert (history.reward(0), history.reward(2)) == (0.0, None)
    assert history.next_attempt(1) == 1, "the number of what came to nothing is used up"


def test_failures_are_final_when_terminal_scored_as_zero_or_the_last_attempt(tmp_path: Path) -> None:
    rows = (
        failure(0, _ng_failure_terminal=True)
        + failure(1, _ng_failure_counts_as_zero=True)
        + b"".join(failure(2, attempt) for attempt in range(3))
        + failure(3)
    )
    history = past(tmp_path, failures=rows)
    assert [history.is_final(number, 3) for number in range(4)] == [True, True, True, False]
    assert not history.is_final(2, 4)
    assert [history.next_attempt(number) for number in range(4)] == [1, 1, 3, 1]


def test_the_latest_failure_decides_whatever_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = failure(0, 1, _ng_failure_class="late") + failure(0, 0, _ng_failure_terminal=True)
    history = past(tmp_path, failures=rows)
    assert history.failure_class(0) == "late"
    assert not history.is_final(0, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"_ng_failure_class": "cancelled"},
        {"_ng_failure_class": "kill_shaped"},
        {"_ng_failure_record": {"delivery": "not_sent"}},
        {"_ng_failure_record": {"failure": {"failure_kind": "kill_shaped"}}},
    ],
)
def test_an_interruption_uses_up_a_number_and_no_attempt(tmp_path: Path, fields: dict[str, Any]) -> None:
    history = past(tmp_path, failures=failure(0, 0, **fields) + failure(0, 1))
    assert (history.next_attempt(0), history.spent(0)) == (2, 1)


def test_rows_that_are_no_attempt_change_nothing(tmp_path: Path) -> None:
    rows = failure(0, _ng_omitted_rollout=True) + failure(1, _ng_unrouted_run_error=True) + b'{"error":"no identity"}\n'
    history = past(tmp_path, failures=rows)
    assert [history.next_attempt(number) for number in range(4)] == [0, 0, 0, 0]
    assert not any(history.has_failure(number) for number in range(4))


def test_the_highest_attempt_of_several_results_counts(tmp_path: Path) -> None:
    history = past(tmp_path, record(0, attempt=1, reward=0.25) + record(0, reward=1.0) + record(0, reward=0.5))
    assert (history.reward(0), history.duplicates) == (0.25, 2)


def test_records_of_another_plan_are_counted(tmp_path: Path) -> None:
    assert past(tmp_path, record(9)).strangers == 1


def test_damage_is_named_by_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"r-0\.jsonl:2: .*gym-ray recover"):
        past(tmp_path, record(0) + b'{"_ng_task_index": 1, "rew\n' + record(2))


def test_odd_stamps_and_lone_surrogates_are_read(tmp_path: Path) -> None:
    odd = b'{"_ng_task_index":0,"_ng_rollout_index":0,"text":"\\ud800","response":"text","reward":1e400}\n'
    history = past(tmp_path, odd, failure(1, _ng_failure_record="text", response=[1]))
    assert history.has_result(0)
    assert history.has_failure(1)


def test_the_log_keeps_numbers_of_attempts_that_left_no_record(tmp_path: Path) -> None:
    log = AttemptLog(tmp_path / "r_attempts.csv")
    log.started([Started(1, task, 0, 0) for task in range(4)])
    log.ended([Ended(2, 0, 0, 0, 0, 1500.0, 1)])
    log.close()
    history = past(tmp_path, record(0), failure(1), tmp_path / "r_attempts.csv")
    assert [history.was_interrupted(number) for number in range(4)] == [False, False, True, True]
    assert [history.next_attempt(number) for number in range(4)] == [1, 1, 1, 1]
    assert history.spent(2) == 0
    assert history.duration_s(0) == 1.5


def test_durations_come_from_records_too(tmp_path: Path) -> None:
    rows = failure(0, elapsed_seconds=2) + failure(1, response={"metadata": {"elapsed_seconds": 3.5}})
    history = past(tmp_path, failures=rows + failure(1, 1, elapsed_seconds=True))
    assert [history.duration_s(number) for number in range(3)] == [2.0, 3.5, 0.0]


def test_a_deliverable_is_used_again(tmp_path: Path) -> None:
    history = past(tmp_path, failures=failure(0, reuse_cached_deliverable=True) + failure(0, 1))
    assert history.reuses_deliverable(0)
    assert not history.reuses_deliverable(1)


def test_a_cut_line_of_the_log_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"started,1,0,0,0\nstarted,1,1,0,1")
    log = AttemptLog(path)
    log.started([Started(5, 2, 0, 0)])
    log.close()
    assert list(read_attempts(path)) == [Started(1, 0, 0, 0), Started(5, 2, 0, 0)]
    assert list(read_attempts(tmp_path / "none.csv")) == []

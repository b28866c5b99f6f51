import os
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray import keys
from gym_ray.errors import InputError
from gym_ray.identity import Origin
from gym_ray.recording.merge import merge_results
from gym_ray.recording.winners import RecordIndex
from tests.recording.files import on_disk, record, run_paths


def index_of(folder: Path, results: Sequence[bytes], failures: Sequence[bytes] = ()) -> RecordIndex:
    """An index over one file for each item."""
    files = {"r": results, "f": failures}
    for kind, contents in files.items():
        for number, content in enumerate(contents):
            (folder / f"{kind}{number}").write_bytes(content)
    return RecordIndex.read(*([folder / f"{kind}{n}" for n in range(len(files[kind]))] for kind in files))


def test_winners_come_sorted_by_task_and_rollout(tmp_path: Path) -> None:
    index = index_of(tmp_path, [record(10) + record(2, 1), record(2, 0) + record(-1)])
    assert list(index.keys()) == [(-1, 0), (2, 0), (2, 1), (10, 0)]
    assert list(index.lines()) == [record(-1), record(2, 0), record(2, 1), record(10)]
    assert [(entry.task, entry.rollout) for entry in index] == list(index.keys())
    assert [index.read_line(entry) for entry in index] == list(index.lines())
    assert (len(index), index.results, index.failures, index.duplicates) == (4, 4, 0, 0)


def test_a_result_beats_a_failure_of_any_attempt(tmp_path: Path) -> None:
    index = index_of(tmp_path, [record(0)], [record(0, attempt=5) + record(1, attempt=1)])
    assert [(entry.task, entry.is_result, entry.attempt) for entry in index] == [(0, True, 0), (1, False, 1)]
    assert (index.results, index.failures, index.duplicates) == (1, 1, 0)
    assert list(index.lines()) == [record(0)]
    assert index.read_line(list(index)[1]) == record(1, attempt=1)


def test_the_highest_attempt_wins_and_among_equals_the_first_written(tmp_path: Path) -> None:
    late, early, newest = record(0, reward=1.5), record(0, reward=2.5), record(1, attempt=2)
    first = record(0, reward=0.5) + record(1, attempt=1) + newest
    index = index_of(tmp_path, [first, late + early + record(1)])
    assert list(index.lines()) == [record(0, reward=0.5), newest]
    assert index.duplicates == 4


def test_a_late_result_of_an_older_attempt_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    index = index_of(tmp_path, [record(0, attempt=1, reward=0.0) + record(0, attempt=0)])
    assert list(index.lines()) == [record(0, attempt=1, reward=0.0)]


RECORDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=30
)


@on_disk
@given(RECORDS, st.randoms(use_true_random=False))
def test_the_winner_is_the_same_for_any_order_of_files_and_equals_a_plain_computation(
    records: Sequence[tuple[int, int, int, int, bool]], shuffled: random.Random
) -> None:
    with TemporaryDirectory() as folder:
        paths = [run_paths(Path(folder)).shard(shard) for shard in range(3)]
        contents: dict[Path, list[bytes]] = {file: [] for path in paths for file in (path.results, path.failures)}
        best: dict[tuple[int, int], tuple[Any, ...]] = {}
        for serial, (task, rollout, attempt, shard, is_result) in enumerate(records):
            line = record(task, rollout, attempt, serial=serial)
            contents[paths[shard].results if is_result else paths[shard].failures].append(line)
            rank = (is_result, attempt, -shard, -serial, line)
            best[task, rollout] = max(best.get((task, rollout), (False, -1)), rank)
        for file, lines in contents.items():
            file.write_bytes(b"".join(lines))
        for _ in range(2):
            shuffled.shuffle(paths)
            index = RecordIndex.read([path.results for path in paths], [path.failures for path in paths])
            assert [index.read_line(entry) for entry in index] == [best[key][-1] for key in sorted(best)]
            assert list(index.lines()) == [best[key][-1] for key in sorted(best) if best[key][0]]
            assert index.duplicates == sum(item[4] for item in records) - index.results
            assert index.results + index.failures == len(index) == len(best)


def test_origins_are_those_of_winning_results(tmp_path: Path) -> None:
    def on(task: int, server: str, attempt: int = 0, **fields: Any) -> bytes:
        stamps: dict[str, Any] = {keys.ENVIRONMENT_SERVER: server}
        return record(task, attempt=attempt, **stamps, **fields)

    index = index_of(
        tmp_path,
        [on(1, "b", agent_ref={"name": "y", "type": "t"}) + on(0, "a", 1) + on(0, "loser") + record(2)],
        [on(5, "failed")],
    )
    assert index.origins == (Origin("a", None), Origin("b", "y"), Origin(None, None))
    assert index.count([Origin("a", None), Origin(None, None)]) == 2
    assert list(index.lines([Origin("b", "y")])) == [on(1, "b", agent_ref={"name": "y", "type": "t"})]
    assert next(iter(index)).origin == Origin("a", None)


@pytest.mark.parametrize(
    "damage",
    [
        b"{\n",
        b"\n",
        b"[]\n",
        b"\0\0\0\n",
        b'{"a":NaN}\n',
        b'{"a":"caf\xc3"}\n',
        b'{"_ng_task_index":99999999999999999999}\n',
    ],
)
def test_damage_is_named_by_file_and_line(damage: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"r1:3: expected a record, found damage"):
        index_of(tmp_path, [record(0), record(1) + record(2) + damage + record(3)])


def test_a_cut_last_line_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"r0:2: .*cut off"):
        index_of(tmp_path, [record(0) + record(1)[:-5]])


def test_a_last_record_without_a_line_end_counts_and_gets_one(tmp_path: Path) -> None:
    index = index_of(tmp_path, [record(1)[:-1], record(0)])
    assert list(index.lines()) == [record(0), record(1)]


def test_records_that_a_fast_parser_refuses_are_records(tmp_path: Path) -> None:
    odd = rb'{"text":"\ud800","_ng_task_index":4,"_ng_rollout_index":1,"agent_ref":{"name":"a"}}' + b"\n"
    unusual = b'{"_ng_task_index":5,"agent_ref":"no object","_ng_environment_server":7,"_ng_attempt_index":null}\n'
    index = index_of(tmp_path, [odd + unusual])
    assert list(index.keys()) == [(4, 1), (5, 0)]
    assert index.origins == (Origin(None, "a"), Origin(None, None))


def test_sidecar_rows_that_are_no_attempts_are_passed_over(tmp_path: Path) -> None:
    rows = [
        record(0, **{keys.OMITTED_ROLLOUT: True}),
        record(1, **{keys.UNROUTED_RUN_ERROR: True}),
        b'{"_ng_task_index":2}\n',
        record(3, **{keys.OMITTED_ROLLOUT: False}),
    ]
    index = index_of(tmp_path, [], [b"".join(rows)])
    assert list(index.keys()) == [(3, 0)]


def test_files_that_are_not_there_hold_no_records(tmp_path: Path) -> None:
    index = RecordIndex.read([tmp_path / "none"], [tmp_path / "neither"])
    assert len(index) == 0
    assert list(index.lines()) == []


def test_a_file_named_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(record(0))
    assert RecordIndex.read([tmp_path / "r", tmp_path / "r"]).duplicates == 0


def test_a_file_that_shrinks_after_it_was_indexed_is_told(tmp_path: Path) -> None:
    index = index_of(tmp_path, [record(0) + record(1)])
    os.truncate(tmp_path / "r0", 3)
    with pytest.raises(InputError, match="changed while it was read"):
        list(index.lines())


def test_a_merge_is_the_same_for_any_number_of_shards(tmp_path: Path) -> None:
    lines = [record(task, rollout) for task in range(5) for rollout in range(2)]
    merged = set()
    for shards in (1, 2, 3):
        folder = tmp_path / str(shards)
        folder.mkdir()
        index = index_of(folder, [b"".join(reversed(lines[shard::shards])) for shard in range(shards)])
        merge_results(index, folder / "merged.jsonl")
        merged.add((folder / "merged.jsonl").read_bytes())
    assert merged == {b"".join(lines)}


def test_a_reward_of_null_is_no_result(tmp_path: Path) -> None:
    file = tmp_path / "r-0.jsonl"
    file.write_bytes(record(0, reward=None) + record(1) + b'{"_ng_task_index":2,"_ng_rollout_index":0}\n')
    assert list(RecordIndex.read([file]).keys()) == [(1, 0), (2, 0)]

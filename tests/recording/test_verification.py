"""What can be said and done about a run from its folder alone: verify, recover, standing, and which run is meant."""

import json
import os
import re
from pathlib import Path

import pytest

from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.attempts import AttemptLog, Started
from gym_ray.recording.manifest import Identity, write_manifests
from gym_ray.recording.merge import merge_results
from gym_ray.recording.recovery import recover_run
from gym_ray.recording.run_files import record_files
from gym_ray.recording.run_lock import RunLock
from gym_ray.recording.run_names import run_at
from gym_ray.recording.standing import Standing, standing_of
from gym_ray.recording.status import RunState, RunStatus, write_status
from gym_ray.recording.verification import Verification, verify_run
from gym_ray.recording.winners import RecordIndex
from tests.recording.files import record, run_paths, write_plan


def status(state: RunState, completed: int = 3) -> RunStatus:
    return RunStatus(
        state=state, updated_at="2026-01-05T10:00:00Z", run_id="r1", output="rollouts.jsonl", expected=4,
        completed=completed, failed=0, omitted=0, remaining=4 - completed,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    """Four planned rollouts in two shards, three of them with a result."""
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0), record(2)], [record(1), record(3)])
    for shard, lines in enumerate(([record(2), record(0)], [record(3)])):
        paths.shard(shard).results.write_bytes(b"".join(lines))
        paths.shard(shard).failures.touch()
    write_manifests(
        paths, run_id="r1", shards=2, created_at="2026-01-05T10:00:00Z", identity=Identity(), max_rollout_attempts=3
    )
    merge_results(RecordIndex.read(record_files(paths)[0]), paths.merged)
    write_status(paths, status(RunState.INCOMPLETE))
    AttemptLog(paths.attempts).close()
    return paths


def found(run: RunPaths) -> Verification:
    before = {path: path.read_bytes() for path in run.directory.iterdir()}
    checked = verify_run(run)
    assert before == {path: path.read_bytes() for path in before}, "nothing is changed"
    return checked


def test_a_sound_run_adds_up(run: RunPaths) -> None:
    AttemptLog(run.attempts).started([Started(1, 1, 0, 0)])
    checked = found(run)
    assert checked.problems == []
    assert not checked.is_complete
    assert checked.equation == "planned 4 = results 3 + final failures 0 + failures 0 + owed 1"
    assert checked.interrupted == 1
    assert json.loads(json.dumps(checked.to_dict()))["sound"] is True


def test_a_run_that_has_not_begun_is_sound(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0)])
    checked = found(paths)
    assert (checked.owed, checked.problems) == (1, [])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rollouts-0.jsonl", record(0) + b'{"_ng_task\n' + record(2), r"rollouts-0\.jsonl:2: is no record"),
        ("rollouts-0.jsonl", record(0) + record(2)[:-1], r"rollouts-0\.jsonl:2: has no line end"),
        ("rollouts-0.jsonl", record(0) + record(2) + record(9), "1 records are of rollouts that the plan does not"),
        ("rollouts-0.jsonl", record(0) + record(2) + record(1), "1 records belong to another shard"),
        ("rollouts-0.jsonl", record(0), "says completed 3, the files hold 2"),
        ("rollouts-0_materialized_inputs.jsonl", record(0), "is not the file that the manifest describes"),
        ("rollouts-1_materialized_inputs.jsonl", record(0) + record(3), "task 0, rollout 0: is planned 2 times"),
        ("rollouts-1_manifest.json", None, r"rollouts-1_manifest\.json: is missing"),
        ("rollouts-1_failures.jsonl", None, r"rollouts-1_failures\.jsonl: is missing"),
        ("rollouts.jsonl", record(0) + record(2) + record(3, reward=0.5), r"rollouts\.jsonl:3: is not the record"),
        ("rollouts.jsonl", record(0) + record(2), r"rollouts\.jsonl:3: is not the record"),
        ("rollouts.jsonl", record(0) + record(2) + record(3) * 2, "has more than the 3 results that count"),
        ("rollouts_aggregate_metrics.json", b"[{", "is damaged"),
        ("rollouts_aggregate_metrics.json", b'[{"aggregation_error":{}}]', "gym-ray aggregate"),
    ],
)
def test_every_kind_of_damage_is_found(run: RunPaths, name: str, content: bytes | None, problem: str) -> None:
    path = run.directory / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    checked = found(run)
    assert any(re.search(problem, each) for each in checked.problems), checked.problems


def test_a_run_that_says_complete_and_is_not_is_found(run: RunPaths) -> None:
    write_status(run, status(RunState.COMPLETE))
    assert any("says complete" in problem for problem in found(run).problems)


def test_recovering_sets_damage_aside_and_leaves_a_run_that_can_be_continued(run: RunPaths) -> None:
    path = run.shard(0).results
    path.write_bytes(record(0) + b'{"half": \n' + b"\x00\x00\n" + record(2) + b'{"_ng_task_index": 7')
    draft = run.directory / ".rollouts-0_materialized_inputs.jsonl.0123abcd.tmp"
    token = run.directory / ".rollouts.token-0123abcd"
    draft.touch()
    token.touch()
    (run.directory / ".other.jsonl.12.tmp").touch()
    done = recover_run(run)
    assert len(done) == 4
    assert path.read_bytes() == record(0) + record(2)
    assert path.with_name("rollouts-0.jsonl.damaged-1").read_bytes() == b'{"half": \n\x00\x00\n'
    assert path.with_name("rollouts-0.jsonl.torn-1").read_bytes() == b'{"_ng_task_index": 7'
    assert not draft.exists()
    assert not token.exists()
    assert (run.directory / ".other.jsonl.12.tmp").exists()
    assert found(run).is_sound
    assert recover_run(run) == []


def test_a_run_that_goes_on_is_not_recovered(run: RunPaths) -> None:
    lock = RunLock(run, "r1")
    try:
        with pytest.raises(RunFolderError, match=f"process {os.getpid()}"):
            recover_run(run)
        assert found(run).holder is not None
        assert standing_of(run).standing is Standing.RUNNING
    finally:
        lock.release()


def test_a_run_that_was_killed_is_told_from_one_that_ended(run: RunPaths) -> None:
    assert standing_of(run).standing is Standing.INCOMPLETE
    write_status(run, status(RunState.RUNNING, completed=1))
    killed = standing_of(run)
    assert killed.standing is Standing.INTERRUPTED
    assert killed.equation == "planned 4 = results 3 + failures 0 + omitted 0 + owed 1", (
        "counted, not what it last said"
    )
    run.run_status.unlink()
    assert standing_of(run).standing is Standing.UNKNOWN


def test_a_run_is_found_by_its_folder_or_its_output(run: RunPaths, tmp_path: Path) -> None:
    assert run_at(str(tmp_path)).stem == "rollouts"
    assert run_at(str(tmp_path / "rollouts.jsonl")) == run
    (tmp_path / "b_run_status.json").touch()
    with pytest.raises(ConfigError, match=r"2 runs \(b, rollouts\)"):
        run_at(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no run in this folder"):
        run_at(str(tmp_path / "empty"))
    with pytest.raises(RunFolderError, match="no run named 'none'"):
        verify_run(run_at(str(tmp_path / "none.jsonl")))

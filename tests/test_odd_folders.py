"""Folders in which something was removed, damaged or mixed up: no score of other rows, no lost file, a way out."""

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import ConfigError, InputError, RecordingError, RunFolderError
from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread, example_rows
from gym_ray.observe.report import RunReport
from gym_ray.observe.tally import Progress
from gym_ray.paths import RunPaths
from gym_ray.recording.recovery import recover_run
from gym_ray.recording.run_lock import RunLock, holder_of
from gym_ray.recording.standing import Standing, standing_of
from gym_ray.recording.status import RunState, read_status, write_status
from gym_ray.recording.verification import verify_run
from tests.cli.program import gym_ray


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread() as deployment:
        yield deployment


class Folder:
    """A finished run of 6 rollouts in two shards."""

    def __init__(self, folder: Path, served: ExampleDeployment) -> None:
        self.folder = folder / "out"
        self.served = served
        self.rows = folder / "rows.jsonl"
        self.write_rows(0)

    def write_rows(self, first: int) -> None:
        lines = example_rows("arithmetic").read_text().splitlines(keepends=True)
        self.rows.write_text("".join(lines[first : first + 6]))

    async def run(self, **settings: Any) -> RunReport:
        given: dict[str, Any] = {
            "input_jsonl_fpath": str(self.rows), "output_jsonl_fpath": str(self.folder / "r.jsonl"), "shards": 2,
            "executor": "local", "head": self.served.head_address,
        }  # fmt: skip
        async with RolloutRunner(RolloutCollectionConfig(**{**given, **settings})) as runner:
            return await runner.collect()

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.folder, "r")


@pytest.fixture
async def finished(tmp_path: Path, served: ExampleDeployment) -> Folder:
    folder = Folder(tmp_path, served)
    await folder.run()
    return folder


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version":9}'])
async def test_a_damaged_status_keeps_nobody_from_going_on(finished: Folder, content: bytes) -> None:
    finished.paths.run_status.write_bytes(content)
    assert any("gym-ray recover" in problem for problem in verify_run(finished.paths).problems)
    assert standing_of(finished.paths).standing is Standing.UNKNOWN
    recover_run(finished.paths)
    assert standing_of(finished.paths).standing is Standing.INCOMPLETE
    finished.paths.run_status.write_bytes(content)
    assert (await finished.run(resume_from_cache=True)).is_complete
    assert verify_run(finished.paths).problems == []


@pytest.mark.parametrize("content", [None, b"", b"{}"])
async def test_a_damaged_manifest_is_mended_after_that_of_another_shard(
    finished: Folder, content: bytes | None
) -> None:
    manifest = finished.paths.shard(0).manifest
    before = json.loads(manifest.read_text())
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    with pytest.raises(RunFolderError, match="gym-ray recover"):
        await finished.run(resume_from_cache=True)
    assert any("gym-ray recover" in problem for problem in verify_run(finished.paths).problems)
    assert recover_run(finished.paths)
    assert json.loads(manifest.read_text()) == before
    assert verify_run(finished.paths).problems == []
    assert (await finished.run(resume_from_cache=True)).is_complete


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
async def test_records_are_never_taken_for_those_of_other_rows(finished: Folder, lost: tuple[int, ...]) -> None:
    for shard in lost:
        finished.paths.shard(shard).materialized.unlink()
    finished.write_rows(20)
    with pytest.raises(RunFolderError, match="restore"):
        await finished.run(resume_from_cache=True)


async def test_a_merged_file_that_was_cut_is_written_again(finished: Folder) -> None:
    whole = finished.paths.merged.read_bytes()
    finished.paths.merged.write_bytes(whole[:100])
    assert any("gym-ray merge" in problem for problem in verify_run(finished.paths).problems)
    await finished.run(resume_from_cache=True)
    assert finished.paths.merged.read_bytes() == whole
    finished.paths.merged.write_bytes(b"x" * len(whole))
    assert gym_ray("merge", finished.folder).code == 0
    assert finished.paths.merged.read_bytes() == whole


async def test_results_that_vanished_are_told_and_run_again(finished: Folder, caplog: pytest.LogCaptureFixture) -> None:
    finished.paths.shard(0).results.unlink()
    assert any("3 results that the log of attempts knows" in problem for problem in verify_run(finished.paths).problems)
    report = await finished.run(resume_from_cache=True)
    assert report.is_complete
    assert "3 results that were recorded once are in no file" in caplog.text


async def test_records_that_vanish_during_a_run_are_noticed_at_its_end(tmp_path: Path) -> None:
    with example_in_thread(Profile(latency=LatencyRange(0.05, 0.2))) as served:
        folder = Folder(tmp_path, served)

        def remove(progress: Progress) -> None:
            if progress.results >= 2:
                folder.paths.shard(0).results.unlink(missing_ok=True)

        config = RolloutCollectionConfig(
            input_jsonl_fpath=str(folder.rows), output_jsonl_fpath=str(folder.folder / "r.jsonl"), executor="local",
            head=served.head_address, num_samples_in_parallel=2, num_repeats=3,
        )  # fmt: skip
        async with RolloutRunner(config) as runner:
            with pytest.raises(RecordingError, match="18 results were recorded, the files hold"):
                await runner.collect(on_progress=remove, every_s=0.02)
        assert (await folder.run(resume_from_cache=True, num_repeats=3)).is_complete


async def test_runs_whose_names_clash_do_not_move_each_other(finished: Folder) -> None:
    await finished.run(output_jsonl_fpath=str(finished.folder / "r-7.jsonl"))
    for settings in ({"fresh": True}, {}):
        with pytest.raises(RunFolderError, match="'r-7'"):
            await finished.run(**settings)
    assert verify_run(RunPaths(finished.folder, "r-7")).problems == []


@pytest.mark.parametrize("resumes", [True, False])
async def test_an_input_is_never_appended_to(served: ExampleDeployment, tmp_path: Path, resumes: bool) -> None:
    folder = Folder(tmp_path, served)
    before = folder.rows.read_bytes()
    with pytest.raises(ConfigError, match="is where the records go"):
        await folder.run(output_jsonl_fpath=str(folder.rows), resume_from_cache=resumes)
    assert folder.rows.read_bytes() == before


@pytest.mark.parametrize("output", ["", ".", "..", "/dev/null", "sub/", "x" * 300 + ".jsonl"])
def test_an_output_is_the_name_of_a_file(output: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    ended = gym_ray("run", "-i", example_rows("arithmetic"), "-o", output, "--head", "127.0.0.1:1", cwd=tmp_path)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["sub"]
    for verb in ("verify", "status"):
        shown = gym_ray(verb, output or "none", cwd=tmp_path)
        assert shown.code == 2
        assert "Traceback" not in shown.err


@pytest.mark.parametrize("moved", range(12))
async def test_an_archive_that_is_cut_short_is_no_run(finished: Folder, moved: int, monkeypatch: Any) -> None:
    """A kill between two renames: whatever is left, a resume with other rows counts none of it."""
    before = sorted(path.name for path in finished.folder.iterdir())
    rename, done = Path.rename, [0]

    class Killed(BaseException):
        pass

    def until_killed(self: Path, target: Path) -> Path:
        if ".archive-" in str(target):
            if done[0] == moved:
                raise Killed
            done[0] += 1
        return rename(self, target)

    finished.write_rows(100)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", until_killed)
        with pytest.raises(BaseException):  # noqa: B017 - the kill, or a group of it
            await finished.run(fresh=True)
    with pytest.raises(RunFolderError, match="pass --fresh"):
        await finished.run(resume_from_cache=True)
    report = await finished.run(fresh=True)
    assert (report.progress.results, report.progress.earlier) == (6, 0)
    assert verify_run(finished.paths).is_sound
    kept = {path.name for path in finished.folder.glob("*.archive-*/*")}
    assert kept >= {name for name in before if not name.startswith(".") and not name.endswith(".lock")}


@pytest.mark.parametrize("attempt", ["1" + "0" * 20, "-3", "65535"])
@pytest.mark.parametrize("name", ["r-0.jsonl", "r-0_failures.jsonl"])
async def test_an_attempt_that_cannot_be_one_is_damage(finished: Folder, name: str, attempt: str) -> None:
    stamp = f'{{"_ng_task_index":0,"_ng_rollout_index":0,"_ng_attempt_index":{attempt},"reward":1}}\n'
    (finished.folder / name).write_text(stamp)
    with pytest.raises(InputError, match=rf"{name}:1: expected a record, found damage: _ng_attempt_index is "):
        await finished.run(resume_from_cache=True)
    assert not verify_run(finished.paths).is_sound
    recover_run(finished.paths)
    assert (await finished.run(resume_from_cache=True)).is_complete


async def test_a_killed_run_whose_last_line_is_cut_is_interrupted_and_not_damaged(finished: Folder) -> None:
    status = read_status(finished.paths)
    assert status is not None
    write_status(finished.paths, msgspec.structs.replace(status, state=RunState.RUNNING))
    journal = finished.folder / "r-0.jsonl"
    journal.write_bytes(journal.read_bytes()[:-10])
    standing = standing_of(finished.paths)
    assert standing.standing is Standing.INTERRUPTED
    assert standing.status is not None
    assert (standing.status.completed, standing.status.remaining) == (5, 1)


def test_an_error_is_an_object_for_whoever_reads_json(tmp_path: Path) -> None:
    ended = gym_ray("status", tmp_path, "--json")
    assert ended.code == 2
    assert json.loads(ended.out) == {"error": f"{tmp_path}: there is no run in this folder", "exit_code": 2}


def test_many_may_look_at_a_run_at_once(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "r")
    lock = RunLock(paths, "one")
    assert holder_of(paths) is not None
    lock.release()
    with paths.run_lock.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as another one does at this moment
        assert holder_of(paths) is None

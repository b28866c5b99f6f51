from datetime import UTC, datetime
from pathlib import Path

import pytest

from gym_ray.errors import RunFolderError, WriterSupersededError
from gym_ray.paths import RunPaths
from gym_ray.recording.journal import Journal
from gym_ray.recording.run_files import (
    existing_files,
    make_room,
    move_aside,
    move_together,
    record_files,
    refuse_earlier_run,
)
from tests.recording.files import record, run_paths, write_plan

NOW = datetime(2026, 1, 5, 10, 11, 12, 345, UTC)
ARCHIVE = "rollouts.archive-20260105T101112000345"


def a_run(paths: RunPaths, shards: int = 2) -> set[str]:
    """Leave the files of a run; returns the names of those that make it one."""
    write_plan(paths, *([record(shard)] for shard in range(shards)))
    names = set()
    for shard in range(shards):
        files = paths.shard(shard)
        files.results.write_bytes(record(shard))
        files.failures.touch()
        files.manifest.touch()
        files.lock.touch()
        names |= {file.name for file in (files.results, files.failures, files.manifest, files.materialized)}
    for file in (paths.merged, paths.aggregate_metrics, paths.run_status, paths.task_selection):
        file.touch()
        names.add(file.name)
    (paths.directory / "rollouts-0.jsonl.torn-1").touch()
    return names | {"rollouts-0.jsonl.torn-1"}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_every_file_of_a_run_is_found_and_nothing_else(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    assert existing_files(run_paths(tmp_path / "gone")) == []
    assert existing_files(paths) == []
    names = a_run(paths)
    for other in ("rollouts.txt", "other-0.jsonl", "rollouts-x.jsonl", "rollouts2-0.jsonl", "xrollouts-0.jsonl"):
        (tmp_path / other).touch()
    assert [path.name for path in existing_files(paths)] == sorted(names)


def test_the_stem_is_taken_literally(tmp_path: Path) -> None:
    (tmp_path / "aXb-0.jsonl").touch()
    assert existing_files(RunPaths(tmp_path, "a.b")) == []


def test_record_files_are_told_by_kind(tmp_path: Path) -> None:
    a_run(run_paths(tmp_path))
    results, failures, _ = record_files(run_paths(tmp_path))
    assert [path.name for path in results] == ["rollouts-0.jsonl", "rollouts-1.jsonl"]
    assert [path.name for path in failures] == ["rollouts-0_failures.jsonl", "rollouts-1_failures.jsonl"]


def test_a_fresh_run_over_an_earlier_one_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    a_run(paths)
    before = names_in(tmp_path)
    with pytest.raises(RunFolderError, match=r"rollouts-0\.jsonl, .* and \d+ more.*--fresh.*--output"):
        make_room(paths, archive=False, now=NOW)
    assert names_in(tmp_path) == before


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    paths = run_paths(tmp_path / "a" / "b")
    refuse_earlier_run(paths)
    assert make_room(paths, archive=False, now=NOW) is None
    assert make_room(paths, archive=True, now=NOW) is None
    assert paths.directory.is_dir()
    assert names_in(paths.directory) == set()


def test_an_earlier_run_moves_aside_whole_and_its_locks_stay(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    names = a_run(paths)
    (tmp_path / "mine.txt").touch()
    assert make_room(paths, archive=True, now=NOW) == tmp_path / ARCHIVE
    assert names_in(tmp_path / ARCHIVE) == names
    assert names_in(tmp_path) == {ARCHIVE, "mine.txt", "rollouts-0.lock", "rollouts-1.lock"}
    assert (tmp_path / ARCHIVE / "rollouts-1.jsonl").read_bytes() == record(1)
    refuse_earlier_run(paths)


def test_a_writer_of_the_run_that_was_moved_writes_nothing_more(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    journal = Journal(paths.shard(0))
    journal.append([record(0)], [])
    target = move_aside(paths, NOW)
    with pytest.raises(WriterSupersededError):
        journal.append([record(1)], [])
    assert target is not None
    assert (target / "rollouts-0.jsonl").read_bytes() == record(0)
    assert not paths.shard(0).results.exists()
    journal.close()


def test_an_archive_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    names = a_run(paths)
    (tmp_path / ARCHIVE).mkdir()
    with pytest.raises(RunFolderError, match="cannot be moved aside: File exists"):
        move_aside(paths, NOW)
    assert {path.name for path in existing_files(paths)} == names
    assert names_in(tmp_path / ARCHIVE) == set()


def test_if_one_file_cannot_be_moved_none_is(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "gone")]
    target = tmp_path / "target"
    target.mkdir()
    files[0].write_bytes(b"A")
    files[1].touch()
    with pytest.raises(FileNotFoundError):
        move_together(files, target)
    assert names_in(tmp_path) == {"a", "b"}
    assert files[0].read_bytes() == b"A"

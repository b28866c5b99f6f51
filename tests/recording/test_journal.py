import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.errors import RecordingError, WriterSupersededError
from gym_ray.recording.journal import AppendFile, Journal, Recorder
from tests.recording.files import on_disk, record, run_paths

LIMITED = """
import json, resource, sys
from pathlib import Path
from gym_ray.errors import RecordingError
from gym_ray.paths import RunPaths
from gym_ray.recording.journal import Journal

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

journal = Journal(RunPaths(Path(sys.argv[1]), "rollouts").shard(0))
records = [b"%d%s\\n" % (i, b"x" * 98) for i in range(10)]
journal.append(records[:2], [])
limit(int(sys.argv[2]))
try:
    journal.append(records[2:], [b"f\\n"])
except RecordingError as error:
    print(json.dumps(str(error)))
limit(resource.RLIM_INFINITY)
journal.append([b"after\\n"], [])
journal.close()
"""

RACER = """
import sys
from pathlib import Path
from gym_ray.errors import WriterSupersededError
from gym_ray.paths import RunPaths
from gym_ray.recording.journal import Journal

name, acknowledged = sys.argv[2], 0
for opening in range(6):
    journal = Journal(RunPaths(Path(sys.argv[1]), "rollouts").shard(0))
    try:
        for number in range(40):
            line = b'{"writer":"%b-%d","number":%d}\\n' % (name.encode(), opening, number)
            journal.append([line] * 3, [line])
            print(line.decode(), end="")
    except WriterSupersededError:
        pass
    journal.close()
"""


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_results_and_failures_go_to_their_files_in_order(tmp_path: Path) -> None:
    paths = run_paths(tmp_path).shard(0)
    journal = Journal(paths)
    journal.append([record(0), record(1)], [])
    journal.append([], [record(2)])
    journal.append([memoryview(record(3))], [memoryview(record(4)), record(5)])
    journal.sync()
    assert lines_of(paths.results) == [record(0), record(1), record(3)]
    assert lines_of(paths.failures) == [record(2), record(4), record(5)]
    journal.close()
    journal.close()


def test_opening_again_continues_the_files(tmp_path: Path) -> None:
    paths = run_paths(tmp_path).shard(0)
    for task in range(3):
        journal = Journal(paths)
        assert journal.repairs == ()
        journal.append([record(task)], [])
        journal.close()
    assert lines_of(paths.results) == [record(0), record(1), record(2)]


def test_a_superseded_writer_writes_nothing(tmp_path: Path) -> None:
    paths = run_paths(tmp_path).shard(0)
    old = Journal(paths)
    old.append([record(0)], [])
    new = Journal(paths)
    with pytest.raises(WriterSupersededError, match="nothing was written"):
        old.append([record(1)], [record(2)])
    new.append([record(3)], [])
    assert lines_of(paths.results) == [record(0), record(3)]
    assert lines_of(paths.failures) == []
    old.close()
    new.close()


@pytest.mark.parametrize("broken", [b"", b"{}"])
def test_a_record_without_a_line_end_is_our_bug(broken: bytes, tmp_path: Path) -> None:
    paths = run_paths(tmp_path).shard(0)
    journal = Journal(paths)
    with pytest.raises(ValueError, match="line end"):
        journal.append([record(0), broken], [])
    assert lines_of(paths.results) == []
    journal.close()


@pytest.mark.parametrize(("limit", "kept"), [(200, 2), (201, 2), (299, 2), (300, 3), (999, 9)])
def test_a_write_that_breaks_off_leaves_whole_records_and_the_next_one_follows_them(
    limit: int, kept: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path, str(limit)], capture_output=True, text=True, check=True
    )
    message = json.loads(done.stdout)
    assert "rollouts-0.jsonl: cannot be written: File too large" in message
    assert "ulimit -f" in message
    paths = run_paths(tmp_path).shard(0)
    lines = lines_of(paths.results)
    assert lines == [b"%d%s\n" % (i, b"x" * 98) for i in range(kept)] + [b"after\n"]
    assert paths.failures.read_bytes() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_with_what_to_do() -> None:
    file = AppendFile(Path("/dev/full"))
    for _ in range(2):
        with pytest.raises(RecordingError, match=r"/dev/full: cannot be written: No space left.*free some space"):
            file.append([record(0)])
    file.close()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        Journal(run_paths(tmp_path / "gone").shard(0))


def test_many_writers_race_for_one_shard_and_no_line_is_torn_or_late(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, tmp_path, name], stdout=subprocess.PIPE, text=True)
        for name in ("a", "b", "c")
    ]
    acknowledged = [line for racer in racers for line in racer.communicate(timeout=60)[0].splitlines()]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    paths = run_paths(tmp_path).shard(0)
    results = [json.loads(line) for line in lines_of(paths.results)]
    failures = [json.loads(line) for line in lines_of(paths.failures)]
    assert sorted(json.dumps(line, separators=(",", ":")) for line in failures) == sorted(acknowledged)
    assert [line for line in failures for _ in range(3)] == results
    turns = [writer for writer, _ in groupby(line["writer"] for line in failures)]
    assert len(turns) == len(set(turns)), "a superseded writer wrote again"


def test_a_recorder_writes_each_record_to_the_files_of_its_owner(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    recorder = Recorder.open(paths, 3)
    recorder.append([(2, True, record(0)), (0, False, memoryview(record(1))), (2, True, record(2))])
    recorder.append([])
    recorder.sync()
    assert lines_of(paths.shard(2).results) == [record(0), record(2)]
    assert lines_of(paths.shard(0).failures) == [record(1)]
    assert paths.shard(1).results.read_bytes() == b""
    recorder.close()
    recorder.close()


def test_a_recorder_reports_what_it_repaired(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    paths.shard(1).results.write_bytes(record(0) + b'{"cut')
    paths.shard(1).failures.write_bytes(record(1)[:-1])
    recorder = Recorder.open(paths, 2)
    recorder.append([(1, True, record(2)), (1, False, record(3))])
    recorder.close()
    assert [(repair.path, repair.dropped_bytes) for repair in recorder.repairs] == [
        (paths.shard(1).results, 5),
        (paths.shard(1).failures, 0),
    ]
    assert lines_of(paths.shard(1).results) == [record(0), record(2)]
    assert lines_of(paths.shard(1).failures) == [record(1), record(3)]


def test_a_recorder_that_cannot_open_a_shard_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    run_paths(tmp_path).shard(1).failures.mkdir()
    with pytest.raises(RecordingError, match=r"rollouts-1_failures\.jsonl: cannot be written: Is a directory"):
        Recorder.open(run_paths(tmp_path), 2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.binary(max_size=20)), max_size=6), min_size=1, max_size=6
)


@on_disk
@given(BATCHES, st.data())
def test_after_crashes_at_any_byte_the_files_hold_whole_records_in_order(
    batches: Sequence[Sequence[tuple[int, bool, bytes]]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        paths = run_paths(Path(folder))
        files = {
            (shard, is_result): paths.shard(shard).results if is_result else paths.shard(shard).failures
            for shard in (0, 1)
            for is_result in (True, False)
        }
        model: dict[tuple[int, bool], list[bytes]] = {key: [] for key in files}
        for number, batch in enumerate(batches):
            recorder = Recorder.open(paths, 2)
            lines = [(s, r, record(number, text=payload.hex())) for s, r, payload in batch]
            recorder.append(lines)
            recorder.close()
            for shard, is_result, line in lines:
                model[shard, is_result].append(line)
            key = data.draw(st.sampled_from(sorted(files)))
            size = files[key].stat().st_size
            cut = data.draw(st.integers(0, size))
            os.truncate(files[key], cut)
            whole, kept = 0, []
            for line in model[key]:
                if whole + len(line) - 1 > cut:
                    break  # what lacks no more than its line end is whole
                kept.append(line)
                whole += len(line)
            model[key] = kept
        Recorder.open(paths, 2).close()
        assert {key: lines_of(file) for key, file in files.items()} == model

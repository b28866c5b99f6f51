"""Puts right what a crash left in a run folder, so that it can be continued. Nothing that was written is lost.

Cut tails and damaged lines move to files of their own beside the record file; what they held is run again. Temporary
files of processes that are gone are removed: nothing but unfinished copies is in them.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import sync_directory, write_atomically
from gym_ray.recording.found import FoundRun, find_run
from gym_ray.recording.manifest import read_manifest, write_manifests
from gym_ray.recording.refusals import refusals
from gym_ray.recording.repair import repair_tail
from gym_ray.recording.run_files import record_files
from gym_ray.recording.run_lock import RunLock
from gym_ray.recording.stamps import read_stamps
from gym_ray.recording.standing import counted_status
from gym_ray.recording.status import RunState, read_status, write_status
from gym_ray.recording.writer_lock import WriterLock


@dataclass(frozen=True, slots=True)
class Recovered:
    """One thing that was put right."""

    path: Path
    action: str

    def __str__(self) -> str:
        return f"{self.path}: {self.action}"


def recover_run(paths: RunPaths) -> list[Recovered]:
    """Put a run right and say what was done; an empty list if it was sound.

    Raises:
        RunFolderError: there is no run with this output, or somebody writes to it.
        RecordingError: the file system refuses.
    """
    found = find_run(paths)
    if found is None:
        raise RunFolderError(f"{paths.directory}: there is no run named {paths.stem!r}")
    paths, done = found.paths, list[Recovered]()
    with ExitStack() as stack:
        run_lock = RunLock(paths, "that recovers")
        stack.callback(run_lock.release)
        for shard in range(found.shards):
            lock = WriterLock(paths.shard(shard).lock)
            stack.callback(lock.close)
            stack.enter_context(lock.take())  # a writer that was only thought dead writes nothing more
        for path in record_files(paths).journals:
            with refusals(path):
                repair = repair_tail(path)
            if repair is not None:
                done.append(Recovered(path, str(repair).partition(": ")[2]))
            done += _without_damage(path)
        done += _mended_manifests(found)
        if found.has_plan and (done or not _has_status(paths)):
            if not done:
                done.append(Recovered(paths.run_status, "could not be read, and says again what the records say"))
            write_status(paths, counted_status(found, RunState.INCOMPLETE))  # what it said is true no more
        done += _remove_leftovers(paths)
    return done


def _mended_manifests(found: FoundRun) -> list[Recovered]:
    """Write the manifests that are damaged or missing after one that is whole; without one, set damaged ones aside."""
    done: list[Recovered] = []
    for shard in range(found.shards) if found.damage else ():
        path = found.paths.shard(shard).manifest
        try:
            if read_manifest(path) is not None:
                continue
        except RunFolderError:
            aside = path.with_name(f"{path.name}.damaged-1")
            with refusals(path):
                path.replace(aside)
            done.append(Recovered(path, f"was damaged and is now {aside.name}"))
    if found.manifest is not None and found.damage:
        write_manifests(
            found.paths,
            run_id=found.manifest.run_id,
            shards=found.shards,
            created_at=found.manifest.created_at,
            identity=found.manifest.identity,
            max_rollout_attempts=found.manifest.max_rollout_attempts,
        )
        done.append(Recovered(found.paths.shard(0).manifest, "manifests are whole again, after that of another shard"))
    return done


def _has_status(paths: RunPaths) -> bool:
    try:
        read_status(paths)
    except RunFolderError:
        return False
    return True


def _without_damage(path: Path) -> Iterator[Recovered]:
    """Take damaged lines out of a record file into `<name>.damaged-<n>`."""
    damaged = [number for number, line in _lines(path) if not _is_record(line)]
    if not damaged:
        return
    bad = set(damaged)
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not name.exists())
    write_atomically(aside, (line for number, line in _lines(path) if number in bad))
    write_atomically(path, (line for number, line in _lines(path) if number not in bad))
    shown = ", ".join(map(str, damaged[:10])) + (" …" if len(damaged) > 10 else "")
    yield Recovered(path, f"{len(damaged)} damaged lines ({shown}) are now in {aside.name}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb", 1 << 20) as stream:
        yield from enumerate(stream, 1)


def _is_record(line: bytes) -> bool:
    try:
        read_stamps(line)
    except ValueError:
        return False
    return True


def _remove_leftovers(paths: RunPaths) -> Iterator[Recovered]:
    """Temporary files of the run; whoever made them would hold the lock that we hold."""
    stem = re.escape(paths.stem)
    name = re.compile(
        rf"\.{stem}(-[0-9]+)?(_[a-z_]+)?\.(jsonl|json|csv|parquet)\.[0-9a-f]+\.tmp|\.{stem}\.token-[0-9a-f]+"
    )
    for path in sorted(paths.directory.iterdir()):
        if name.fullmatch(path.name):
            size = path.stat().st_size
            with refusals(path):
                path.unlink()
            yield Recovered(path, f"a temporary file of {size} bytes was removed")
    sync_directory(paths.directory)

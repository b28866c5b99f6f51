"""An output folder between two runs: what an earlier run left there, and moving all of it aside.

Invariant: nothing is ever deleted. Lock files stay where they are, since all writers of a shard, past and future, must
lock the same inode; a lock alone is no run.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import sync_directory
from gym_ray.recording.writer_lock import WriterLock

_PART = r"_part-[0-9]+\.parquet"
_LINES = r"(_failures)?\.jsonl(\.((torn|damaged)-[0-9]+|superseded))?"
_SHARD_FILES = rf"(-[0-9]+)?({_PART}|{_LINES}|_materialized_inputs\.jsonl|_manifest\.json(\.damaged-[0-9]+)?)"
_RUN_FILES = (
    r"_aggregate_metrics\.json(\.superseded)?|_(run_status|task_selection|coverage|quality)\.json|_attempts\.csv|"
    r"_resolved_config\.yaml"
)
_MAX_NAMED = 3


def existing_files(paths: RunPaths) -> list[Path]:
    """The files that a run with this output has left, sorted by name."""
    return _files_named(paths, f"({_SHARD_FILES}|{_RUN_FILES})")


class RecordFiles(NamedTuple):
    """The files of a run that hold its records."""

    results: list[Path]
    failures: list[Path]
    parts: list[Path]
    """Sealed; what is in them may stand in a journal too."""

    @property
    def journals(self) -> list[Path]:
        """Files of lines, whatever they hold."""
        return [*self.results, *self.failures]


def record_files(paths: RunPaths) -> RecordFiles:
    """The record files of a run, whatever its number of shards."""
    if paths.is_single:
        only = paths.shard(0)
        results, failures = ([path for path in (name,) if path.exists()] for name in (only.results, only.failures))
        return RecordFiles(results, failures, _files_named(paths, _PART))
    return RecordFiles(
        _files_named(paths, r"-[0-9]+\.jsonl"),
        _files_named(paths, r"-[0-9]+_failures\.jsonl"),
        _files_named(paths, rf"-[0-9]+{_PART}"),
    )


def make_room(paths: RunPaths, *, archive: bool, now: datetime) -> Path | None:
    """Make the output folder ready for a fresh run; returns where an earlier run went, if there was one.

    Raises:
        RunFolderError: an earlier run is there and may not be moved. Nothing was touched.
    """
    _refuse_clash(paths)
    if not archive:
        refuse_earlier_run(paths)
    paths.directory.mkdir(parents=True, exist_ok=True)
    return move_aside(paths, now)


def _refuse_clash(paths: RunPaths) -> None:
    """Refuse an output whose shards would have the names of another run in the folder.

    Raises:
        RunFolderError: names that run.
    """
    own = re.compile(rf"({re.escape(paths.stem)}-[0-9]+)(-[0-9]+_materialized_inputs\.jsonl|_attempts\.csv)")
    names = paths.directory.iterdir() if paths.directory.is_dir() else ()
    for match in filter(None, (own.fullmatch(path.name) for path in names)):
        raise RunFolderError(
            f"{paths.directory} holds a run named {match[1]!r}, which is what a shard of {paths.stem!r} would be "
            "called: choose another --output"
        )


def withdraw_plan(paths: RunPaths) -> None:
    """Remove the plan of a run that could not begin; one of which there are records stays."""
    if is_unfinished_plan(paths):
        for path in existing_files(paths):
            path.unlink(missing_ok=True)


def is_unfinished_plan(paths: RunPaths) -> bool:
    """True if nothing is there but a plan, or parts of one: nothing has run."""
    ends = ("_materialized_inputs.jsonl", "_manifest.json", "_task_selection.json", "_resolved_config.yaml")
    files = existing_files(paths)
    return bool(files) and all(path.name.endswith(ends) for path in files)


def refuse_earlier_run(paths: RunPaths) -> None:
    """Accept only an output that no run has used.

    Raises:
        RunFolderError: names the files and the ways on.
    """
    if files := existing_files(paths):
        named = ", ".join(path.name for path in files[:_MAX_NAMED])
        more = f" and {len(files) - _MAX_NAMED} more" if len(files) > _MAX_NAMED else ""
        raise RunFolderError(
            f"{paths.directory} already holds a run named {paths.stem!r} ({named}{more}): "
            "--resume continues it, --fresh moves it aside; or choose another --output"
        )


def move_aside(paths: RunPaths, now: datetime) -> Path | None:
    """Move every file of an earlier run into `<stem>.archive-<UTC time>/`; None if there is none.

    Writers that still have the files open write nothing more. A mark says so while the files move: where that is cut
    short nobody takes the rest for a run, and moving aside again moves it too.

    Raises:
        RunFolderError: a file cannot be moved; those that were are back in their places.
        RecordingError: a writer keeps a lock.
    """
    files = existing_files(paths)
    if not files:
        paths.archiving.unlink(missing_ok=True)
        return None
    for lock in _files_named(paths, r"(-[0-9]+)?\.lock"):
        _supersede(lock)
    target = paths.directory / f"{paths.stem}.archive-{now:%Y%m%dT%H%M%S%f}"
    try:
        target.mkdir()
        paths.archiving.touch()
        sync_directory(paths.directory)
        move_together(files, target)
        paths.archiving.unlink()
    except OSError as error:
        raise RunFolderError(
            f"{error.filename or target}: the earlier run cannot be moved aside: {error.strerror}: "
            "make the folder writable, or choose another --output"
        ) from error
    return target


def move_together(files: Sequence[Path], target: Path) -> None:
    """Move files of one folder into an empty one, in this order and durably; if one cannot be moved, none is.

    Raises:
        OSError: why one cannot be moved. `target` is removed then.
    """
    moved: list[Path] = []
    try:
        for path in files:
            path.rename(target / path.name)
            moved.append(path)
    except OSError:
        for path in reversed(moved):
            (target / path.name).rename(path)
        target.rmdir()
        raise
    sync_directory(target)
    sync_directory(target.parent)


def _files_named(paths: RunPaths, ending: str) -> list[Path]:
    """The files whose name is the stem and `ending`, a regular expression; sorted."""
    if not paths.directory.is_dir():
        return []
    name = re.compile(re.escape(paths.stem) + ending)
    return sorted(path for path in paths.directory.iterdir() if name.fullmatch(path.name))


def _supersede(path: Path) -> None:
    lock = WriterLock(path)
    try:
        with lock.take():
            pass
    finally:
        lock.close()

"""An output folder between two runs: what an earlier run left there, and moving all of it aside."""

import re
from datetime import datetime
from pathlib import Path

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths

_SHARD_SUFFIX = r"-[0-9]+(_failures|_materialized_inputs)?\.jsonl|-[0-9]+(_manifest\.json|\.lock)"
_RUN_SUFFIX = r"\.jsonl|_aggregate_metrics\.json|_run_status\.json|_task_selection\.json|_coverage\.json"


def existing_files(paths: RunPaths) -> list[Path]:
    """The files that a run with this output has left, sorted by name."""
    if not paths.directory.is_dir():
        return []
    name = re.compile(re.escape(paths.stem) + f"({_SHARD_SUFFIX}|{_RUN_SUFFIX})")
    return sorted(path for path in paths.directory.iterdir() if name.fullmatch(path.name))


def record_files(paths: RunPaths) -> tuple[list[Path], list[Path]]:
    """The result files and the sidecars of a run, whatever its number of shards."""
    results = re.compile(re.escape(paths.stem) + r"-[0-9]+\.jsonl")
    failures = re.compile(re.escape(paths.stem) + r"-[0-9]+_failures\.jsonl")
    files = existing_files(paths)
    return [p for p in files if results.fullmatch(p.name)], [p for p in files if failures.fullmatch(p.name)]


def make_room(paths: RunPaths, *, archive: bool, now: datetime) -> Path | None:
    """Make the output folder ready for a fresh run; returns where an earlier run went, if there was one.

    Raises:
        RunFolderError: an earlier run is there and may not be moved. Nothing was touched.
    """
    paths.directory.mkdir(parents=True, exist_ok=True)
    files = existing_files(paths)
    if not files:
        return None
    if not archive:
        named = ", ".join(path.name for path in files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        raise RunFolderError(
            f"{paths.directory} already holds a run named {paths.stem!r} ({named}): "
            "pass --fresh to move it aside, or choose another --output"
        )
    target = paths.directory / f"{paths.stem}.archive-{now:%Y%m%dT%H%M%S%f}"
    target.mkdir()
    for path in files:
        path.rename(target / path.name)
    return target

"""The files that a concluded run has beside its records: metrics and coverage; and whether they still hold."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from gym_ray import keys
from gym_ray.actors.additions import Additions
from gym_ray.aggregation.aggregate import Entry
from gym_ray.aggregation.policy import Policy
from gym_ray.observe.tally import Progress
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_json_atomically
from gym_ray.recording.run_files import record_files
from gym_ray.recording.winners import RecordIndex

Coverage = dict[str, Any]
"""What `<stem>_coverage.json` says; source: protocol §7.9."""


def read_index(paths: RunPaths) -> RecordIndex:
    """The winning records of a run.

    Raises:
        InputError: a record file is damaged.
    """
    return RecordIndex.read(*record_files(paths))


def write_parts(paths: RunPaths, shards: int, part_bytes: int) -> None:
    """Write the records of every shard as Parquet parts too.

    Raises:
        RecordingError: the file system refuses.
    """
    from gym_ray.recording.sealing import derive_parts  # noqa: PLC0415 - pyarrow is for runs that want parts

    for shard in range(shards):
        derive_parts(paths.shard(shard), paths.attempts, part_bytes)


def write_metrics(paths: RunPaths, entries: list[Entry]) -> None:
    """Write `<stem>_aggregate_metrics.json`."""
    write_json_atomically(paths.aggregate_metrics, entries)


def read_metrics(paths: RunPaths) -> list[Entry]:
    """What `write_metrics` wrote."""
    entries: list[Entry] = msgspec.json.decode(paths.aggregate_metrics.read_bytes())
    return entries


def withdraw(path: Path) -> None:
    """Take a file of an earlier invocation out of the way, which does not say what is there now."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.superseded"))


def coverage_of(
    index: RecordIndex, additions: Additions, progress: Progress, policy: Policy, merged: Path | None
) -> Coverage:
    """How much of the plan the score covers, and by which policy."""
    scored = index.results + len(additions)
    return {
        "expected": progress.planned,
        "scored": scored,
        "missing": progress.planned - scored,
        "failed": progress.failures,
        "failed_final": progress.terminal_failures,
        "failed_not_final": progress.failures - progress.terminal_failures,
        "failed_by_kind": progress.failures_by_class,
        "omitted": progress.omitted + progress.drained,
        "imputed": len(additions),
        "policy": asdict(policy),
        "merged_bytes": merged.stat().st_size if merged is not None else None,
    }


def write_coverage(paths: RunPaths, coverage: Coverage) -> None:
    """Write `<stem>_coverage.json`."""
    write_json_atomically(paths.coverage, coverage)


def are_up_to_date(paths: RunPaths, policy: Policy, is_merged: bool) -> bool:
    """True if an earlier invocation has merged and aggregated, everywhere and by the same policy."""
    try:
        coverage: Coverage = msgspec.json.decode(paths.coverage.read_bytes())
        is_whole = not any(keys.AGGREGATION_ERROR in entry for entry in read_metrics(paths))
    except (FileNotFoundError, msgspec.MsgspecError):
        return False
    size = paths.merged.stat().st_size if is_merged and paths.merged.exists() else None
    if is_merged and (size is None or size != coverage.get("merged_bytes")):
        return False
    return is_whole and coverage.get("policy") == msgspec.json.decode(msgspec.json.encode(policy))

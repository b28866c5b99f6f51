"""What follows the last rollout: close the records, merge them, have the servers aggregate, say how it went."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gym_ray import keys
from gym_ray.actors.run import Phase, Run
from gym_ray.aggregation.aggregate import Entry, aggregate
from gym_ray.aggregation.grouping import Group, grouped
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.environment.client import EnvironmentClient
from gym_ray.observe.report import RunReport
from gym_ray.outcomes.reply import Reply
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_json_atomically
from gym_ray.recording.merge import merge_results
from gym_ray.recording.run_files import record_files
from gym_ray.recording.winners import RecordIndex

InThread = Callable[..., Awaitable[Any]]


async def conclude(
    run: Run,
    servers: tuple[EnvironmentServer, ...],
    client: EnvironmentClient,
    in_thread: InThread,
    clock: Callable[[], float],
) -> RunReport:
    """Turn the records of a run whose last rollout has ended into its files and its report.

    Raises:
        InputError: a record file is damaged.
        OSError: a file cannot be written.
    """
    paths, files, entries = run.spec.paths, dict[str, str](), list[Entry]()
    if paths is not None and run.held.files is not None:
        await in_thread(run.held.files.recorder.append, run.unstarted_rows())
        await in_thread(run.held.files.recorder.close)
        is_merged = run.spec.merge and not paths.is_single
        is_up_to_date = run.is_unchanged and await in_thread(_has_outputs, paths, is_merged)
        index: RecordIndex | None = None if is_up_to_date else await in_thread(_read_index, paths)
        if is_merged:
            if index is not None:
                await in_thread(merge_results, index, paths.merged)
            files["results"] = str(paths.merged)
        if run.spec.aggregate and is_up_to_date:
            entries = await in_thread(read_metrics, paths)
        elif run.spec.aggregate and index:
            run.enter(Phase.AGGREGATING)
            by_name = {server.name: server for server in servers}
            entries = await aggregate_index(index, by_name, client, run.spec.aggregate_timeout_s)
            await in_thread(write_metrics, paths, entries)
        if entries:
            files["aggregate metrics"] = str(paths.aggregate_metrics)
        _, sidecars = record_files(paths)
        files["failures"] = ", ".join(str(path) for path in sidecars if path.stat().st_size)
        files["folder"] = str(paths.directory)
    return RunReport(
        run_id=run.spec.run_id,
        progress=run.tally.snapshot(clock()),
        metrics=tuple(entries),
        files={name: path for name, path in files.items() if path},
        notes=tuple(run.notes),
        scores=run.scores.summary(),
    )


async def aggregate_index(
    index: RecordIndex, servers: Mapping[str, EnvironmentServer], client: EnvironmentClient, timeout_s: float
) -> list[Entry]:
    """Have every server that ran a winning record aggregate its own."""

    async def post(base_url: str, body: AsyncIterator[bytes]) -> Reply:
        return await client.post_aggregate(base_url, body, timeout_s)

    def lines(group: Group) -> Any:
        return index.lines(group.origins)

    return await aggregate(grouped(index.origins, servers), lines, post)


def write_metrics(paths: RunPaths, entries: list[Entry]) -> None:
    """Write `<stem>_aggregate_metrics.json`."""
    write_json_atomically(paths.aggregate_metrics, entries)


def read_metrics(paths: RunPaths) -> list[Entry]:
    """What `write_metrics` wrote."""
    entries: list[Entry] = msgspec.json.decode(paths.aggregate_metrics.read_bytes())
    return entries


def _has_outputs(paths: RunPaths, is_merged: bool) -> bool:
    """True if an earlier invocation has merged and aggregated, everywhere."""
    if is_merged and not paths.merged.exists():
        return False
    try:
        return not any(keys.AGGREGATION_ERROR in entry for entry in read_metrics(paths))
    except (FileNotFoundError, msgspec.MsgspecError):
        return False


def _read_index(paths: RunPaths) -> RecordIndex:
    results, _ = record_files(paths)
    return RecordIndex.read(results)

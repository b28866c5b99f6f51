"""What follows the last rollout: close the records, merge them, have the servers aggregate, say how it went."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from gym_ray.actors.additions import Additions, zeros_of
from gym_ray.actors.outputs import (
    are_up_to_date,
    coverage_of,
    read_index,
    read_metrics,
    withdraw,
    write_coverage,
    write_metrics,
    write_parts,
)
from gym_ray.actors.run import Phase, Run
from gym_ray.aggregation.aggregate import Aggregation, Entry, aggregate_groups
from gym_ray.aggregation.grouping import Group, grouped
from gym_ray.aggregation.policy import completion_rejection
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.environment.client import EnvironmentClient
from gym_ray.errors import GymRayError, RecordingError
from gym_ray.observe.quality import Quality, finding_lines
from gym_ray.observe.report import RunReport
from gym_ray.observe.tally import Progress
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

    A strict run that is unfinished is rejected before anything is aggregated: it has no score.

    Raises:
        InputError: a record file is damaged.
        RecordingError: a file cannot be written.
    """
    paths, spec, entries, rejection = run.spec.paths, run.spec, list[Entry](), None
    if paths is not None and run.held.files is not None:
        await in_thread(run.held.files.recorder.append, run.unstarted_rows())
        await in_thread(run.held.files.recorder.seal)
        await in_thread(run.held.files.recorder.close)
        if spec.record_format == "both":
            await in_thread(write_parts, paths, spec.record_shards, spec.part_bytes)
        is_merged = spec.merge and not paths.is_single
        if run.is_unchanged and await in_thread(are_up_to_date, paths, spec.policy, is_merged):
            entries = await in_thread(read_metrics, paths) if spec.aggregate else []
        else:
            index = await in_thread(read_index, paths)
            _check_count(index, run.tally.snapshot(clock()), paths)
            quality = Quality() if spec.checks_quality else None
            if is_merged:
                await in_thread(merge_results, index, paths.merged, quality and quality.add)
            elif not paths.is_single:
                await in_thread(withdraw, paths.merged)
            if quality is not None:
                findings = await in_thread(_findings, index, quality, run.tally.snapshot(clock()), is_merged)
                await in_thread(write_json_atomically, paths.quality, findings)
                run.notes += finding_lines(findings)
            zeros = await in_thread(zeros_of, index, run.plan, spec.policy)
            additions = Additions(index, zeros)
            rejection = _rejection(run, additions, clock())
            if rejection is not None:
                await in_thread(withdraw, paths.aggregate_metrics)
            elif spec.aggregate and (index.results or len(additions)):
                run.enter(Phase.AGGREGATING)
                by_name = {server.name: server for server in servers}
                entries = list((await aggregate_records(additions, by_name, client, spec.aggregate_timeout_s)).entries)
                await in_thread(write_metrics, paths, entries)
            merged = paths.merged if is_merged else None
            coverage = coverage_of(index, additions, run.tally.snapshot(clock()), spec.policy, merged)
            run.notes += [f"{len(additions)} rollouts without a result count as zeros"] if len(additions) else []
            await in_thread(write_coverage, paths, coverage)
    run.notes += run.timing.lines() if run.timing is not None else []
    return RunReport(
        run_id=spec.run_id,
        progress=run.tally.snapshot(clock()),
        metrics=tuple(entries),
        files=_files(run, paths, entries) if paths is not None else {},
        notes=tuple(run.notes),
        scores=run.scores.summary() if rejection is None else (),
        rejection=rejection,
        min_coverage=spec.policy.min_coverage,
        resume_command=spec.resume_command,
    )


def _files(run: Run, paths: RunPaths, entries: list[Entry]) -> dict[str, str]:
    files = {}
    if run.spec.merge and not paths.is_single:
        files["results"] = str(paths.merged)
    if entries:
        files["aggregate metrics"] = str(paths.aggregate_metrics)
    if written := [str(path) for path in record_files(paths).failures if path.stat().st_size]:
        files["failures"] = ", ".join(written)
    return {**files, "folder": str(paths.directory)}


def _check_count(index: RecordIndex, progress: Progress, paths: RunPaths) -> None:
    """Refuse to conclude over files that do not hold what was written to them."""
    if index.results != progress.results:
        raise RecordingError(
            f"{paths.directory}: {progress.results} results were recorded, the files hold {index.results}: something "
            "has removed or changed record files during the run; --resume runs what is missing again"
        )


def _findings(index: RecordIndex, quality: Quality, progress: Progress, has_seen_all: bool) -> dict[str, Any]:
    if not has_seen_all:
        for key, line in index.keyed_lines():
            quality.add(key, line)
    return quality.findings({name: part.failures for name, part in progress.servers.items()})


def _rejection(run: Run, additions: Additions, now: float) -> GymRayError | None:
    if not run.spec.policy.require_complete:
        return None
    progress = run.tally.snapshot(now)
    return completion_rejection(
        expected=progress.planned,
        completed=progress.results,
        can_retry=progress.results + progress.terminal_failures < progress.planned,
        made_progress=run.made_progress,
        final_zero_rows=additions.final_zeros,
    )


async def aggregate_records(
    additions: Additions, servers: Mapping[str, EnvironmentServer], client: EnvironmentClient, timeout_s: float
) -> Aggregation:
    """Have every server that ran a winning record, or owes a zero, aggregate its own."""

    async def post(base_url: str, body: AsyncIterator[bytes]) -> Reply:
        return await client.post_aggregate(base_url, body, timeout_s)

    def lines(group: Group) -> Any:
        return additions.lines(group.origins)

    return await aggregate_groups(grouped(additions.origins, servers), lines, post)

"""Aggregation alone: servers compute their metrics again from records on disk, of one run or of shards of several."""

import asyncio
import glob
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gym_ray.actors.additions import Additions, zeros_of
from gym_ray.actors.conclude import aggregate_records
from gym_ray.actors.outputs import read_index, write_metrics
from gym_ray.aggregation.aggregate import Aggregation, Entry
from gym_ray.aggregation.policy import Policy
from gym_ray.config import RolloutCollectionConfig
from gym_ray.deployment.merged import load_deployment
from gym_ray.environment.client import EnvironmentClient
from gym_ray.errors import ConfigError
from gym_ray.paths import RunPaths
from gym_ray.preparing import policy_of
from gym_ray.recording.found import find_run
from gym_ray.recording.merge import merge_results
from gym_ray.recording.plan_files import PlanFiles
from gym_ray.recording.run_files import record_files
from gym_ray.recording.winners import RecordIndex

_NOT_SHARDS = ("_failures", "_materialized_inputs")


async def aggregate_run(config: RolloutCollectionConfig, *, raise_on_error: bool = True) -> list[dict[str, Any]]:
    """Aggregate records again, without a single rollout; returns the entries that were written.

    Those of the run with `config.output_jsonl_fpath`, or with `config.input_glob` those of all shard files that it
    names, also of several runs, merged into that output unless `merge_shards` is off. The policies of the config apply;
    in shards of several runs, each shard's failures and gaps are its own.

    Args:
        raise_on_error: raise the first error once the metrics file is written; else it is only in its entry.

    Raises:
        ConfigError: there is no output path, or nothing to score.
        RoutingError: the records came from servers that this deployment does not have.
        InputError: a record file is damaged.
        AggregationError: a server did not aggregate.
    """
    if config.output_jsonl_fpath is None:
        raise ConfigError("output_jsonl_fpath: name the output of the run to aggregate (--output)")
    paths = RunPaths.of_output(config.output_jsonl_fpath)
    with ExitStack() as stack:
        if config.input_glob is None:
            additions = await asyncio.to_thread(_of_run, paths, policy_of(config), stack.callback)
        else:
            files = shard_files(config.input_glob)
            index, additions = await asyncio.to_thread(_of_shards, files, policy_of(config), stack.callback)
            paths.directory.mkdir(parents=True, exist_ok=True)
            if config.merges:
                await asyncio.to_thread(merge_results, index, paths.merged)
        if not additions.origins:
            raise ConfigError(f"{config.input_glob or paths.merged}: there is nothing to score")
        aggregation = await _aggregate(config, additions)
    entries: list[Entry] = list(aggregation.entries)
    await asyncio.to_thread(write_metrics, paths, entries)
    if raise_on_error:
        aggregation.raise_first()
    return entries


async def _aggregate(config: RolloutCollectionConfig, additions: Additions) -> Aggregation:
    deployment = await asyncio.to_thread(load_deployment, head=config.head, file=config.deployment)
    client = EnvironmentClient(retry_requests=True)
    try:
        return await aggregate_records(additions, deployment.environment_servers, client, config.aggregate_timeout_s)
    finally:
        await client.aclose()


def shard_files(patterns: str) -> list[Path]:
    """The shard files of comma-separated globs, in their order.

    Raises:
        ConfigError: a glob names no file of records.
    """
    files: dict[Path, None] = {}
    for pattern in filter(None, (each.strip() for each in patterns.split(","))):
        names = sorted(glob.glob(str(Path(pattern).expanduser())))  # noqa: PTH207 - Path globs no absolute patterns
        found = [Path(name) for name in names]
        shards = [path.absolute() for path in found if not path.stem.endswith(_NOT_SHARDS)]
        if not shards:
            raise ConfigError(f"input_glob: {pattern} names no file of records")
        files.update(dict.fromkeys(shards))
    if not files:
        raise ConfigError("input_glob: expected globs, found none")
    return list(files)


def _of_run(paths: RunPaths, policy: Policy, at_end: Callable[..., object]) -> Additions:
    found = find_run(paths)
    if found is None or not found.has_plan:
        raise ConfigError(f"output_jsonl_fpath: no run named {paths.stem!r} with its plan in {paths.directory}")
    plan = PlanFiles.open(found.paths, found.shards, lambda _: 0)
    at_end(plan.close)
    index = read_index(found.paths)
    return Additions(index, zeros_of(index, plan, policy))


def _of_shards(files: list[Path], policy: Policy, at_end: Callable[..., object]) -> tuple[RecordIndex, Additions]:
    """The results of all shards, one for each server, task and rollout, with the zeros of each."""
    shards = [RunPaths(path.parent, path.stem, is_single=True) for path in files]
    parts = [part for paths in shards for part in record_files(paths).parts]
    results = RecordIndex.read(files, (), parts, separates_servers=True)
    settled = {(entry.origin, entry.task, entry.rollout) for entry in results}
    zeros = {}
    for paths in shards:
        if not paths.shard(0).materialized.exists():
            continue
        plan = PlanFiles.open(paths, 1, lambda _: 0)
        at_end(plan.close)
        for zero in zeros_of(RecordIndex.read(*record_files(paths)), plan, policy):
            if (zero.origin, *zero.key) not in settled:
                zeros[zero.origin, zero.key] = zero
    return results, Additions(results, zeros.values())

"""From settings and rows to a run that a driver can open: begins one in an empty place, or continues the one there."""

import asyncio
import logging
import secrets
import shlex
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from gym_ray.actors.routes import agent_servers
from gym_ray.actors.spec import DEFAULT_MAX_ATTEMPTS, Resume, RunSpec
from gym_ray.aggregation.policy import Policy
from gym_ray.config import SHAPING_SETTINGS, RolloutCollectionConfig
from gym_ray.continuing import check_configuration, check_plan, extend_plan, identity_as_before, identity_of
from gym_ray.deployment.lookup import Deployment
from gym_ray.deployment.secrets import mask_secrets
from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.planning.arriving import feed
from gym_ray.planning.in_memory import PlanCollector
from gym_ray.planning.planner import PlanSummary
from gym_ray.planning.settings import load_shaping, max_rollout_attempts, seconds_to
from gym_ray.planning.shaping import Shaping
from gym_ray.planning.writing import PlanWriter
from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.folder_token import remove_token, write_token
from gym_ray.recording.found import FoundRun, find_run
from gym_ray.recording.manifest import Identity, write_manifests
from gym_ray.recording.run_files import is_unfinished_plan, make_room, record_files
from gym_ray.recording.run_lock import RunLock
from gym_ray.rows.memory import Dataset, rows_of, rows_of_async
from gym_ray.rows.reading import read_rows

logger = logging.getLogger("gym_ray.run")

_PATH_SETTINGS = {"input_jsonl_fpath", "output_jsonl_fpath", "prompt_config", "deployment"}
_ONE_TIME_SETTINGS = {"fresh", "resume_from_cache", "extend", "only"}

Rows = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]] | Dataset


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to be opened; its plan is on disk, or in `lines`."""

    spec: RunSpec
    lines: list[bytes]
    warnings: tuple[str, ...]
    begins: bool = False
    """True if its plan was written just now."""


async def prepare(config: RolloutCollectionConfig, deployment: Deployment, rows: Rows | None) -> Prepared:
    """Plan `rows`, or the input that the settings name. Nothing on disk changes unless the whole plan is valid.

    Raises:
        InputError, RoutingError, ConfigError: the plan is not valid; every problem is listed.
        RunFolderError: the output folder holds a run that the settings neither continue nor move aside.
        ResumeRefusedError: the run there is another one.
    """
    if rows is None and config.input_jsonl_fpath is None:
        raise ConfigError("input_jsonl_fpath: no rows to run: name a file of rows (--input), or pass rows")
    preparation = _Preparation(config, deployment, rows, await asyncio.to_thread(load_shaping, config))
    if config.output_jsonl_fpath is None:
        return await preparation.in_memory()
    paths = RunPaths.of_output(config.output_jsonl_fpath)
    _refuse_own_records(config, paths)
    found = find_run(paths) if config.resume_from_cache else None
    if config.extend and (found is None or found.is_foreign):
        raise ConfigError(f"extend: {paths.directory} holds no run named {paths.stem!r} that gym_ray has made")
    return await (preparation.begun(paths) if found is None else preparation.continued(found))


def _absolute(name: str | list[str]) -> str | list[str]:
    """Good from every folder; a URI is that already."""
    if isinstance(name, list):
        return [str(_absolute(each)) for each in name]
    return name if "://" in name else str(Path(name).expanduser().absolute())


def _refuse_own_records(config: RolloutCollectionConfig, paths: RunPaths) -> None:
    """Refuse an input that is a record file of the output, to which records would be appended.

    Raises:
        ConfigError: names it.
    """
    inputs = config.input_jsonl_fpath
    for name in [inputs] if isinstance(inputs, str) else inputs or ():
        path = Path(name).expanduser().absolute()
        if path == paths.merged or path in record_files(paths).journals:
            raise ConfigError(f"input_jsonl_fpath: {name} is where the records go: choose another --output")


def policy_of(config: RolloutCollectionConfig) -> Policy:
    """What the settings say about failures and gaps."""
    return Policy(
        zero_classes=tuple(config.count_failure_classes_as_zero),
        missing_as_zero=config.count_missing_rollouts_as_zero,
        require_complete=config.require_complete,
        min_coverage=config.min_coverage,
    )


@contextmanager
def visible_folder(spec: RunSpec) -> Iterator[RunSpec]:
    """Leave a token in the folder of a run for the time of the block, by which its driver knows the folder again."""
    if spec.paths is None:
        yield spec
        return
    token = write_token(spec.paths)
    try:
        yield replace(spec, folder_token=token)
    finally:
        remove_token(spec.paths, token)


@dataclass(frozen=True, slots=True)
class _Preparation:
    config: RolloutCollectionConfig
    deployment: Deployment
    rows: Rows | None
    shaping: Shaping

    async def in_memory(self) -> Prepared:
        if self.config.resume_from_cache:
            raise ConfigError("output_jsonl_fpath: name the run to continue (--output)")
        collector = PlanCollector(self.shaping, self.deployment)
        await self._extend(collector)
        lines, summary = await asyncio.to_thread(collector.finish)
        return Prepared(self._spec(), lines, summary.warnings)

    async def begun(self, paths: RunPaths) -> Prepared:
        if self.config.resume_from_cache:
            logger.warning("%s: there is no run to continue, so one begins", paths.directory)
        archives = self.config.fresh or (self.config.resume_from_cache and is_unfinished_plan(paths))
        if not archives:
            make_room(paths, archive=False, now=datetime.now(UTC))  # refuse before a long plan is made
        spec = self._spec(paths=paths)

        def announce(summary: PlanSummary, plans: list[Path]) -> None:
            write_manifests(
                paths,
                run_id=spec.run_id,
                shards=spec.record_shards,
                created_at=f"{datetime.now(UTC):%FT%TZ}",
                identity=self._identity(summary),
                max_rollout_attempts=spec.max_attempts,
                plans=plans,
            )

        with PlanWriter(self.shaping, self.deployment, paths, self.config.shards) as writer:
            await self._extend(writer)
            make = partial(self._move_aside, paths, archives=archives)
            summary = await asyncio.to_thread(writer.publish, make, announce)
        command = await asyncio.to_thread(self._write_settings, paths)
        spec = replace(spec, identity=self._identity(summary), resume_command=command)
        return Prepared(spec, [], summary.warnings, begins=True)

    async def continued(self, found: FoundRun) -> Prepared:
        """The plan is made again to know that it is the one in the folder; another collector's is taken as it is."""
        manifest = found.manifest
        summary = None
        if found.damage:
            raise RunFolderError(f"{found.damage[0]}: `gym-ray recover` mends it; nothing was sent")
        if self._is_own_plan(found):
            identity = identity_as_before(found, self.deployment)
        elif found.is_foreign:
            logger.warning("%s: another program has made this plan; it is taken as it is", found.paths.directory)
            identity = identity_as_before(found, self.deployment)
        else:
            summary = await self._compared(found)
            identity = self._identity(summary)
        check_configuration(found, identity)
        only = self.config.only
        spec = self._spec(
            paths=found.paths,
            record_shards=found.shards,
            identity=identity,
            resume=Resume(None if only is None else tuple(only), self.config.dispatch_longest_first),
            resume_command=await asyncio.to_thread(self._write_settings, found.paths),
        )
        if manifest is not None:
            attempts = self._max_attempts or manifest.max_rollout_attempts
            spec = replace(spec, run_id=manifest.run_id, max_attempts=attempts)
        return Prepared(spec, [], () if summary is None else summary.warnings)

    def _write_settings(self, paths: RunPaths) -> str | None:
        """Keep the settings beside the run, without credentials; returns the command that continues it with them."""
        settings = self.config.model_dump(mode="json", exclude_defaults=True, exclude=_ONE_TIME_SETTINGS)
        settings |= {name: _absolute(settings[name]) for name in _PATH_SETTINGS & settings.keys()}
        text = yaml.safe_dump(mask_secrets(settings), sort_keys=False, allow_unicode=True)
        write_atomically(paths.resolved_config, [text.encode()])
        if self.rows is not None:
            return None  # the rows are in a program
        return f"gym-ray run --config {shlex.quote(str(paths.resolved_config))} --resume"

    def _is_own_plan(self, found: FoundRun) -> bool:
        """True if the input is the plan in the folder itself; then it is taken as it is.

        Raises:
            ConfigError: with settings that would make another plan of it.
        """
        inputs = self.config.input_jsonl_fpath
        paths = [inputs] if isinstance(inputs, str) else inputs or []
        own = [found.paths.shard(shard).materialized for shard in range(found.shards)]
        if self.rows is not None or [Path(path).absolute() for path in paths] != own:
            return False
        shaping = self.config.model_dump(include=set(SHAPING_SETTINGS), exclude_defaults=True)
        if shaping:
            raise ConfigError(
                f"the input is the plan of the run itself and is run as it is: leave out {sorted(shaping)}"
            )
        return True

    async def _compared(self, found: FoundRun) -> PlanSummary:
        """Plan anew; the result is the plan in the folder, extends it, or becomes it where there is none."""
        with PlanWriter(self.shaping, self.deployment, found.paths, found.shards) as writer:
            await self._extend(writer)
            if not found.has_plan:
                return await asyncio.to_thread(writer.publish)
            summary, drafts = await asyncio.to_thread(writer.drafted)
            if self.config.extend:
                await asyncio.to_thread(self._extend_plan, found, drafts)
            else:
                await asyncio.to_thread(check_plan, found, drafts, self._identity(summary))
        return summary

    def _extend_plan(self, found: FoundRun, drafts: list[Path]) -> None:
        lock = RunLock(found.paths, "that extends")
        try:
            added = extend_plan(found, drafts)
        finally:
            lock.release()
        logger.warning("%s: the plan has %d rollouts more", found.paths.directory, added)

    @property
    def _max_attempts(self) -> int | None:
        """What the settings or the environment say now."""
        return self.config.max_rollout_attempts or max_rollout_attempts()

    def _budget_s(self) -> float | None:
        """The time in which rollouts may start, by the budget and by the deadline."""
        limits = [self.config.dispatch_budget_s]
        if self.config.deadline is not None:
            limits.append(seconds_to(self.config.deadline, self.config.grace_s))
        return min((limit for limit in limits if limit is not None), default=None)

    def _identity(self, summary: PlanSummary) -> Identity:
        return identity_of(self.config, self.deployment, summary)

    def _spec(self, **fields: Any) -> RunSpec:
        config = self.config
        spec = RunSpec(
            run_id=secrets.token_hex(4),
            agent_servers=agent_servers(self.deployment),
            record_shards=config.shards,
            max_attempts=self._max_attempts or DEFAULT_MAX_ATTEMPTS,
            policy=policy_of(config),
            enrichment=("move", False),
            checks_quality=not config.disable_health_check,
            record_format=config.record_format,
            part_bytes=config.part_bytes,
            merge=config.merges,
            aggregate=not config.disable_aggregation,
            aggregate_timeout_s=config.aggregate_timeout_s,
            retry_requests=config.retry_requests,
            rollout_timeout_s=config.rollout_timeout_s,
            dispatch_budget_s=self._budget_s(),
            drain_margin_s=config.drain_margin_s,
            token_budget=config.token_budget,
            server_patience_s=config.server_patience_s,
            stall_factor=config.stall_factor,
            on_stall=config.on_stall,
        )
        return replace(spec, **fields)

    async def _extend(self, plan: PlanWriter | PlanCollector) -> None:
        if isinstance(self.rows, AsyncIterable):
            await feed(plan, rows_of_async(self.rows), self.shaping)
            return
        source = read_rows(self.config.input_jsonl_fpath or ()) if self.rows is None else rows_of(self.rows)
        limit = self.shaping.limit or None
        planning = asyncio.ensure_future(asyncio.to_thread(lambda: plan.extend(islice(plan.drawn_from(source), limit))))
        try:
            await asyncio.shield(planning)
        except asyncio.CancelledError:
            plan.give_up()
            await asyncio.gather(planning, return_exceptions=True)  # its files are removed after it
            raise

    def _move_aside(self, paths: RunPaths, *, archives: bool) -> None:
        lock = RunLock(paths, "that archives")  # a run that goes on keeps its files
        try:
            archived = make_room(paths, archive=archives, now=datetime.now(UTC))
        finally:
            lock.release()
        if archived is not None:
            logger.warning("the files of an earlier run were moved to %s", archived)

"""The composition root: what programs call. `RolloutRunner` for asyncio, `run` and `aggregate` for everybody else."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from gym_ray import event_loop
from gym_ray.actors.backend import DriverHandle, open_run
from gym_ray.actors.run import Phase, RunView
from gym_ray.actors.spec import MISSING, DriverSpec, Resume, RunSpec, ShardSpec
from gym_ray.config import RolloutCollectionConfig
from gym_ray.delivered import Delivered
from gym_ray.deployment.merged import Deployment, load_deployment
from gym_ray.deployment.model_servers import model_server_urls
from gym_ray.drivers import WarmDrivers
from gym_ray.errors import ClusterError, ConfigError, DriverLostError, IncompleteRunError
from gym_ray.observe.report import RunReport
from gym_ray.observe.tally import Progress
from gym_ray.preparing import Rows, prepare, visible_folder
from gym_ray.recording.run_files import withdraw_plan

logger = logging.getLogger("gym_ray.run")

Row = dict[str, Any]
Result = dict[str, Any]

BATCH_ITEMS = 256
"""Most outcomes that one call fetches from the driver."""
MAX_DRIVER_RESTARTS = 3
"""Of one run; a fourth driver would most likely die of the same cause."""
WAIT_S = 10.0
"""How long a call to the driver may wait for news before it is repeated."""


@dataclass(eq=False, slots=True)
class _Wish:
    """What was asked of a run, wherever it is: still planned, with a driver, or on its way to another one."""

    drains: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A run that a driver has."""

    driver: DriverHandle
    spec: RunSpec
    lines: list[bytes]
    """Its plan, if that is not on disk."""
    log_start: int = 0
    """Where in the log of attempts this invocation begins."""
    restarts: int = 0
    """Drivers that it has lost."""
    wish: _Wish = field(default_factory=_Wish)


class RolloutRunner:
    """Runs rollouts against one deployment; keeps its driver and shards warm from run to run.

    Use it as an async context manager: leaving it cancels what is in flight and ends the actors that it started.

        async with RolloutRunner(config) as runner:
            async for row, result in runner.run(rows):
                ...
    """

    def __init__(self, config: RolloutCollectionConfig, *, deployment: Deployment | None = None) -> None:
        """Nothing is read or started before it is entered.

        Args:
            deployment: what serves, as `load_deployment` returns it; default: what `config` names.
        """
        self.config = config
        self._deployment = deployment
        self._drivers = WarmDrivers(config.executor, config.ray_address)
        self._is_closed = False
        self._open_runs: dict[str, Opened] = {}
        self._opening: set[_Wish] = set()
        """Those of runs that no driver has."""
        self._shards = self._spawned_shards = config.shards

    async def __aenter__(self) -> Self:
        """Read the deployment's config. The driver starts with the first run.

        Raises:
            DeploymentUnreachableError: the head server does not answer.
            ConfigError: its config cannot be used.
        """
        self._is_closed = False
        if self._deployment is None:
            self._deployment = await asyncio.to_thread(
                load_deployment, head=self.config.head, file=self.config.deployment
            )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._is_closed = True
        await self._drivers.aclose()

    async def run(self, rows: Rows | None = None) -> AsyncGenerator[tuple[Row, Result], None]:
        """Yield `(row, result)` for every rollout as it ends, in completion order.

        `rows` are input rows as they stand in a file: an iterable, an async iterable, or a Ray Dataset. They are
        repeated, routed and stamped as the config says, and not changed. Without them `config.input_jsonl_fpath` is
        read. `row` is the materialized copy. `result` is the record: the server's reply with the identity stamps, or a
        failure with `_ng_failure_class`. With `config.output_jsonl_fpath` each is on disk before it is yielded.

        Ending the iteration early (`aclose()` of the generator) cancels what is in flight.

        Raises:
            InputError, RoutingError, ConfigError: the plan is not valid; nothing was sent.
            ClusterError: Ray cannot run it.
            RecordingError: records cannot be written.
            IncompleteRunError: somebody else has stopped the run, as `gym-ray stop` does; what came was yielded.
        """
        opened = await self._open(rows, deliver=True)
        delivered = Delivered()
        while True:
            try:
                async with contextlib.aclosing(self._outcomes(opened, delivered)) as outcomes:
                    async for line, record in outcomes:
                        yield _decode(line), _decode(record)
                return
            except DriverLostError as error:
                opened = await self._reopened(opened, error, delivered)

    async def _outcomes(self, opened: Opened, delivered: Delivered) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """The rows and records of an open run as they come, those first that a lost driver did not hand over."""
        driver, run_id, ack = opened.driver, opened.spec.run_id, 0
        try:
            if opened.restarts:
                for line, record in await asyncio.to_thread(delivered.missed, opened.spec, opened.log_start):
                    yield line, record
            while True:
                ack, batch, view = await driver.next(run_id, ack, BATCH_ITEMS, WAIT_S)
                for item in batch:
                    if delivered.is_new(item.line):
                        yield item.line, item.record
                if not batch and _is_over(view):
                    if view.was_stopped and view.progress.owed and not opened.wish.drains:
                        raise IncompleteRunError(f"the run was stopped: {view.progress.owed} rollouts are owed")
                    return
        finally:
            await self._forget(opened)

    async def _forget(self, opened: Opened) -> None:
        self._open_runs.pop(opened.spec.run_id, None)
        try:
            await opened.driver.forget(opened.spec.run_id)
        except ClusterError as error:  # nothing is lost by it: the run is over, or whoever waits is told
            logger.info("%s", error)

    async def collect(
        self, *, on_progress: Callable[[Progress], None] | None = None, every_s: float = 0.25
    ) -> RunReport:
        """Run the whole job of the config: plan, dispatch, record, merge, aggregate. Results stay in the driver.

        Args:
            on_progress: called about every `every_s` seconds with a snapshot.

        Raises: as `run`, and whatever ended the run. A failed aggregation does not raise: it is in the report.
        """
        opened = await self._open(None, deliver=False)
        while True:
            try:
                return await self._report(opened, on_progress, every_s)
            except DriverLostError as error:
                opened = await self._reopened(opened, error, Delivered())

    @property
    def is_running(self) -> bool:
        """True while a run is with the driver."""
        return bool(self._open_runs)

    async def drain(self) -> None:
        """Start nothing more and let what is in flight end; the runs then conclude, what is left stays owed.

        Holds for runs that are still planned, or wait for their shards, too.
        """
        for opening in self._opening:
            opening.drains = True
        for opened in list(self._open_runs.values()):
            await self._drain(opened)

    async def _drain(self, opened: Opened) -> None:
        opened.wish.drains = True
        await opened.driver.drain_run(opened.spec.run_id)

    async def scale(self, shards: int) -> None:
        """Dispatch from so many shard actors from now on, whatever is running; the record files stay as they are.

        New ones are used as soon as the cluster has a place for them; superfluous ones end with what they have in
        flight.

        Raises:
            ValueError: `shards` is below 1.
        """
        if shards < 1:
            raise ValueError(f"shards must be at least 1, found {shards}")
        self._shards = shards
        for driver in self._drivers.held:
            await self._scale(driver)

    async def _scale(self, driver: DriverHandle) -> None:
        self._spawned_shards = self._shards
        await driver.scale(self._shards)

    async def _report(
        self, opened: Opened, on_progress: Callable[[Progress], None] | None, every_s: float
    ) -> RunReport:
        driver, run_id = opened.driver, opened.spec.run_id
        try:
            while True:
                view = await driver.poll(run_id, every_s if on_progress else WAIT_S)
                if on_progress is not None:
                    on_progress(view.progress)
                if _is_over(view) and view.report is not None:
                    return view.report
        finally:
            await self._forget(opened)

    async def _reopened(self, opened: Opened, error: DriverLostError, delivered: Delivered) -> Opened:
        """The run on a new driver, which takes up what the files say.

        Raises:
            DriverLostError: there are no files, or drivers keep dying.
            RuntimeError: it is this runner that has ended it.
        """
        if self._is_closed:
            raise RuntimeError("the runner was closed while this run went on: leave its block when the runs are over")
        await self._drivers.let_go_of(opened.driver)
        if opened.spec.paths is None:
            raise DriverLostError(f"{error}; nothing was recorded: {delivered.unsettled(opened.lines)}")
        if opened.restarts >= MAX_DRIVER_RESTARTS:
            raise DriverLostError(f"{error}; it is the {opened.restarts + 1}th: --resume goes on") from None
        logger.warning("%s; another one takes up the run from its files", error)
        # What has failed in this invocation stays as it is; what it was to try again is tried again
        spec = replace(opened.spec, resume=opened.spec.resume or Resume(only=(MISSING,)))
        self._opening.add(opened.wish)
        try:
            driver = await self._started_driver()
            with visible_folder(replace(spec, is_draining=opened.wish.drains)) as known:
                await open_run(driver, known, [])
        finally:
            self._opening.discard(opened.wish)
        return await self._kept(replace(opened, driver=driver, spec=spec, restarts=opened.restarts + 1))

    async def _open(self, rows: Rows | None, *, deliver: bool) -> Opened:
        """Plan a run, then hand it to the driver; nothing is sent unless the whole plan is valid."""
        wish = _Wish()
        self._opening.add(wish)
        try:
            opened = await self._planned(rows, wish, deliver=deliver)
        finally:
            self._opening.discard(wish)
        return await self._kept(opened)

    async def _kept(self, opened: Opened) -> Opened:
        """The run, now with a driver that is told what was asked of it before."""
        self._open_runs[opened.spec.run_id] = opened
        if opened.wish.drains:
            await self._drain(opened)
        return opened

    async def _planned(self, rows: Rows | None, wish: _Wish, *, deliver: bool) -> Opened:
        config, deployment = self.config, self._entered_deployment
        prepared = await prepare(config, deployment, rows)
        for warning in prepared.warnings:
            logger.warning("%s", warning)
        spec = replace(prepared.spec, deliver=deliver)
        try:
            driver = await self._started_driver()
        except BaseException:
            if prepared.begins and spec.paths is not None:
                withdraw_plan(spec.paths)  # nothing has run, and the corrected command shall find an empty place
            raise
        log = spec.paths.attempts if spec.paths is not None else None
        log_start = log.stat().st_size if log is not None and log.exists() else 0
        try:
            with visible_folder(replace(spec, is_draining=wish.drains)) as known:
                await open_run(driver, known, prepared.lines)
        except DriverLostError:
            await self._drivers.let_go_of(driver)
            raise
        return Opened(driver, spec, prepared.lines, log_start, wish=wish)

    async def _started_driver(self) -> DriverHandle:
        if self._is_closed:
            raise RuntimeError("this runner is closed")
        driver = await self._drivers.get("", self._driver_spec)
        if self._spawned_shards != self._shards:  # somebody wished for others while it started
            await self._scale(driver)
        return driver

    def _driver_spec(self) -> DriverSpec:
        config, deployment = self.config, self._entered_deployment
        self._spawned_shards = self._shards
        processes = 1 if config.executor == "local" else self._shards
        shard = ShardSpec(
            capture_dir=deployment.model_call_capture_dir,
            servers=tuple(deployment.environment_servers.values()),
            retry_budget_s=config.retry_budget_s,
            max_connections=-(-config.cap // processes),
            wanted_connections=config.cap,
        )
        return DriverSpec(
            shard=shard,
            shards=self._shards,
            cap=config.cap,
            server_caps=_server_caps(config, deployment),
            model_urls=model_server_urls(deployment.config),
        )

    @property
    def _entered_deployment(self) -> Deployment:
        if self._deployment is None:
            raise RuntimeError("use RolloutRunner as a context manager: `async with RolloutRunner(config) as runner:`")
        return self._deployment


def run(config: RolloutCollectionConfig) -> RunReport:
    """Run the whole job of a config and wait for it, without an event loop of your own.

    Raises: as `RolloutRunner` when it is entered, and as its `collect`.
    """

    async def main() -> RunReport:
        async with RolloutRunner(config) as runner:
            return await runner.collect()

    return event_loop.run(main())


def _server_caps(config: RolloutCollectionConfig, deployment: Deployment) -> dict[str, int]:
    """The most rollouts in flight at each server that has a limit.

    Raises:
        ConfigError: a limit is for a server that the deployment does not have.
    """
    limits = config.max_in_flight_per_server
    if not isinstance(limits, dict):
        limits = {} if limits is None else {"_default": limits}
    servers = deployment.environment_servers
    if unknown := sorted(limits.keys() - servers.keys() - {"_default"}):
        raise ConfigError(
            f"max_in_flight_per_server: no environment server {', '.join(unknown)}; "
            f"there are {', '.join(sorted(servers))}"
        )
    default = limits.get("_default")
    caps = {name: limits.get(name, default) for name in servers}
    return {name: cap for name, cap in caps.items() if cap is not None}


def _is_over(view: RunView) -> bool:
    if view.error is not None:
        raise view.error
    return view.phase is Phase.DONE


def _decode(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except msgspec.MsgspecError:  # numbers beyond a double, lone surrogates: legal JSON that only the slow parser takes
        value = json.loads(line)
    assert isinstance(value, dict)
    return value

"""The composition root: what programs call. `RolloutRunner` for asyncio, `run` and `aggregate` for everybody else."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

import msgspec

from gym_ray.actors.backend import DriverHandle, started_driver
from gym_ray.actors.run import Phase, RunView
from gym_ray.actors.spec import DriverSpec, ShardSpec
from gym_ray.config import RolloutCollectionConfig
from gym_ray.deployment.merged import Deployment, load_deployment
from gym_ray.deployment.model_servers import model_server_urls
from gym_ray.observe.report import RunReport
from gym_ray.observe.tally import Progress
from gym_ray.preparing import Rows, prepare, visible_folder

logger = logging.getLogger("gym_ray.run")

Row = dict[str, Any]
Result = dict[str, Any]

BATCH_ITEMS = 256
"""Most outcomes that one call fetches from the driver."""
WAIT_S = 10.0
"""How long a call to the driver may wait for news before it is repeated."""


class RolloutRunner:
    """Runs rollouts against one deployment; keeps its driver and shards warm from run to run.

    Use it as an async context manager: leaving it cancels what is in flight and ends the actors that it started.

        async with RolloutRunner(config) as runner:
            async for row, result in runner.run(rows):
                ...
    """

    def __init__(self, config: RolloutCollectionConfig, *, deployment: Deployment | None = None) -> None:
        self.config = config
        self._deployment = deployment
        self._driver: DriverHandle | None = None
        self._starting = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Read the deployment's config. The driver starts with the first run.

        Raises:
            DeploymentUnreachableError: the head server does not answer.
            ConfigError: its config cannot be used.
        """
        if self._deployment is None:
            self._deployment = await asyncio.to_thread(
                load_deployment, head=self.config.head, file=self.config.deployment
            )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()
        self._driver = None

    async def run(self, rows: Rows | None = None) -> AsyncIterator[tuple[Row, Result]]:
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
        """
        run_id = await self._open(rows, deliver=True)
        driver, ack = await self._started_driver(), 0
        try:
            while True:
                ack, batch, view = await driver.next(run_id, ack, BATCH_ITEMS, WAIT_S)
                for item in batch:
                    yield _decode(item.line), _decode(item.record)
                if not batch and _is_over(view):
                    return
        finally:
            await driver.forget(run_id)

    async def collect(
        self, *, on_progress: Callable[[Progress], None] | None = None, every_s: float = 0.25
    ) -> RunReport:
        """Run the whole job of the config: plan, dispatch, record, merge, aggregate. Results stay in the driver.

        Args:
            on_progress: called about every `every_s` seconds with a snapshot.

        Raises: as `run`, and whatever ended the run. A failed aggregation does not raise: it is in the report.
        """
        run_id = await self._open(None, deliver=False)
        driver = await self._started_driver()
        try:
            while True:
                view = await driver.poll(run_id, every_s if on_progress else WAIT_S)
                if on_progress is not None:
                    on_progress(view.progress)
                if _is_over(view) and view.report is not None:
                    return view.report
        finally:
            await driver.forget(run_id)

    async def _open(self, rows: Rows | None, *, deliver: bool) -> str:
        """Plan a run, then hand it to the driver; nothing is sent unless the whole plan is valid."""
        config, deployment = self.config, self._entered_deployment
        prepared = await prepare(config, deployment, rows)
        for warning in prepared.warnings:
            logger.warning("%s", warning)
        spec = replace(prepared.spec, deliver=deliver)
        driver = await self._started_driver()
        with visible_folder(spec) as known:
            await driver.open_run(known, prepared.lines)
        return spec.run_id

    async def _started_driver(self) -> DriverHandle:
        async with self._starting:
            if self._driver is None:
                config = self.config
                shard = ShardSpec(
                    capture_dir=self._entered_deployment.model_call_capture_dir,
                    servers=tuple(self._entered_deployment.environment_servers.values()),
                    retry_budget_s=config.retry_budget_s,
                    max_connections=config.cap if config.executor == "local" else -(-config.cap // config.shards),
                )
                models = model_server_urls(self._entered_deployment.config)
                spec = DriverSpec(shard=shard, shards=config.shards, cap=config.cap, model_urls=models)
                self._driver = await self._stack.enter_async_context(
                    started_driver(spec, config.executor, config.ray_address)
                )
            return self._driver

    @property
    def _entered_deployment(self) -> Deployment:
        if self._deployment is None:
            raise RuntimeError("use RolloutRunner as a context manager: `async with RolloutRunner(config) as runner:`")
        return self._deployment


def run(config: RolloutCollectionConfig) -> RunReport:
    """Run the whole job of a config and wait for it; see `RolloutRunner.collect`."""

    async def main() -> RunReport:
        async with RolloutRunner(config) as runner:
            return await runner.collect()

    return asyncio.run(main())


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

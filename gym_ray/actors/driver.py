"""The driver: begins and ends runs for their callers, over shards that it starts and keeps.

Invariants: every planned rollout is owed, leased or ended; a run ends once, whatever ends it, and its caller is told.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from gym_ray.actors.conclude import conclude
from gym_ray.actors.dispatcher import Dispatcher
from gym_ray.actors.gates import ServerGates
from gym_ray.actors.opening import open_run
from gym_ray.actors.pool import ShardPool, Spawn
from gym_ray.actors.run import Phase, Run, RunView
from gym_ray.actors.spec import DriverSpec, RunSpec
from gym_ray.actors.upkeep import Nodes, Upkeep
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.ledger import State
from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.load import sample_load
from gym_ray.errors import DriverLostError, RunFolderError
from gym_ray.observe.tally import InFlight

logger = logging.getLogger("gym_ray.driver")

LET_GO_S = 30.0
"""So long a run that is given up waits for its last lease; a shard that does not answer is dead long before."""
SAMPLE_EVERY_S = 30.0
"""Between looks at how busy the servers of a run are. Source: protocol §1.8."""
MAX_STRAGGLERS = 5
"""Rollouts in flight that are named while a run waits for its last ones."""


class Driver:
    """Runs any number of runs over one set of shards. `start` it inside a running loop; `aclose` it."""

    def __init__(
        self,
        spec: DriverSpec,
        spawn: Spawn,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_time: Callable[[], float] = time.time,
        draining_nodes: Nodes | None = None,
    ) -> None:
        self._spec = spec
        self._servers = spec.shard.servers
        self._shards = spec.shards
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._files = ThreadPoolExecutor(1, thread_name_prefix="gym_ray-files")
        self._client = EnvironmentClient(retry_requests=True)
        gates = ServerGates(self._servers, spec.cap, spec.server_caps)
        dispatcher = Dispatcher(self._runs, self._servers, gates, self, self._in_thread, clock, wall_time)
        self._pool = ShardPool(spawn, spec.cap, dispatcher, clock)
        self._upkeep = Upkeep(self._runs, self._pool, gates, dispatcher, self, self._in_thread, clock, draining_nodes)

    # Called by the owner

    async def start(self) -> None:
        """Start the shards and begin to serve them.

        Raises:
            ShardLostError: the shards died while they started.
            ClusterError: the cluster has no place for any of them.
        """
        await self._pool.start(self._shards)

    async def aclose(self) -> None:
        """Cancel everything that runs, tell its callers, close the shards, and let go of the files."""
        self._is_closed = True
        for run in self._runs.values():
            if run.phase not in (Phase.DONE, Phase.FAILED):
                self.fail(run, DriverLostError("the driver was closed while the run went on"))
            run.lease_ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.aclose()
        for run in list(self._runs.values()):
            await self._drop(run)
        await self._client.aclose()
        self._files.shutdown()

    async def scale(self, shards: int) -> None:
        """Have so many shards: more are started, superfluous ones end with what they have in flight."""
        self._shards = shards
        if not self._pool.is_abandoned:
            self._pool.scale(shards)

    # Called by the caller of a run

    async def open_run(self, spec: RunSpec, lines: Iterable[bytes] | None = None) -> int:
        """Begin a run from its files, or from rows in memory; returns how many rollouts it has.

        Raises:
            RoutingError: a row names no server that this driver knows.
            RunFolderError, RecordingError: the files cannot be used, or the run is open already.
            DriverLostError: the driver is closed.
        """
        if self._is_closed:
            raise DriverLostError("the driver is closed")
        if self._pool.is_abandoned:  # every shard has died in an earlier run
            await self.start()
        servers = self._servers
        if spec.paths is None:
            held = open_run(spec, servers, lines)  # touches no disk, and a thread would cost a training step a hop
        else:
            held = await self._in_thread(open_run, spec, servers, lines)
        try:
            run = Run(spec, held, servers, self._spec.cap, self._clock())
            if spec.run_id in self._runs:
                raise RunFolderError(f"run {spec.run_id} is open already")
        except BaseException:
            await self._in_thread(held.close)
            raise
        self._runs[spec.run_id] = run
        try:
            await self._upkeep.publish(run)
        except BaseException:
            await self.forget(spec.run_id)
            raise
        self.consider(run)
        self._pool.wake()
        if not self._upkeep.is_running:
            self._own(self._upkeep.run)
        if run.timing is not None:
            self._own(self._sample_load, run)
        return len(run.plan)

    async def feed(self, run_id: str, lines: Iterable[bytes], *, is_last: bool) -> None:
        """Give an open-ended run more rows; with `is_last` there are no more.

        Raises:
            RoutingError: a row names no server that this driver knows.
        """
        run = self._runs[run_id]
        run.feed(lines)
        run.is_sealed = is_last
        self.consider(run)
        self._pool.wake()

    async def release(self, run_id: str, rollouts: Iterable[tuple[int, int]], *, is_last: bool) -> None:
        """Let rollouts of an open-ended run with files start, in this order, given as (number, least attempt); with
        `is_last` there are no more."""
        run = self._runs[run_id]
        run.ledger.release(rollouts)
        run.is_sealed = is_last
        self.consider(run)
        self._pool.wake()

    async def next(
        self, run_id: str, ack: int, max_items: int, wait_s: float
    ) -> tuple[int, tuple[Delivery, ...], RunView]:
        """The next outcomes of a run that delivers; waits up to `wait_s` for one. Repeatable until acknowledged."""
        run = self._runs[run_id]
        was_full = run.deliveries.is_full
        seq, batch = run.deliveries.take(ack, max_items)
        if was_full and not run.deliveries.is_full:
            self._pool.wake()
        if not batch and run.phase not in (Phase.DONE, Phase.FAILED):
            await self._wait(run, wait_s)
            seq, batch = run.deliveries.take(ack, max_items)
        return seq, batch, self._view(run)

    async def poll(self, run_id: str, wait_s: float) -> RunView:
        """How a run stands; returns early when its phase changes."""
        run = self._runs[run_id]
        if run.phase not in (Phase.DONE, Phase.FAILED):
            await self._wait(run, wait_s)
        return self._view(run)

    async def stop_run(self, run_id: str) -> None:
        """Start nothing more of a run and cancel what is in flight; what is owed stays owed."""
        run = self._runs[run_id]
        self._cancel(run)
        self.consider(run)

    async def drain_run(self, run_id: str) -> None:
        """Start nothing more of a run and let what is in flight end; what is owed stays owed."""
        run = self._runs.get(run_id)
        if run is None:
            return
        run.is_draining = True
        self._pool.drain_run(run_id)
        self.consider(run)

    async def forget(self, run_id: str) -> None:
        """Cancel what is in flight of a run, write what that leaves, and close its files; it is over then.

        Goes on if whoever waits for it is cancelled: its number in a shard must not outlive it.
        """
        run = self._runs.get(run_id)
        if run is None:
            return
        if run.forgetting is None:
            run.forgetting = self._track(self._forget(run))
        await asyncio.shield(run.forgetting)

    async def _forget(self, run: Run) -> None:
        self._cancel(run)
        if run.concluding is not None:
            run.concluding.cancel()
            await asyncio.wait({run.concluding})
        try:
            async with asyncio.timeout(LET_GO_S):
                while run.ledger.count(State.LEASED) and not self._is_closed:
                    run.lease_ended.clear()
                    await run.lease_ended.wait()
        except TimeoutError:
            logger.error("run %s: %d rollouts are still leased", run.spec.run_id, run.ledger.count(State.LEASED))
        if run.phase is not Phase.DONE:
            run.is_given_up = True
            await self._publish_end(run)  # of one that failed again, with what has come since
        await self._drop(run)

    async def _drop(self, run: Run) -> None:
        if self._runs.pop(run.spec.run_id, None) is not None:
            self._pool.forget_run(run.spec.run_id)
            await self._in_thread(run.held.close)

    # Ending a run; see `dispatcher.Ends`

    def consider(self, run: Run) -> None:
        """Conclude a run if nothing of it is left to do."""
        run.lease_ended.set()
        if run.phase is Phase.DISPATCHING and run.is_dispatched and run.forgetting is None:
            run.enter(Phase.MERGING)
            run.concluding = self._own(self._conclude, run)

    async def _conclude(self, run: Run) -> None:
        try:
            run.report = await conclude(run, self._servers, self._client, self._in_thread, self._clock)
            await self._upkeep.publish(run)
            await self._in_thread(run.held.close)
            run.enter(Phase.DONE)
        except Exception as error:  # noqa: BLE001 - it is told to the caller of the run
            self.fail(run, error)

    def fail(self, run: Run, error: BaseException) -> None:
        """End a run that cannot go on."""
        logger.error("run %s fails: %s", run.spec.run_id, error)
        run.error = error
        self._cancel(run)
        run.enter(Phase.FAILED)
        self._own(self._publish_end, run)

    async def _publish_end(self, run: Run) -> None:
        try:
            await self._upkeep.publish(run)
        except Exception as error:  # noqa: BLE001 - the run ends anyhow, and this may well be why
            logger.warning("the status of run %s cannot be written: %s", run.spec.run_id, error)

    def _cancel(self, run: Run) -> None:
        """Lease nothing more of a run, and have the shards that hold some of it let go."""
        run.is_stopped = True
        self._pool.cancel_run(run.spec.run_id)

    # Plumbing

    def _view(self, run: Run) -> RunView:
        now = self._clock()
        view = run.view(now)
        if view.progress.owed != run.ledger.count(State.LEASED):
            return view  # something is left to start, so nobody waits for a straggler yet
        held = sorted((lease.at, number, lease.attempt) for number, lease in self._pool.leases(run.spec.run_id))
        oldest = tuple(
            InFlight(*run.plan.key(number), attempt, run.server_name(number), now - leased_at)
            for leased_at, number, attempt in held[:MAX_STRAGGLERS]
        )
        return replace(view, progress=replace(view.progress, oldest=oldest))

    async def _sample_load(self, run: Run) -> None:
        """Look at the servers of a run now and then, as long as it dispatches."""
        urls = tuple(server.base_url for server in self._servers)
        while run.phase is Phase.DISPATCHING and not run.is_stopped and run.timing is not None:
            sample = await sample_load(self._client.get, urls, self._spec.model_urls)
            run.timing.add_load(None if sample is None else (sample.waiting, sample.running))
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def _wait(self, run: Run, wait_s: float) -> None:
        run.changed.clear()
        try:
            async with asyncio.timeout(wait_s):
                await run.changed.wait()
        except TimeoutError:
            return

    def _own(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> asyncio.Task[None]:
        return self._track(self._guard(work, *args))

    def _track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        try:
            await work(*args)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            logger.exception("the driver failed")
            for run in self._runs.values():
                self.fail(run, error)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._files, function, *args)

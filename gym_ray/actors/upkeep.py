"""What a driver does by the clock while runs go on: sync, publish, look for stalls, requests, nodes that go away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol

from gym_ray.actors.dispatcher import Dispatcher, Ends, InThread
from gym_ray.actors.gates import ServerGates
from gym_ray.actors.pool import ShardPool
from gym_ray.actors.run import Phase, Run
from gym_ray.recording.control import Control, take_control
from gym_ray.recording.status import write_status

logger = logging.getLogger("gym_ray.driver")

TICK_S = 1.0
SYNC_EVERY_S = 5.0
"""fsync period: what a power cut can take. A killed process loses nothing, since every batch is written at once."""
NODES_EVERY_S = 5.0
MAX_NAMED = 5
"""Rollouts that are named when a run stands still."""


class Owner(Ends, Protocol):
    """Who obeys what is asked of a run; see `Driver`."""

    async def drain_run(self, run_id: str) -> None: ...

    async def stop_run(self, run_id: str) -> None: ...

    async def scale(self, shards: int) -> None: ...


Nodes = Callable[[], Awaitable[set[str]]]
"""Ids of the cluster nodes that are about to go away."""


class Upkeep:
    """The clockwork of one driver; `run` it while there are runs."""

    def __init__(
        self,
        runs: dict[str, Run],
        pool: ShardPool,
        gates: ServerGates,
        dispatcher: Dispatcher,
        owner: Owner,
        in_thread: InThread,
        clock: Callable[[], float],
        draining_nodes: Nodes | None,
    ) -> None:
        self._runs = runs
        self._pool = pool
        self._gates = gates
        self._dispatcher = dispatcher
        self._owner = owner
        self._in_thread = in_thread
        self._clock = clock
        self._draining_nodes = draining_nodes
        self._nodes_at = clock()
        self._synced: dict[str, tuple[float, int]] = {}
        """When a run was last synced and published, and with how many shards."""
        self.is_running = False

    async def run(self) -> None:
        """Tick until no run is left."""
        self.is_running = True
        try:
            while self._runs:
                await asyncio.sleep(TICK_S)
                await self._tick(self._clock())
        finally:
            self.is_running = False

    async def publish(self, run: Run) -> None:
        """Write how a run stands beside its records."""
        if run.spec.paths is not None:
            await self._in_thread(write_status, run.spec.paths, run.status(self._clock(), len(self._pool)))

    async def _tick(self, now: float) -> None:
        if self._gates.has_held_back:
            self._gates.has_held_back = False
            self._pool.wake()  # what a server could not take a moment ago it may take now
        for run in list(self._runs.values()):
            try:
                await self._look_after(run, now)
            except Exception as error:  # noqa: BLE001 - whatever stops the records ends the run, and is told to its caller
                self._owner.fail(run, error)
        if self._draining_nodes is not None and now - self._nodes_at >= NODES_EVERY_S:
            self._nodes_at = now
            self._pool.leave_nodes(await self._draining_nodes())

    async def _look_after(self, run: Run, now: float) -> None:
        if run.phase is not Phase.DISPATCHING:
            return
        await self._dispatcher.give_up_servers(run)
        await self._watch(run, now)
        if run.spec.paths is not None:
            await self._obey(run, await self._in_thread(take_control, run.spec.paths))
        files, (synced_at, shards) = run.held.files, self._synced.get(run.spec.run_id, (-inf, 0))
        if files is not None and (now - synced_at >= SYNC_EVERY_S or len(self._pool) != shards):
            self._synced[run.spec.run_id] = now, len(self._pool)
            await self._in_thread(files.recorder.sync)
            await self.publish(run)

    async def _obey(self, run: Run, control: Control) -> None:
        """Do what another process has asked for."""
        if control.shards is not None and control.shards >= 1:
            logger.warning("%d shards are asked for", control.shards)
            await self._owner.scale(control.shards)
        if control.stop is not None:
            what = "what is in flight may end" if control.stop == "drain" else "what is in flight is cancelled"
            logger.warning("the run is asked to stop: nothing more starts, %s", what)
            run.notes.append("the run was asked to stop")
            await (self._owner.drain_run if control.stop == "drain" else self._owner.stop_run)(run.spec.run_id)

    async def _watch(self, run: Run, now: float) -> None:
        """Say what a run waits for once nothing has ended for long, and let go of it if that is asked for."""
        held = sorted((lease.at, number, lease) for number, lease in self._pool.leases(run.spec.run_id))
        if not held:
            run.stall.moved(now)
            return
        silence_s = run.stall.silence_s(now, run.tally.p99_s)
        if silence_s is None:
            return
        logger.warning("no rollout has ended for %.0f s; %d are in flight, the oldest:", silence_s, len(held))
        for at, number, lease in held[:MAX_NAMED]:
            task, rollout = run.plan.key(number)
            logger.warning(
                "  task %d, rollout %d, attempt %d on %s for %.0f s",
                task, rollout, lease.attempt, run.server_name(number), now - at,
            )  # fmt: skip
        for line in await self._pool.stacks():
            logger.warning("  %s", line)
        if run.spec.on_stall == "cancel":
            stalled = [number for at, number, _ in held if now - at >= run.stall.limit_s(run.tally.p99_s)]
            run.let_go(stalled, f"they had not ended when nothing had ended for {silence_s:.0f} s")
            self._pool.cancel(run.spec.run_id, stalled)
            run.stall.moved(now)  # what takes their place has a silence of its own

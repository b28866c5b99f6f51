"""Shards that run nothing but a clock, and die on command."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gym_ray.actors.driver import Driver
from gym_ray.actors.link import ShardDied
from gym_ray.actors.run import Phase, RunView
from gym_ray.actors.spec import DriverSpec, RunSpec, ShardSpec
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.exchange import CompletionHeader, ServerSignal, StepAnswer, StepRequest
from gym_ray.dispatch.loop import ShardLoop
from gym_ray.outcomes.outcome import OutcomeKind

SERVER = EnvironmentServer("env", "legacy_agent", "http://127.0.0.1:1", ("agent",), "agent")


def driver_spec(
    *,
    shards: int = 2,
    cap: int = 8,
    servers: tuple[EnvironmentServer, ...] = (SERVER,),
    server_caps: Mapping[str, int] = MappingProxyType({}),
) -> DriverSpec:
    return DriverSpec(ShardSpec(servers, None, cap), shards, cap, server_caps)


def rows(count: int, repeats: int = 1) -> list[bytes]:
    return [
        b'{"agent_ref":{"name":"agent"},"_ng_task_index":%d,"_ng_rollout_index":%d}' % (task, repeat)
        for task in range(count)
        for repeat in range(repeats)
    ]


class World:
    """Every shard that was ever spawned, and every execution that any of them began."""

    def __init__(
        self,
        seconds: Callable[[int], float] = lambda _: 0.001,
        kind: OutcomeKind = OutcomeKind.RESULT,
        tokens: int | None = None,
    ) -> None:
        self.seconds, self.kind, self.tokens = seconds, kind, tokens
        self.shards: list[FakeShard] = []
        self.executions: Counter[int] = Counter()
        self.attempts: dict[int, list[int]] = {}
        self.in_flight = self.peak = 0
        self.refuse_spawn = False
        self.signals: list[ServerSignal] = []
        """What the next answer says of the servers."""
        self.slowness: dict[int, float] = {}
        """How many times longer an attempt takes in the shard of a slot."""

    async def spawn(self, slot: int) -> "FakeShard":
        if self.refuse_spawn:
            raise ShardDied("no room")
        shard = FakeShard(self, slot)
        self.shards.append(shard)
        return shard

    async def execute(self, lease: Lease, slot: int = 0) -> tuple[CompletionHeader, bytes]:
        header = lease.header
        self.executions[header.number] += 1
        self.attempts.setdefault(header.number, []).append(header.attempt)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.seconds(header.number) * self.slowness.get(slot, 1.0))
        finally:
            self.in_flight -= 1
        record = b'{"reward":1.0,"number":%d}\n' % header.number
        failure = "agent_run_error" if self.kind is OutcomeKind.FAILURE else None
        return (
            CompletionHeader(
                header.run, header.number, header.attempt, int(self.kind), len(record), len(record) - 2, 1.0, 1.0,
                False, failure, False, self.tokens, 1,
            ),
            record,
        )  # fmt: skip


class FakeShard:
    """A real `ShardLoop` in this process; `die` makes it behave as a killed actor does."""

    def __init__(self, world: World, slot: int) -> None:
        self.slot = slot
        self._world = world
        self._loop = ShardLoop(self._execute)
        self._dead = asyncio.Event()

    async def step(self, request: StepRequest) -> StepAnswer:
        step = asyncio.ensure_future(self._loop.step(request))
        dead = asyncio.ensure_future(self._dead.wait())
        done, pending = await asyncio.wait({step, dead}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if dead in done:
            raise ShardDied("killed")
        signals, self._world.signals = tuple(self._world.signals), []
        return replace(step.result(), signals=signals)

    async def _execute(self, lease: Lease) -> tuple[CompletionHeader, bytes]:
        return await self._world.execute(lease, self.slot)

    @property
    def node(self) -> str | None:
        return f"node-{self.slot}"

    async def nudge(self) -> None:
        self._loop.nudge()

    async def stacks(self) -> list[str]:
        return self._loop.stacks()

    async def kill(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._dead.set()
        await self._loop.aclose()

    async def die(self) -> None:
        self._dead.set()
        await self._loop.aclose()


def run_of(**options: Any) -> RunSpec:
    return RunSpec(run_id="r", agent_servers={"agent": 0}, **{"aggregate": False} | options)


@asynccontextmanager
async def started(world: World, spec: DriverSpec, **options: Any) -> AsyncIterator[Driver]:
    clock = asyncio.get_running_loop().time
    driver = Driver(spec, world.spawn, clock=clock, **options)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.aclose()


async def ended(driver: Driver) -> RunView:
    while True:
        view = await driver.poll("r", 10.0)
        if view.phase in (Phase.DONE, Phase.FAILED):
            return view


async def makespan(world: World, count: int, *, shards: int, cap: int) -> float:
    """Seconds from opening a run of `count` rollouts to its end."""
    async with started(world, driver_spec(shards=shards, cap=cap)) as driver:
        began = asyncio.get_running_loop().time()
        await driver.open_run(run_of(), rows(count))
        await ended(driver)
        assert sum(world.executions.values()) == count
        return asyncio.get_running_loop().time() - began

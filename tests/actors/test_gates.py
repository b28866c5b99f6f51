"""Environment servers that misbehave, on a virtual clock: the others do not wait for them, and the run ends."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gym_ray.actors.driver import Driver
from gym_ray.actors.run import Phase
from gym_ray.actors.spec import DriverSpec, RunSpec
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.exchange import ServerSignal
from tests.actors.fakes import World, driver_spec
from tests.virtual import run_virtual

SERVERS = tuple(
    EnvironmentServer(name, "legacy_agent", "http://127.0.0.1:1", (name,), name) for name in ("good", "bad")
)
GOOD, BAD = 0, 1


def rows_of(*servers: int) -> list[bytes]:
    return [
        b'{"agent_ref":{"name":"%s"},"_ng_task_index":%d,"_ng_rollout_index":0}' % (SERVERS[server].name.encode(), task)
        for task, server in enumerate(servers)
    ]


class TwoServers(World):
    """What is in flight at each server; `bad_s` is how long the bad one takes."""

    def __init__(self, bad_s: float = 1.0) -> None:
        super().__init__()
        self.bad_s = bad_s
        self.at: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self.ended_at: dict[int, float] = {}
        self.sent = 0

    async def execute(self, lease: Lease, slot: int = 0) -> Any:
        server = lease.header.server
        self.at[server] += 1
        self.most[server] = max(self.most[server], self.at[server])
        self.sent += server == BAD
        self.seconds = lambda _: self.bad_s if server == BAD else 1.0
        try:
            return await super().execute(lease, slot)
        finally:
            self.at[server] -= 1
            self.ended_at[server] = asyncio.get_running_loop().time()


@asynccontextmanager
async def started(world: World, **options: Any) -> AsyncIterator[Driver]:
    spec: DriverSpec = driver_spec(**{"shards": 2, "cap": 8, "servers": SERVERS} | options)
    driver = Driver(spec, world.spawn, clock=asyncio.get_running_loop().time)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.aclose()


def run_of(**options: Any) -> RunSpec:
    return RunSpec(
        run_id="r", agent_servers={"good": GOOD, "bad": BAD}, **{"deliver": True, "aggregate": False} | options
    )


async def everything(driver: Driver) -> list[Delivery]:
    got: list[Delivery] = []
    ack = 0
    while True:
        ack, batch, view = await driver.next("r", ack, 64, 10.0)
        got += batch
        if not batch and view.phase is Phase.DONE:
            return got


def test_a_server_that_hangs_leaves_the_others_their_part() -> None:
    world = TwoServers(bad_s=1000.0)

    async def main() -> None:
        async with started(world) as driver:
            await driver.open_run(run_of(), rows_of(*[BAD] * 100, *[GOOD] * 100))
            while world.executions.total() - world.sent < 100:
                await asyncio.sleep(1.0)
            # 100 rollouts of a second at half of the cap
            assert asyncio.get_running_loop().time() <= 1.3 * 100 / 4 + 1

    run_virtual(main())
    assert world.most[BAD] >= 4


def test_a_server_may_have_a_cap_of_its_own() -> None:
    world = TwoServers()

    async def main() -> None:
        async with started(world, server_caps={"bad": 2}) as driver:
            await driver.open_run(run_of(), rows_of(*[BAD] * 40, *[GOOD] * 40))
            await everything(driver)

    run_virtual(main())
    assert world.most[BAD] == 2
    assert world.most[GOOD] >= 6


def test_rollouts_start_in_plan_order_where_nothing_is_contended() -> None:
    world = TwoServers()

    async def main() -> None:
        async with started(world, shards=1) as driver:
            await driver.open_run(run_of(), rows_of(BAD, BAD, BAD, GOOD, BAD, GOOD))
            await everything(driver)

    run_virtual(main())
    assert list(world.executions) == [0, 1, 2, 3, 4, 5]


def test_one_that_asks_to_be_left_alone_is_and_the_other_is_not() -> None:
    world = TwoServers()

    async def main() -> None:
        async with started(world) as driver:
            await driver.open_run(run_of(), rows_of(*[BAD, GOOD] * 200))
            await asyncio.sleep(5.0)
            world.signals = [ServerSignal(BAD, 0, 0, 3, 20.0, "HTTP 429")]
            await asyncio.sleep(3.0)
            before = world.sent
            await asyncio.sleep(15.0)
            assert world.sent == before
            got = await everything(driver)
            assert len(got) == 400

    run_virtual(main())
    assert world.most[GOOD] == 8
    assert set(world.executions.values()) == {1}


def test_a_server_that_is_gone_is_tried_one_rollout_at_a_time_and_welcomed_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = TwoServers()

    async def main() -> None:
        async with started(world) as driver:
            await driver.open_run(run_of(server_patience_s=600.0), rows_of(*[BAD, GOOD] * 100))
            await asyncio.sleep(5.0)
            before = world.sent
            world.bad_s = 10.0
            for _ in range(10):  # what a shard says while every try is set back
                world.signals = [ServerSignal(BAD, 0, 5, 0, 0.0, "ClientConnectorError: refused")]
                await asyncio.sleep(3.0)
            assert world.sent - before <= 15  # what waited in the shards, and a probe now and then
            world.bad_s = 1.0
            world.signals = [ServerSignal(BAD, 1, 0, 0, 0.0, "")]
            got = await everything(driver)
            assert len(got) == 200

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert "environment server bad does not answer (5 setbacks in a row, the last: ClientConnectorError: refused)" in (
        caplog.text
    )
    assert "environment server bad answers again" in caplog.text


def test_a_server_that_stays_away_costs_its_rollouts_unsent_failures_and_nobody_else() -> None:
    world = TwoServers(bad_s=2.0)

    async def main() -> list[Delivery]:
        async with started(world) as driver:
            await driver.open_run(run_of(server_patience_s=30.0), rows_of(*[BAD, GOOD] * 300))

            async def sets_back() -> None:
                while True:
                    world.signals = [ServerSignal(BAD, 0, 5, 0, 0.0, "refused")]
                    await asyncio.sleep(1.0)

            setting_back = asyncio.ensure_future(sets_back())
            got = await everything(driver)
            setting_back.cancel()
            return got

    got = run_virtual(main())
    assert Counter(item.header.number for item in got) == Counter(range(600))
    unsent = [json.loads(item.record) for item in got if item.header.failure_class == "agent_request_failed"]
    assert len(unsent) > 250
    assert {record["_ng_failure_record"]["delivery"] for record in unsent} == {"not_sent"}
    assert all(item.header.is_interruption for item in got if item.header.failure_class == "agent_request_failed")
    assert "environment server bad has not answered for 30 s" in json.dumps(unsent[0])


def test_without_patience_every_rollout_fails_by_itself() -> None:
    world = TwoServers()

    async def main() -> None:
        async with started(world) as driver:
            await driver.open_run(run_of(server_patience_s=None), rows_of(*[BAD] * 50))
            world.signals = [ServerSignal(BAD, 0, 50, 0, 0.0, "refused")]
            await everything(driver)
            assert asyncio.get_running_loop().time() < 10.0

    run_virtual(main())
    assert world.sent == 50

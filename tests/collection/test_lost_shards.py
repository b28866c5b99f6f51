"""Calls whose every shard dies: what had come is handed over, the semaphore is whole, the next call starts anew."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gym_ray.actors.driver import Driver
from gym_ray.actors.spec import RunSpec
from gym_ray.completions import RolloutCompletions
from gym_ray.errors import ShardLostError
from gym_ray.sessions import DriverSession
from tests.actors.fakes import World, driver_spec, rows


class Calls:
    """Calls of one driver with a single shard, in which rollouts from number 2 on take for ever."""

    def __init__(self) -> None:
        self.world = World(lambda number: 0.001 if number < 2 else 1000.0)
        self.driver = Driver(driver_spec(shards=1, cap=8), self.world.spawn)

    def call(self, count: int, run_id: str = "r", **options: Any) -> RolloutCompletions:
        async def driver() -> Driver:
            return self.driver

        spec = RunSpec(run_id, {"agent": 0}, deliver=True, is_plain=True, is_open_ended=True, aggregate=False)
        session = DriverSession(driver, spec, rows(count), lambda position, _: {"p": position})
        return RolloutCompletions([{"p": position} for position in range(count)], session, **options)

    async def lose_every_shard(self) -> None:
        self.world.refuse_spawn = True
        for shard in list(self.world.shards):
            await shard.die()
        await asyncio.sleep(0.1)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    calls = Calls()
    await calls.driver.start()
    yield calls
    await calls.driver.aclose()


async def test_what_had_come_is_drained_and_the_semaphore_is_whole(calls: Calls) -> None:
    semaphore = asyncio.Semaphore(4)
    completions = calls.call(6, semaphore=semaphore)
    next(completions)
    await asyncio.sleep(0.1)
    await calls.lose_every_shard()
    drained = await completions.aclose_and_drain()
    assert sorted(future.result()[0]["p"] for future in drained) == [0, 1]
    for _ in range(4):
        assert not semaphore.locked()
        await semaphore.acquire()
    assert await completions.aclose_and_drain() == []


async def test_the_first_error_is_the_one_that_is_told(calls: Calls) -> None:
    semaphore = asyncio.Semaphore(4)
    completions = calls.call(12, semaphore=semaphore)
    await next(completions)
    await next(completions)
    waiting = asyncio.ensure_future(anext(completions))
    await asyncio.sleep(0.05)
    await calls.lose_every_shard()
    semaphore.release()  # and more rows would be fed
    await asyncio.wait({waiting})
    assert isinstance(waiting.exception(), ShardLostError)
    assert "every shard died" in str(waiting.exception())
    await completions.aclose()


async def test_who_was_busy_meanwhile_is_told_too(calls: Calls) -> None:
    completions = calls.call(6)
    got = []
    with pytest.raises(ShardLostError, match="every shard died"):
        async for row, _ in completions:
            got.append(row["p"])
            if len(got) == 1:
                await asyncio.sleep(0.1)
                await calls.lose_every_shard()
    assert sorted(got) == [0, 1], "what had come is handed over first"
    await completions.aclose()
    assert [pair async for pair in completions] == []


async def test_every_awaitable_that_is_left_raises_the_error(calls: Calls) -> None:
    completions = calls.call(6)
    await next(completions)
    await next(completions)
    await asyncio.sleep(0.05)
    await calls.lose_every_shard()
    errors = await asyncio.gather(*completions, return_exceptions=True)
    assert [type(error) for error in errors] == [ShardLostError] * 4
    await completions.aclose()


async def test_the_next_call_starts_shards_anew(calls: Calls) -> None:
    first = calls.call(6)
    await next(first)
    await calls.lose_every_shard()
    with pytest.raises(ShardLostError, match="could not be started"):
        await anext(calls.call(2, "s"))
    calls.world.refuse_spawn = False
    assert sorted([row["p"] async for row, _ in calls.call(2, "t")]) == [0, 1]
    await first.aclose()

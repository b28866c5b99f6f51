"""What a driver keeps until the last of a run is settled, so that nothing of it meets the next one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gym_ray.actors.driver import Driver
from gym_ray.actors.local import local_driver
from gym_ray.actors.run import Phase
from gym_ray.actors.upkeep import Upkeep
from gym_ray.dispatch.ledger import State
from gym_ray.errors import ConfigError, DriverLostError, RunFolderError
from tests.actors.fakes import World, driver_spec, ended, rows, run_of, started


async def test_forgetting_waits_for_what_the_shards_hold() -> None:
    world = World(lambda _: 1000.0)
    async with started(world, driver_spec(cap=8)) as driver:
        await driver.open_run(run_of(), rows(16))
        while world.in_flight < 8:
            await asyncio.sleep(0.001)
        first = asyncio.ensure_future(driver.forget("r"))
        await asyncio.sleep(0)
        first.cancel()  # whoever waits may give up; the run is forgotten all the same
        await driver.forget("r")
        assert world.in_flight == 0
        assert not list(driver._pool.leases("r"))
        world.seconds = lambda _: 0.001
        await driver.open_run(run_of(), rows(16))
        assert (await ended(driver)).progress.results == 16


async def test_a_run_is_open_once() -> None:
    async with started(World(lambda _: 1000.0), driver_spec()) as driver:
        await driver.open_run(run_of(), rows(2))
        with pytest.raises(RunFolderError, match="open already"):
            await driver.open_run(run_of(), rows(2))


async def test_a_run_that_cannot_be_announced_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    async with started(World(), driver_spec()) as driver:
        with monkeypatch.context() as broken:
            broken.setattr(Upkeep, "publish", refused)
            with pytest.raises(OSError, match="No space"):
                await driver.open_run(run_of(), rows(2))
        assert not driver._runs
        await driver.open_run(run_of(), rows(2))
        assert (await ended(driver)).progress.results == 2


async def test_fewer_shards_while_a_dead_one_is_settled_lose_no_lease() -> None:
    world = World(lambda _: 0.05)
    async with started(world, driver_spec(shards=2, cap=8)) as driver:
        await driver.open_run(run_of(), rows(16))
        while world.in_flight < 8:
            await asyncio.sleep(0.001)
        victim = next(shard for shard in world.shards if shard.slot == 1)
        dying = asyncio.Event()

        async def kill() -> None:
            dying.set()
            await asyncio.sleep(0.1)
            await victim.aclose()

        victim.kill = kill  # type: ignore[method-assign]
        await victim.die()
        await dying.wait()
        await driver.scale(1)
        async with asyncio.timeout(20):
            view = await ended(driver)
        assert view.progress.results == 16
        assert len(driver._pool) == 1


async def test_whoever_waits_is_told_when_the_driver_closes() -> None:
    world = World(lambda _: 1000.0)
    async with started(world, driver_spec()) as driver:
        await driver.open_run(run_of(deliver=True), rows(4))
        waiting = asyncio.ensure_future(driver.next("r", 0, 10, 100.0))
        await asyncio.sleep(0.01)
    _, _, view = await waiting
    assert view.phase is Phase.FAILED
    assert isinstance(view.error, DriverLostError)
    with pytest.raises(DriverLostError, match="closed"):
        await driver.open_run(run_of(), rows(1))


async def test_a_local_driver_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers: list[Driver] = []

    async def refused(self: Driver) -> None:
        drivers.append(self)
        raise ConfigError("too many connections")

    monkeypatch.setattr(Driver, "start", refused)
    with pytest.raises(ConfigError):
        async with local_driver(driver_spec()):
            pass
    (driver,) = drivers
    assert driver._client._is_closed


async def test_outcomes_that_cannot_be_written_are_owed_and_the_run_can_be_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(lambda _: 0.01)
    async with started(world, driver_spec()) as driver:
        await driver.open_run(run_of(), rows(4))
        run = driver._runs["r"]

        class Files:
            def append(self, *_args: Any) -> None:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(run.plan, "owner", lambda _number: 0, raising=False)
        object.__setattr__(run.held, "files", Files())
        while run.phase is not Phase.FAILED:
            await asyncio.sleep(0.001)
        object.__setattr__(run.held, "files", None)
        async with asyncio.timeout(5):
            await driver.forget("r")
        assert run.ledger.count(State.LEASED) == 0
        assert run.ledger.count(State.OWED) == 4

"""Shards that come, go and differ in speed, on a virtual clock: the cap holds, and the work goes to who is free."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gym_ray.actors.run import RunView
from tests.actors.fakes import FakeShard, World, driver_spec, ended, makespan, rows, run_of, started
from tests.virtual import run_virtual


def test_a_shard_that_is_ten_times_slower_does_not_hold_the_others_up() -> None:
    world = World(lambda _: 1.0)
    world.slowness = {0: 10.0}
    slots, count = 4, 2000  # in each of four shards
    rate = 3 * slots / 1.0 + slots / 10.0
    assert run_virtual(makespan(world, count, shards=4, cap=4 * slots)) <= 1.25 * (count / rate)


@pytest.mark.parametrize("order", [lambda n, count: n, lambda n, count: count - n], ids=["rising", "falling"])
def test_an_input_that_is_sorted_by_length_is_spread_evenly(order: Callable[[int, int], int]) -> None:
    count, cap = 400, 16
    seconds = [1.0 + 9.0 * order(number, count) / count for number in range(count)]
    ideal = sum(seconds) / cap
    assert run_virtual(makespan(World(lambda number: seconds[number]), count, shards=4, cap=cap)) <= 1.25 * ideal


def test_what_waits_in_a_busy_shard_is_handed_to_an_idle_one() -> None:
    world = World(lambda number: 100.0 if number < 8 else 1.0)
    world.slowness = {}

    async def main() -> None:
        async with started(world, driver_spec(shards=2, cap=8)) as driver:
            await driver.open_run(run_of(), rows(40))
            while sum(world.executions.values()) < 40:
                await asyncio.sleep(1.0)
                assert asyncio.get_running_loop().time() < 110.0  # nothing has waited for the long ones to end
            await ended(driver)

    run_virtual(main())
    assert set(world.executions.values()) == {1}


def test_the_cap_holds_while_shards_come_and_go() -> None:
    world = World(lambda number: 1.0 + number % 7)

    async def main() -> None:
        async with started(world, driver_spec(shards=1, cap=12)) as driver:
            await driver.open_run(run_of(), rows(600))
            for shards in (5, 2, 7, 1, 3):
                await asyncio.sleep(20.0)
                await driver.scale(shards)
            view = await ended(driver)
            assert view.progress.results == 600

    run_virtual(main())
    assert world.peak == 12
    assert set(world.executions.values()) == {1}


def test_a_shard_that_is_added_gets_its_part() -> None:
    world = World(lambda _: 1.0)
    by_slot: dict[int, int] = {}
    execute = world.execute

    async def counting(lease: Any, slot: int = 0) -> Any:
        by_slot[slot] = by_slot.get(slot, 0) + 1
        return await execute(lease, slot)

    world.execute = counting  # type: ignore[method-assign]

    async def main() -> None:
        async with started(world, driver_spec(shards=1, cap=8)) as driver:
            await driver.open_run(run_of(), rows(400))
            await asyncio.sleep(5.0)
            await driver.scale(2)
            await ended(driver)

    run_virtual(main())
    assert by_slot[1] > 100


def test_shards_on_a_node_that_is_drained_are_replaced_and_end_in_peace() -> None:
    world = World(lambda _: 5.0)
    leaving: set[str] = set()

    async def draining() -> set[str]:
        return leaving

    async def main() -> None:
        async with started(world, driver_spec(shards=2, cap=8), draining_nodes=draining) as driver:
            await driver.open_run(run_of(), rows(80))
            await asyncio.sleep(7.0)
            leaving.add("node-0")
            view = await ended(driver)
            assert view.progress.results == 80

    run_virtual(main())
    assert [shard.slot for shard in world.shards] == [0, 1, 2]
    assert set(world.executions.values()) == {1}  # nothing was lost, so nothing ran again


def test_a_shard_that_finds_no_place_at_first_joins_later(caplog: pytest.LogCaptureFixture) -> None:
    world = World(lambda _: 1.0)
    spawn = world.spawn

    async def late(slot: int) -> FakeShard:
        if slot == 1:
            await asyncio.sleep(60.0)
        return await spawn(slot)

    world.spawn = late  # type: ignore[method-assign]

    async def main() -> None:
        async with started(world, driver_spec(shards=2, cap=4)) as driver:
            assert asyncio.get_running_loop().time() < 15.0
            await driver.open_run(run_of(), rows(400))
            view = await ended(driver)
            assert view.progress.results == 400

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert len(world.shards) == 2
    assert "1 of 2 shards are there" in caplog.text


def test_a_run_that_stands_still_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    world = World(lambda number: 3600.0 if number in (5, 9) else 1.0)

    async def main() -> None:
        async with started(world, driver_spec(shards=2, cap=4)) as driver:
            await driver.open_run(run_of(), rows(60))
            await asyncio.sleep(120.0)

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert "no rollout has ended for 1" in caplog.text
    assert "task 5, rollout 0, attempt 0 on env for " in caplog.text
    assert " x _attempt > _execute > execute > sleep (tasks.py:" in caplog.text


def test_a_stall_can_be_ended_and_what_hung_stays_owed() -> None:
    world = World(lambda number: 3600.0 if number in (5, 9) else 1.0)

    async def main() -> RunView:
        async with started(world, driver_spec(shards=2, cap=4)) as driver:
            await driver.open_run(run_of(on_stall="cancel"), rows(60))
            view = await ended(driver)
            assert asyncio.get_running_loop().time() < 120.0
            return view

    view = run_virtual(main())
    assert (view.progress.results, view.progress.owed) == (58, 2)
    assert view.report is not None
    assert any("2 rollouts were cancelled and are owed" in note for note in view.report.notes)

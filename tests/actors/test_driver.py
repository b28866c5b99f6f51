"""The driver against shards in this process: whatever dies, every rollout is accounted for once."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gym_ray.actors.driver import Driver
from gym_ray.actors.pool import MAX_RESTARTS
from gym_ray.actors.run import Phase, RunView
from gym_ray.actors.spec import DriverSpec, RunSpec
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.exchange import Blob, StepAnswer, StepRequest
from gym_ray.dispatch.ledger import QUARANTINE_DEATHS
from gym_ray.errors import RoutingError, RunFolderError, ShardLostError
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.paths import RunPaths
from gym_ray.recording.manifest import read_manifest
from gym_ray.recording.status import RunState, read_status
from tests.actors.fakes import World, driver_spec, rows


@asynccontextmanager
async def started(world: World, spec: DriverSpec | None = None) -> AsyncIterator[Driver]:
    driver = Driver(spec or driver_spec(), world.spawn)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.aclose()


def memory_run(run_id: str = "r", **options: Any) -> RunSpec:
    return RunSpec(run_id=run_id, agent_servers={"agent": 0}, **{"deliver": True, "aggregate": False} | options)


async def everything(driver: Driver, run_id: str = "r") -> tuple[list[Delivery], RunView]:
    got: list[Delivery] = []
    ack = 0
    while True:
        ack, batch, view = await driver.next(run_id, ack, 16, 1.0)
        got += batch
        if not batch and view.phase in (Phase.DONE, Phase.FAILED):
            return got, view


def numbers(got: list[Delivery]) -> Counter[int]:
    return Counter(item.header.number for item in got)


async def test_every_rollout_is_run_once_and_delivered_once() -> None:
    world = World()
    async with started(world) as driver:
        assert await driver.open_run(memory_run(), rows(100, 3)) == 300
        got, view = await everything(driver)
    assert numbers(got) == Counter(range(300))
    assert world.executions == Counter(range(300))
    assert view.phase is Phase.DONE
    assert view.progress.results == 300


async def test_the_cap_holds_over_all_shards() -> None:
    world = World(lambda _: 0.005)
    async with started(world, driver_spec(shards=3, cap=7)) as driver:
        await driver.open_run(memory_run(), rows(100))
        await everything(driver)
    assert world.peak == 7


async def test_a_row_is_delivered_with_its_record() -> None:
    async with started(World()) as driver:
        await driver.open_run(memory_run(), rows(20))
        got, _ = await everything(driver)
    for item in got:
        assert json.loads(item.line)["_ng_task_index"] == json.loads(item.record)["number"]


async def test_leases_of_a_dead_shard_run_again_under_the_next_attempt() -> None:
    world = World(lambda _: 0.05)
    async with started(world) as driver:
        await driver.open_run(memory_run(), rows(40))
        await asyncio.sleep(0.02)
        await world.shards[0].die()
        got, view = await everything(driver)
    assert numbers(got) == Counter(range(40))
    assert view.progress.results == 40
    assert len(world.shards) == 3
    again = {number: tries for number, tries in world.attempts.items() if len(tries) > 1}
    assert again
    assert all(tries == [0, 1] for tries in again.values())


async def test_without_replay_a_dead_shard_turns_its_leases_into_failures() -> None:
    world = World(lambda _: 0.05)
    async with started(world) as driver:
        await driver.open_run(memory_run(retry_requests=False), rows(40))
        await asyncio.sleep(0.02)
        await world.shards[0].die()
        got, view = await everything(driver)
    assert numbers(got) == Counter(range(40))
    assert max(world.executions.values()) == 1
    failures = [json.loads(item.record) for item in got if item.header.kind == OutcomeKind.FAILURE]
    assert view.progress.failures == len(failures) > 0
    assert {failure["_ng_failure_record"]["delivery"] for failure in failures} == {"possibly_delivered"}


async def test_a_rollout_that_is_there_when_shards_die_is_quarantined() -> None:
    world = World(lambda number: 30.0 if number == 0 else 0.001)
    async with started(world, driver_spec(shards=1, cap=1)) as driver:
        await driver.open_run(memory_run(), rows(5))
        for death in range(QUARANTINE_DEATHS):
            while len(world.attempts.get(0, ())) <= death:
                await asyncio.sleep(0.001)
            await world.shards[-1].die()
        got, view = await everything(driver)
    assert numbers(got) == Counter(range(5))
    assert world.attempts[0] == [0, 1, 2]
    assert view.progress.failures == 1


async def test_the_run_goes_on_with_fewer_shards() -> None:
    world = World(lambda _: 0.02)
    async with started(world) as driver:
        await driver.open_run(memory_run(), rows(60))
        await asyncio.sleep(0.01)
        world.refuse_spawn = True
        await world.shards[0].die()
        got, _ = await everything(driver)
    assert numbers(got) == Counter(range(60))


async def test_a_run_without_shards_fails_by_name() -> None:
    world = World(lambda _: 30.0)
    async with started(world) as driver:
        await driver.open_run(memory_run(), rows(10))
        await asyncio.sleep(0.01)
        world.refuse_spawn = True
        for shard in list(world.shards):
            await shard.die()
        _, view = await everything(driver)
    assert view.phase is Phase.FAILED
    assert isinstance(view.error, ShardLostError)
    assert MAX_RESTARTS > 0


async def test_a_stopped_run_cancels_what_is_in_flight_and_owes_the_rest() -> None:
    world = World(lambda _: 30.0)
    async with started(world) as driver:
        await driver.open_run(memory_run(), rows(50))
        await asyncio.sleep(0.02)
        await driver.stop_run("r")
        got, view = await everything(driver)
    assert (got, view.phase, world.in_flight) == ([], Phase.DONE, 0)
    assert view.progress.owed == 50


async def test_an_empty_run_is_over_at_once() -> None:
    async with started(World()) as driver:
        assert await driver.open_run(memory_run(), []) == 0
        got, view = await everything(driver)
    assert (got, view.phase) == ([], Phase.DONE)


async def test_two_runs_share_the_shards_and_the_cap() -> None:
    world = World(lambda _: 0.002)
    async with started(world, driver_spec(cap=6)) as driver:
        await driver.open_run(memory_run("a"), rows(50))
        await driver.open_run(memory_run("b"), rows(50))
        (a, _), (b, _) = await asyncio.gather(everything(driver, "a"), everything(driver, "b"))
    assert numbers(a) == numbers(b) == Counter(range(50))
    assert world.peak <= 6


async def test_a_second_run_on_warm_shards_starts_at_once() -> None:
    async with started(World(lambda _: 0.0)) as driver:
        for run in ("a", "b", "c"):
            await driver.open_run(memory_run(run), rows(4))
            began = asyncio.get_running_loop().time()
            await everything(driver, run)
            assert asyncio.get_running_loop().time() - began < 0.5
            await driver.forget(run)


async def test_a_caller_that_does_not_fetch_holds_the_run_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_ray.dispatch.deliveries.MAX_UNCLAIMED_BYTES", 2_000)
    world = World()
    async with started(world) as driver:
        await driver.open_run(memory_run(), rows(500))
        await asyncio.sleep(0.2)
        held = sum(world.executions.values())
        assert held < 100
        await asyncio.sleep(0.1)
        assert sum(world.executions.values()) == held
        got, _ = await everything(driver)
    assert numbers(got) == Counter(range(500))


async def test_an_omitted_rollout_stays_out_of_results_and_failures() -> None:
    async with started(World(kind=OutcomeKind.OMITTED)) as driver:
        await driver.open_run(memory_run(deliver=False), rows(5))
        _, view = await everything(driver)
    assert (view.progress.results, view.progress.failures, view.progress.omitted) == (0, 0, 5)


async def test_an_open_ended_run_takes_rows_until_it_is_told_that_there_are_no_more() -> None:
    world = World()
    async with started(world) as driver:
        await driver.open_run(memory_run(is_open_ended=True), [])
        for start in (0, 10, 20):
            await driver.feed("r", rows(30)[start : start + 10], is_last=False)
            got: list[Delivery] = []
            ack = 0
            while len(got) < 10:
                ack, batch, view = await driver.next("r", ack, 16, 1.0)
                got += batch
            assert view.phase is Phase.DISPATCHING
        await driver.feed("r", [], is_last=True)
        _, view = await everything(driver)
    assert (view.phase, view.progress.planned, view.progress.results) == (Phase.DONE, 30, 30)
    assert world.executions == Counter(range(30))


async def test_a_zero_budget_drains_everything_without_a_request() -> None:
    world = World()
    async with started(world) as driver:
        await driver.open_run(memory_run(dispatch_budget_s=0.0), rows(20))
        got, view = await everything(driver)
    assert not world.executions
    assert (view.phase, view.progress.drained, view.progress.owed) == (Phase.DONE, 20, 0)
    assert numbers(got) == Counter(range(20))
    assert all(json.loads(item.record)["_ng_dispatch_drained"] for item in got)


async def test_a_spent_budget_lets_what_is_in_flight_end() -> None:
    world = World(lambda _: 0.1)
    async with started(world, driver_spec(cap=4)) as driver:
        await driver.open_run(memory_run(dispatch_budget_s=0.15), rows(40))
        _, view = await everything(driver)
    assert view.progress.results == sum(world.executions.values()) < 40
    assert view.progress.results + view.progress.drained == 40


async def test_a_spent_token_budget_omits_what_has_not_started() -> None:
    world = World(lambda _: 0.02, tokens=100)
    async with started(world, driver_spec(cap=4)) as driver:
        await driver.open_run(memory_run(token_budget=450), rows(40))
        _, view = await everything(driver)
    assert 5 <= view.progress.results == sum(world.executions.values()) <= 5 + 3
    assert view.progress.results + view.progress.omitted == 40
    assert view.report is not None
    (note,) = view.report.notes
    assert re.search(r"rollouts were not started: \d+ tokens were used, the token budget is 450.*at most [1-4]\)", note)
    assert note in "\n".join(view.report.lines())


async def test_a_row_without_a_server_is_refused_before_anything_runs() -> None:
    world = World()
    async with started(world) as driver:
        with pytest.raises(RoutingError, match="nobody"):
            await driver.open_run(
                memory_run(), [b'{"agent_ref":{"name":"nobody"},"_ng_task_index":7,"_ng_rollout_index":0}']
            )
    assert not world.executions


async def test_a_driver_that_sees_another_folder_says_so(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "r.jsonl")
    paths.shard(0).materialized.write_bytes(rows(1)[0] + b"\n")
    async with started(World()) as driver:
        with pytest.raises(RunFolderError, match="storage that every node shares"):
            await driver.open_run(RunSpec("r", {"agent": 0}, paths, "0123456789abcdef"))


async def test_a_second_run_in_a_folder_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "r.jsonl")
    paths.shard(0).materialized.write_bytes(rows(1)[0] + b"\n")
    async with started(World(lambda _: 30.0)) as first, started(World()) as second:
        await first.open_run(RunSpec("first", {"agent": 0}, paths, aggregate=False))
        with pytest.raises(RunFolderError, match=r"run first on .*, process \d+, since 2"):
            await second.open_run(RunSpec("second", {"agent": 0}, paths, aggregate=False))
        await first.forget("first")
        await second.open_run(RunSpec("second", {"agent": 0}, paths, aggregate=False))
        _, view = await everything(second, "second")
    assert view.phase is Phase.DONE
    status = read_status(paths)
    assert status is not None
    assert (status.run_id, status.state, status.completed) == ("second", RunState.COMPLETE, 1)
    manifest = read_manifest(paths.shard(0).manifest)
    assert manifest is not None
    assert (manifest.run_id, manifest.materialized.rows) == ("second", 1)


class EagerShard:
    """Answers every step after a few turns of the event loop, with nothing to say."""

    def __init__(self, turns: int) -> None:
        self.turns, self.seq = turns, 0

    async def step(self, request: StepRequest) -> StepAnswer:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.seq += 1
        return StepAnswer(self.seq, (), Blob([]), (), 0, 0)

    node: str | None = None

    async def nudge(self) -> None:
        pass

    async def stacks(self) -> list[str]:
        return []

    async def kill(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("later", range(12))
async def test_closing_ends_at_whatever_turn_it_meets_an_answer(turns: int, later: int) -> None:
    """A cancellation that meets a finished step must not be lost: the shard's loop would go on for ever."""

    async def spawn(_slot: int) -> EagerShard:
        return EagerShard(turns)

    driver = Driver(driver_spec(shards=1), spawn)
    await driver.start()
    await driver.open_run(memory_run(), rows(3))
    for _ in range(later):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await driver.aclose()


async def test_while_a_run_waits_for_its_last_rollouts_the_oldest_are_named() -> None:
    world = World(lambda number: 30.0 if number in (3, 7) else 0.001)
    async with started(world) as driver:
        await driver.open_run(memory_run(deliver=False), rows(10))
        async with asyncio.timeout(10):
            while (view := await driver.poll("r", 0.05)).progress.results < 8:
                pass
        oldest = view.progress.oldest
        assert [(each.task_index, each.rollout_index, each.server) for each in oldest] == [(3, 0, "env"), (7, 0, "env")]
        assert all(each.age_s > 0 for each in oldest)


async def test_a_drained_run_lets_what_has_started_end_and_starts_nothing_more() -> None:
    world = World(lambda _: 0.1)
    async with started(world, driver_spec(cap=4)) as driver:
        await driver.open_run(memory_run(), rows(40))
        while world.in_flight < 4:
            await asyncio.sleep(0.01)
        await driver.drain_run("r")
        _, view = await everything(driver)
    ended = sum(world.executions.values())
    assert view.phase is Phase.DONE
    assert 4 <= view.progress.results == ended < 40
    assert view.progress.owed == 40 - ended
    assert view.report is not None
    assert not view.report.is_complete


async def test_what_was_in_flight_in_a_dead_shard_is_not_called_unstarted_when_the_budget_is_spent() -> None:
    world = World(lambda _: 100.0)
    async with started(world, driver_spec(shards=1, cap=4)) as driver:
        await driver.open_run(memory_run(dispatch_budget_s=0.05), rows(4))
        while world.in_flight < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await world.shards[0].die()
        got, view = await everything(driver)
    assert (view.progress.failures, view.progress.drained) == (4, 0)
    assert all(b"possibly_delivered" in item.record for item in got)

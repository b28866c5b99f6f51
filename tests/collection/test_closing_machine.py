"""A whole run in one process: whoever claims, gives up or closes, and whatever dies, each rollout is counted once."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gym_ray.actors.driver import Driver
from gym_ray.actors.pool import MAX_RESTARTS
from gym_ray.actors.spec import RunSpec
from gym_ray.completions import Claim, Pair, RolloutCompletions
from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.exchange import CompletionHeader
from gym_ray.errors import ShardLostError
from gym_ray.identity import read_identity
from gym_ray.meanings import plain_result
from gym_ray.outcomes.judge import internal_fault, judge
from gym_ray.outcomes.outcome import Outcome, OutcomeKind
from gym_ray.outcomes.reply import Answered
from gym_ray.sessions import DriverSession
from tests.actors.fakes import SERVER, FakeShard, World, driver_spec, rows
from tests.virtual import VirtualLoop

T = TypeVar("T")

RUN = "r"
PATIENCE_S = 300.0
"""Nothing in here takes that long on the virtual clock, except what hangs."""
SHARDS = 2
MOMENTS = 4
PAUSES = st.sampled_from([0, 1, 2, 3, MOMENTS, MOMENTS, MOMENTS])
"""Turns of the loop between two commands; `MOMENTS` is as long as everything takes that waits for no command."""


class CommandedWorld(World):
    """Attempts that end when the test says so, and how it says."""

    def __init__(self) -> None:
        super().__init__()
        self.running: dict[int, asyncio.Future[str]] = {}
        self.interrupted: set[int] = set()
        self.ended: set[int] = set()
        """Rollouts that have an outcome which no death of a shard has taken away so far."""

    async def execute(self, lease: Lease, slot: int = 0) -> tuple[CompletionHeader, bytes]:
        header, identity = lease.header, read_identity(lease.line)
        assert header.number not in self.running, "one rollout runs twice at a time"
        self.executions[header.number] += 1
        self.running[header.number] = asyncio.get_running_loop().create_future()
        try:
            how = await self.running[header.number]
        except asyncio.CancelledError:
            self.interrupted.add(header.number)
            raise
        finally:
            del self.running[header.number]
        match how:
            case "result":
                outcome = Outcome(OutcomeKind.RESULT, b'{"number":%d}' % header.number)
            case "failure":
                reply = Answered(500, b"it broke", "http://127.0.0.1:1/run")
                outcome = judge(identity, header.attempt, SERVER, reply, header.run)
            case _:
                outcome = internal_fault(identity, header.attempt, SERVER, RuntimeError("a bug"), header.run)
        self.ended.add(header.number)
        return (
            CompletionHeader(
                header.run, header.number, header.attempt, int(outcome.kind), len(outcome.record), 0, 1000.0, None,
                False, outcome.failure_class, outcome.terminal, None, 1,
            ),
            outcome.record,
        )  # fmt: skip


class ClosingModel(RuleBasedStateMachine):
    """Positions of rows are what is counted: which have arrived at the iterator, and who got them."""

    @initialize(
        planned=st.sampled_from([0, 1, 3, 8, 16, 24]),
        max_resident=st.sampled_from([None, None, 1, 4]),
        slots=st.sampled_from([None, None, 1, 4]),
        cap=st.integers(2, 6),
        budget_s=st.sampled_from([None, None, None, 0.0, 20.0, 60.0]),
        retries=st.sampled_from([True, True, False]),
        routes=st.booleans(),
        max_deaths=st.sampled_from([0, 0, 2, SHARDS * (MAX_RESTARTS + 1)]),
        opens_for=st.integers(0, 25),
    )
    def begin(
        self,
        planned: int,
        max_resident: int | None,
        slots: int | None,
        cap: int,
        budget_s: float | None,
        retries: bool,
        routes: bool,
        max_deaths: int,
        opens_for: int,
    ) -> None:
        self.max_deaths, self.opens_for = max_deaths, opens_for
        self.planned, self.max_resident, self.slots = planned, max_resident, slots
        self.world = CommandedWorld()
        self.arrived: list[int] = []
        self.errors: list[BaseException] = []
        self.position_of: dict[int, int] = {}
        self.claimed: list[int] = []
        self.drained: list[int] = []
        self.given_up = 0
        self.gives_up_when_served = False
        self.dead: list[FakeShard] = []
        self.withheld: set[int] = set()
        self.unasked: list[Claim] = []
        self.asking: list[asyncio.Task[None]] = []
        self.closing: asyncio.Task[None] | None = None
        self.ended_before_closing: set[int] = set()
        self.drains = self.has_died_since_closing = False
        self.executed_when_closed: int | None = None
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.semaphore = None if slots is None else asyncio.Semaphore(slots)
        self.spec = RunSpec(
            run_id=RUN,
            agent_servers={"agent": 0},
            deliver=True,
            is_plain=True,
            is_open_ended=True,
            aggregate=False,
            retry_requests=retries,
            dispatch_budget_s=budget_s,
        )
        self.routes = routes
        self.run(self._begin(cap))

    async def _begin(self, cap: int) -> None:
        loop = asyncio.get_running_loop()
        self.driver = driver = Driver(driver_spec(shards=SHARDS, cap=cap), self.world.spawn, clock=loop.time)
        await driver.start()

        async def started() -> Driver:
            return driver

        session = DriverSession(started, self.spec, rows(self.planned), self._meaning)
        self.completions = RolloutCompletions(
            [{"position": position} for position in range(self.planned)],
            session,
            max_resident=self.max_resident,
            semaphore=self.semaphore,
        )

    def _meaning(self, position: int, delivery: Delivery) -> Any:
        self.arrived.append(position)
        waiting = [task for task in self.asking if not task.done()]
        if self.gives_up_when_served and waiting:  # cancelled when it has its outcome and does not know it yet
            self.gives_up_when_served = False
            asyncio.get_running_loop().call_soon(waiting[0].cancel)
        if delivery.header.kind == OutcomeKind.WITHHELD:
            self.withheld.add(position)
        result = plain_result(delivery, read_identity(delivery.line), routes=self.routes)
        if isinstance(result, BaseException):
            self.errors.append(result)  # kept alive, so that its id stays its own
            self.position_of[id(result)] = position
        return result

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        self.opens_for -= 1
        return self.runner.run(main)

    # What the caller does

    @rule(pause=PAUSES)
    def ask_for_the_next(self, pause: int) -> None:
        async def ask() -> None:
            with contextlib.suppress(StopIteration):
                self.asking.append(asyncio.ensure_future(self._ask(next(self.completions))))
            await self._pass(pause)

        self.run(ask())

    @rule(pause=PAUSES)
    def take_an_awaitable(self, pause: int) -> None:
        async def take() -> None:
            with contextlib.suppress(StopIteration):
                self.unasked.append(next(self.completions))
            await self._pass(pause)

        self.run(take())

    @precondition(lambda self: self.unasked)
    @rule(data=st.data(), pause=PAUSES)
    def await_it(self, data: st.DataObject, pause: int) -> None:
        claim = self.unasked.pop(data.draw(st.integers(0, len(self.unasked) - 1)))

        async def ask() -> None:
            self.asking.append(asyncio.ensure_future(self._ask(claim)))
            await self._pass(pause)

        self.run(ask())

    @precondition(lambda self: any(not task.done() for task in self.asking))
    @rule(data=st.data(), pause=PAUSES)
    def give_up(self, data: st.DataObject, pause: int) -> None:
        task = data.draw(st.sampled_from([task for task in self.asking if not task.done()]))

        async def cancel() -> None:
            task.cancel()
            await self._pass(pause)

        self.run(cancel())

    @rule()
    def give_up_when_served(self) -> None:
        self.gives_up_when_served = True

    @precondition(lambda self: self.closing is None and self.opens_for <= 0)
    @rule(drains=st.booleans(), pause=PAUSES)
    def close(self, drains: bool, pause: int) -> None:
        async def close() -> None:
            self.drains, self.ended_before_closing = drains, set(self.world.ended)
            self.closing = asyncio.ensure_future(self._close(drains))
            await self._pass(pause)

        self.run(close())

    @precondition(lambda self: self.closing is not None)
    @rule()
    def close_again(self) -> None:
        async def again() -> None:
            async with asyncio.timeout(PATIENCE_S):
                assert await self.completions.aclose_and_drain() == []
                await self.completions.aclose()
            assert not self.world.running

        self.run(again())

    # What happens to it

    @precondition(lambda self: self.world.running)
    @rule(
        data=st.data(), count=st.integers(1, 3), how=st.sampled_from(["result", "failure", "exception"]), pause=PAUSES
    )
    def attempts_end(self, data: st.DataObject, count: int, how: str, pause: int) -> None:
        order = data.draw(st.permutations(sorted(self.world.running)))

        async def end() -> None:
            for number in order[:count]:
                attempt = self.world.running.get(number)  # one that was cancelled may have gone before our turn
                if attempt is not None and not attempt.done():
                    attempt.set_result(how)
            await self._pass(pause)

        self.run(end())

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.1, 2.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @precondition(lambda self: len(self.dead) < self.max_deaths)
    @rule(slot=st.integers(0, SHARDS - 1), pause=PAUSES)
    def a_shard_dies(self, slot: int, pause: int) -> None:
        shard = [shard for shard in self.world.shards if shard.slot == slot][-1]

        async def die() -> None:
            await shard.die()
            self.dead.append(shard)
            self.has_died_since_closing |= self.closing is not None
            self.world.interrupted |= self.world.ended.difference(self.arrived)  # what was not handed over is lost
            self.world.ended.intersection_update(self.arrived)
            await self._pass(pause)

        self.run(die())

    async def _pass(self, pause: int) -> None:
        """Let others have a few turns, or time for everything that waits for no command."""
        if pause == MOMENTS:
            await asyncio.sleep(0.1)
            return
        for _ in range(pause):
            await asyncio.sleep(0)

    async def _ask(self, claim: Claim) -> None:
        was_closed = self.closing is not None
        try:
            pair = await claim
        except ShardLostError:
            assert self.is_lost
        except asyncio.CancelledError:
            self.given_up += 1
        except Exception as error:  # noqa: BLE001 - the failure of a rollout, or a fault that the look-up shows
            self.claimed.append(self.position_of[id(error)])
        else:
            assert not (was_closed and self.max_resident is not None), "a closed bounded iterator hands out nothing"
            self.claimed.append(self._position(pair))

    async def _close(self, drains: bool) -> None:
        if drains:
            for future in await self.completions.aclose_and_drain():
                assert future.done()
                error = future.exception()
                self.drained.append(self._position(future.result()) if error is None else self.position_of[id(error)])
        else:
            await self.completions.aclose()
        self.executed_when_closed = self.world.executions.total()
        assert not self.world.running, "a closed iterator has nothing in flight"

    def _position(self, pair: Pair) -> int:
        row, result = pair
        position = int(row["position"])
        assert result.get("number", position) == position
        assert ("_ng_dispatch_drained" in result) == (position in self.withheld)
        return position

    # What is always true

    @invariant()
    def every_outcome_goes_to_one_place(self) -> None:
        gone = self.claimed + self.drained
        assert len(set(self.arrived)) == len(self.arrived)
        assert len(set(gone)) == len(gone)
        assert set(gone) <= set(self.arrived)
        assert self.withheld.isdisjoint(self.world.executions.keys() - self.world.interrupted)

    @invariant()
    def no_more_than_the_bound_is_resident(self) -> None:
        if self.max_resident is not None:
            assert len(self.world.executions.keys() | self.arrived) - len(self.claimed) <= self.max_resident

    @invariant()
    def no_more_than_the_semaphore_allows_is_in_flight(self) -> None:
        if self.slots is not None:
            assert len(self.world.running) <= self.slots

    @invariant()
    def nothing_starts_once_it_is_closed(self) -> None:
        if self.executed_when_closed is not None:
            assert self.world.executions.total() == self.executed_when_closed

    @invariant()
    def the_ledger_adds_up(self) -> None:
        async def progress() -> None:
            with contextlib.suppress(KeyError):  # not opened yet, or forgotten
                now = (await self.driver.poll(RUN, 0.0)).progress
                assert now.planned <= self.planned
                assert now.results + now.failures + now.drained + now.omitted + now.owed == now.planned
                assert len(self.arrived) <= now.results + now.failures + now.drained
                assert 0 <= now.in_flight <= now.owed

        self.run(progress())

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.run(self._finish())
        finally:
            self.run(self.driver.aclose())
            self.runner.close()

    async def _finish(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            if self.closing is None:
                await self._use_up()
                assert self.is_lost or len(self.claimed) + self.given_up == self.planned
                self.drains = True
                self.closing = asyncio.ensure_future(self._close(drains=True))
            await self.closing
            await self.completions.aclose()
        if self.drains:
            await asyncio.sleep(0)  # whoever was given something at the last moment takes it
            assert sorted(self.claimed + self.drained) == sorted(self.arrived)
        if not self.has_died_since_closing:
            assert self.ended_before_closing <= set(self.arrived)
        for claim in self.unasked:
            self.asking.append(asyncio.ensure_future(self._ask(claim)))
        await asyncio.sleep(0.1)
        assert all(task.done() for task in self.asking), "an awaitable hangs"
        await asyncio.gather(*self.asking)
        self.every_outcome_goes_to_one_place()
        if self.semaphore is not None:
            for _ in range(self.slots or 0):
                assert not self.semaphore.locked()
                await self.semaphore.acquire()
            assert self.semaphore.locked()
        await self.driver.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a task has no owner that joins it"

    async def _use_up(self) -> None:
        """Claim whatever is left, while every attempt ends well."""
        for claim in [*self.unasked, *self.completions]:
            self.asking.append(asyncio.ensure_future(self._ask(claim)))
        self.unasked = []
        while any(not task.done() for task in self.asking) or not self._is_used_up:
            for attempt in list(self.world.running.values()):
                if not attempt.done():
                    attempt.set_result("result")
            await asyncio.sleep(0.1)

    @property
    def is_lost(self) -> bool:
        """True once no shard is left."""
        return len(self.world.shards) == SHARDS * (MAX_RESTARTS + 1) and all(
            shard in self.dead for shard in self.world.shards
        )

    @property
    def _is_used_up(self) -> bool:
        """True once everything has come; with a bound, whoever gave up leaves something that holds its place."""
        return len(self.arrived) == self.planned or self.max_resident is not None or self.is_lost


TestClosingModel = ClosingModel.TestCase
TestClosingModel.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)

"""Between the runs and the shards: what is leased next, what a completion becomes, what happens to what was lost.

Invariants: a batch is acknowledged only after its records are written; an attempt number is on disk before a shard sees
it; a shard's death turns its leases into owed rollouts or into failures, never into nothing.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from gym_ray.actors.gates import ServerGates
from gym_ray.actors.link import ShardDied, ShardLink
from gym_ray.actors.run import Run
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.exchange import CompletionHeader, LeaseHeader, StepAnswer, slices
from gym_ray.identity import read_identity
from gym_ray.outcomes.judge import lost, unsent
from gym_ray.outcomes.outcome import Outcome, OutcomeKind
from gym_ray.outcomes.reply import Delivery
from gym_ray.recording.attempts import Ended, Started

logger = logging.getLogger("gym_ray.driver")

UNSENT_BATCH = 512
"""Rollouts of a server that is given up, recorded at a time."""

InThread = Callable[..., Awaitable[Any]]


class Ends(Protocol):
    """Who ends runs."""

    def consider(self, run: Run) -> None:
        """Conclude a run if nothing of it is left to do."""

    def fail(self, run: Run, error: BaseException) -> None:
        """End a run that cannot go on."""


class Dispatcher:
    """The runs of a driver as its shards see them; see `pool.Work` for what they ask."""

    def __init__(
        self,
        runs: dict[str, Run],
        servers: Sequence[EnvironmentServer],
        gates: ServerGates,
        ends: Ends,
        in_thread: InThread,
        clock: Callable[[], float],
        wall_time: Callable[[], float],
    ) -> None:
        self._runs = runs
        self._servers = servers
        self._gates = gates
        self._ends = ends
        self._in_thread = in_thread
        self._clock = clock
        self._time = wall_time

    @property
    def owed(self) -> int:
        return sum(run.leasable for run in self._runs.values())

    @property
    def may_wait_in_shards(self) -> bool:
        return all(run.may_wait_in_shards for run in self._runs.values())

    def lease(self, slots: int, reserve: int) -> list[tuple[LeaseHeader, bytes]]:
        leased: list[tuple[LeaseHeader, bytes]] = []
        now = self._clock()
        for run in list(self._runs.values()):
            free = max(slots - len(leased), 0)
            waiting = slots + reserve - len(leased) - free
            heeds_breaker = run.spec.server_patience_s is not None
            shares = self._gates.shares(free, waiting, run.leasable_by_server, now, heeds_breaker=heeds_breaker)
            leased += self._lease(run, shares, now)
            self._ends.consider(run)  # a spent budget may have ended it just now
        return leased

    def _lease(self, run: Run, shares: dict[int, int], now: float) -> list[tuple[LeaseHeader, bytes]]:
        leased = run.lease(shares, now)
        for header, _ in leased:
            self._gates.take(header.server, now)
        return leased

    async def announce(self, headers: Sequence[LeaseHeader]) -> bool:
        attempts: dict[str, list[Started]] = {}
        now_ms = round(self._time() * 1000)
        for header in headers:
            run = self._runs[header.run]
            if run.held.files is not None:
                started = Started(now_ms, *run.plan.key(header.number), header.attempt)
                attempts.setdefault(header.run, []).append(started)
        for run_id, started_now in attempts.items():
            run = self._runs[run_id]
            assert run.held.files is not None
            try:
                # What must not run twice must not do so after a power cut either
                log = partial(run.held.files.attempts.started, is_durable=not run.spec.retry_requests)
                await self._in_thread(log, started_now)
            except Exception as error:  # noqa: BLE001 - whatever stops the records ends the run, and is told to its caller
                self._ends.fail(run, error)
                return False
        return True

    def take_back(self, headers: Sequence[LeaseHeader]) -> None:
        for header in headers:
            self._gates.give(header.server, self._clock())
            if (run := self._runs.get(header.run)) is not None:
                run.give_back(header.number, started=False)
                self._ends.consider(run)

    async def take(self, link: ShardLink, answer: StepAnswer) -> None:
        self._gates.observe(answer.signals, self._clock())
        arrived: dict[str, list[tuple[CompletionHeader, memoryview]]] = {}
        for header, record in zip(
            answer.completions, slices((h.size for h in answer.completions), answer.blob), strict=True
        ):
            if self._ended(link, header.run, header.number):
                arrived.setdefault(header.run, []).append((header, record))
        for run_id, items in arrived.items():
            if (run := self._runs.get(run_id)) is not None:
                await self._record(run, items)
        for run_id, number, _, started in answer.released:
            self._ended(link, run_id, number)
            if (run := self._runs.get(run_id)) is not None:
                run.give_back(number, started=started)
                self._ends.consider(run)
        for notice in answer.notices:
            logger.warning("%s", notice)

    def _ended(self, link: ShardLink, run_id: str, number: int) -> bool:
        """Strike a lease off; False if the shard does not hold it."""
        leased = link.leases.pop((run_id, number), None)
        if leased is not None:
            self._gates.give(leased.server, self._clock())
        return leased is not None

    async def lose(self, link: ShardLink, error: ShardDied) -> None:
        for position, ((run_id, number), leased) in enumerate(list(link.leases.items())):
            self._ended(link, run_id, number)
            run = self._runs.get(run_id)
            if run is None:
                continue
            # Leases start in order, so those beyond the cap were most likely still waiting: not what killed it
            is_poison = position < link.cap and not link.is_retiring and run.ledger.died(number)
            if run.spec.retry_requests and not is_poison and run.has_budget(self._clock()):
                run.give_back(number, started=True)
                self._ends.consider(run)
                continue
            identity, server = read_identity(run.plan.line(number)), self._servers[run.plan.server(number)]
            reason = f"shard {link.slot} died: {error}"
            outcome = lost(identity, leased.attempt, server, reason, Delivery.POSSIBLY_DELIVERED, run.spec.run_id)
            await self._record(run, [_unreported(run, number, leased.attempt, outcome)])

    def abandon(self, error: Exception) -> None:
        for run in self._runs.values():
            self._ends.fail(run, error)

    async def give_up_servers(self, run: Run) -> None:
        """Record a failure for every rollout whose server has been gone for longer than the run is patient."""
        patience_s = run.spec.server_patience_s
        if patience_s is None:
            return
        for position in self._gates.given_up(patience_s, self._clock()):
            server, count = self._servers[position], 0
            reason = f"not sent: environment server {server.name} has not answered for {patience_s:g} s"
            while leased := self._lease(run, {position: UNSENT_BATCH}, self._clock()):
                headers = [header for header, _ in leased]
                if not await self.announce(headers):
                    self.take_back(headers)
                    return
                items = []
                for header, line in leased:
                    self._gates.give(position, self._clock())
                    outcome = unsent(read_identity(line), header.attempt, server, reason, run.spec.run_id)
                    items.append(_unreported(run, header.number, header.attempt, outcome))
                await self._record(run, items)
                count += len(leased)
            if count:
                logger.warning("%d rollouts were %s (server_patience_s)", count, reason)
                run.notes.append(f"{count} rollouts were {reason}; a resume runs them")

    async def _record(self, run: Run, items: Sequence[tuple[CompletionHeader, memoryview]]) -> None:
        if run.held.files is not None:
            batch = [
                (run.plan.owner(header.number), header.kind == OutcomeKind.RESULT, line)
                for header, record in items
                if (line := run.persisted(header, record))
            ]
            now_ms = round(self._time() * 1000)
            ended = [Ended(now_ms, *run.plan.key(h.number), h.attempt, h.kind, h.latency_ms, h.sends) for h, _ in items]
            try:
                await self._in_thread(run.held.files.append, batch, ended)
            except Exception as error:  # noqa: BLE001 - whatever stops the records ends the run, and is told to its caller
                for header, _ in items:
                    run.give_back(header.number, started=True)  # no record of it is certain, so it stays owed
                self._ends.fail(run, error)
                self._ends.consider(run)
                return
        for header, record in items:
            run.settle(header, record)
        run.stall.moved(self._clock())
        run.changed.set()
        self._ends.consider(run)


def _unreported(run: Run, number: int, attempt: int, outcome: Outcome) -> tuple[CompletionHeader, memoryview]:
    """A failure that no shard reports, as a completion."""
    header = CompletionHeader(
        run.spec.run_id, number, attempt, int(outcome.kind), len(outcome.record), 0, 0.0, None, False,
        outcome.failure_class, outcome.terminal, None, 0, outcome.is_interruption,
    )  # fmt: skip
    return header, memoryview(outcome.record)

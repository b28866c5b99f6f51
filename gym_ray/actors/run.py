"""One run inside a driver: its plan, its ledger, where its records go, and what its caller still has to fetch.

Invariant: an outcome is written before the ledger counts it, and counted before anybody is told.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from gym_ray import keys
from gym_ray.actors.opening import Held
from gym_ray.actors.plan import MemoryPlan
from gym_ray.actors.restoring import restore
from gym_ray.actors.spec import RunSpec
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.budget import DispatchBudget
from gym_ray.dispatch.deliveries import Deliveries, Delivery
from gym_ray.dispatch.exchange import CompletionHeader, LeaseHeader
from gym_ray.dispatch.ledger import Ledger, State
from gym_ray.identity import read_identity
from gym_ray.observe.report import RunReport
from gym_ray.observe.scores import Scores
from gym_ray.observe.stall import StallWatch
from gym_ray.observe.tally import Progress, Tally
from gym_ray.observe.timing import RunTimingReport
from gym_ray.outcomes.attempt import Attempt
from gym_ray.outcomes.evidence import is_reported, omitted_row, unrouted
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.recording.status import AgentCounts, RunState, RunStatus

logger = logging.getLogger("gym_ray.run")

_STATE_OF = {OutcomeKind.RESULT: State.RESULT, OutcomeKind.FAILURE: State.FAILURE, OutcomeKind.OMITTED: State.OMITTED}


class Phase(StrEnum):
    """What a run is busy with."""

    DISPATCHING = "dispatching"
    MERGING = "merging"
    AGGREGATING = "aggregating"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunView:
    """What a caller sees of a run."""

    phase: Phase
    progress: Progress
    report: RunReport | None = None
    """Present once the phase is `DONE`."""
    error: BaseException | None = None
    """Present once the phase is `FAILED`: why nothing more will happen."""
    was_stopped: bool = False
    """True if somebody has asked to start nothing more."""
    notices: tuple[str, ...] = ()
    """What the driver and its shards have to tell a person, once each."""


class Run:
    """The state of one run; owned by the driver's loop."""

    def __init__(self, spec: RunSpec, held: Held, servers: tuple[EnvironmentServer, ...], cap: int, now: float) -> None:
        self.spec = spec
        self.held = held
        self.plan = plan = held.plan
        self._servers = servers
        self.ledger = Ledger(map(plan.server, range(len(plan))))
        by_server = Counter(plan.server(number) for number in range(len(plan)))
        names = [server.name for server in servers]
        self.tally = Tally({name: by_server[i] for i, name in enumerate(names) if by_server[i]}, cap, now)
        self.notes: list[str] = []
        """What the report shall say beside the numbers."""
        self.scores = Scores()
        self.timing = RunTimingReport(spec.rollout_timeout_s) if spec.rollout_timeout_s is not None else None
        self._agents = AgentCounts(map(self._agent_name, range(len(plan))) if spec.paths is not None else ())
        if held.history is not None and spec.resume is not None:
            restore(held.history, spec.resume, spec.max_attempts, plan, self.ledger, self.tally, names)
            if spec.resume.only and not self.ledger.leasable:
                self.notes.append(f"no rollout is what --only asks for: {', '.join(spec.resume.only)}")
            for number in filter(held.history.has_result, range(len(plan))):
                self._score(number, held.history.reward(number), masked=held.history.is_masked(number))
            for number in range(len(plan)):
                if (state := self.ledger.state(number)) in (State.RESULT, State.FAILURE):
                    self._agents.add(self._agent_name(number), is_result=state is State.RESULT)
        if isinstance(plan, MemoryPlan):
            for number in range(len(plan)):
                self.ledger.use_attempts(number, plan.attempt(number))
        elif spec.is_open_ended:
            for number in range(len(plan)):
                self.ledger.set_aside(number)  # until it is released
        self.deliveries = Deliveries()
        self.budget = DispatchBudget(spec.dispatch_budget_s, spec.drain_margin_s, spec.token_budget, now)
        self.phase = Phase.DISPATCHING
        self.is_stopped = self.is_given_up = False
        self.is_draining = spec.is_draining
        self.is_sealed = not spec.is_open_ended
        self.report: RunReport | None = None
        self.error: BaseException | None = None
        self.stall = StallWatch(spec.stall_factor, now)
        self._let_go: set[int] = set()
        self.changed = asyncio.Event()
        """Set when deliveries arrive or the phase changes; whoever waits clears it."""
        self.lease_ended = asyncio.Event()
        """Set whenever one may have; whoever waits clears it."""
        self.concluding: asyncio.Task[None] | None = None
        self.forgetting: asyncio.Task[None] | None = None
        self._unstarted: list[tuple[int, str]] = []
        self.made_progress = False
        """True once an outcome came that is more than an interruption."""

    @property
    def wants_dispatch(self) -> bool:
        """True while rollouts may be leased."""
        is_ending = self.is_stopped or self.is_draining
        return self.phase is Phase.DISPATCHING and not is_ending and not self._is_held_up

    @property
    def leasable(self) -> int:
        """Rollouts that could be leased now."""
        return self.ledger.leasable if self.wants_dispatch else 0

    @property
    def leasable_by_server(self) -> dict[int, int]:
        """The same for each environment server that has some."""
        return self.ledger.leasable_by_server() if self.wants_dispatch else {}

    def has_budget(self, now: float) -> bool:
        """True while neither time nor tokens have run out: what is owed may then start."""
        return self.budget.out_of_time(now) is None and self.budget.out_of_tokens is None

    @property
    def may_wait_in_shards(self) -> bool:
        """False where a lease must start at once: a budget decides at that moment, or a lease that was lost counts as
        an attempt that may have run."""
        return self.spec.retry_requests and not self.budget.is_limited

    @property
    def is_dispatched(self) -> bool:
        """True once nothing is in a shard's hands and nothing will be leased."""
        if self.ledger.count(State.LEASED):
            return False
        return self.is_stopped or self.is_draining or (self.is_sealed and self.ledger.is_over)

    @property
    def is_unchanged(self) -> bool:
        """True if the run had concluded before and nothing has ended since."""
        last, now = self.held.last_status, self.tally.snapshot(0.0)
        return (
            last is not None
            and last.state in (RunState.COMPLETE, RunState.INCOMPLETE)
            and (last.completed, last.failed) == (now.results, now.failures)
            and now.earlier == now.results + now.failures
        )

    @property
    def _is_held_up(self) -> bool:
        return self.spec.deliver and self.deliveries.is_full

    def _agent_name(self, number: int) -> str:
        """The agent of a rollout; a materialized task names only its environment server."""
        return self.plan.agent(number) or self.server_name(number)

    def server_name(self, number: int) -> str:
        """The environment server of a rollout."""
        return self._servers[self.plan.server(number)].name

    def lease(self, shares: Mapping[int, int], now: float) -> list[tuple[LeaseHeader, bytes]]:
        """Up to so many rollouts of each server for a shard; none once a budget is spent, which ends those owed."""
        if not self.wants_dispatch:
            return []
        if (reason := self.budget.out_of_time(now)) is not None:
            self._withhold(State.DRAINED, reason)
        elif (reason := self.budget.out_of_tokens) is not None:
            self._withhold(State.OMITTED, reason)
        leased = []
        spec = self.spec
        for number, attempt in self.ledger.lease(shares):
            line = self._line(number)
            self.tally.started(1)
            header = LeaseHeader(
                run=spec.run_id,
                number=number,
                attempt=attempt,
                server=self.plan.server(number),
                size=len(line),
                retry_requests=spec.retry_requests,
                timeout_s=spec.rollout_timeout_s,
                is_plain=spec.is_plain or (spec.is_enriched and not self._has_id(number)),
                counts_tokens=self.budget.counts_tokens,
                enrichment=spec.enrichment,
            )
            leased.append((header, line))
        return leased

    def _line(self, number: int) -> bytes:
        """The row as it is sent; a server that kept something of an earlier attempt is told to use it."""
        line, history = self.plan.line(number), self.held.history
        if history is None or not history.reuses_deliverable(number):
            return line
        row = json.loads(line)
        return msgspec.json.encode({**row, keys.REUSE_CACHED_DELIVERABLE: True}) + b"\n"

    def _has_id(self, number: int) -> bool:
        return not isinstance(self.plan, MemoryPlan) or self.plan.has_id(number)

    def _is_final(self, header: CompletionHeader) -> bool:
        """True if a failure is the last word on its rollout."""
        if header.terminal or header.is_interruption:
            return header.terminal
        earlier = self.held.history.spent(header.number) if self.held.history is not None else 0
        return earlier + 1 >= self.spec.max_attempts

    def feed(self, lines: Iterable[bytes]) -> None:
        """Plan more rows of an open-ended run.

        Raises:
            RoutingError: a row names no server that this driver knows.
        """
        if not isinstance(self.plan, MemoryPlan):
            raise TypeError("only a run in memory takes more rows")
        before = len(self.plan)
        self.plan.add(lines)
        for number in range(before, len(self.plan)):
            self.tally.planned(self.server_name(number), 1)
        self.ledger.extend(map(self.plan.server, range(before, len(self.plan))))
        for number in range(before, len(self.plan)):
            self.ledger.use_attempts(number, self.plan.attempt(number))

    def settle(self, header: CompletionHeader, record: memoryview | bytes) -> bool:
        """Count a written outcome; False for a second one of the same rollout, which is dropped."""
        kind = OutcomeKind(header.kind)
        if not self.ledger.settle(header.number, _STATE_OF[kind]):
            return False
        self.made_progress |= kind is not OutcomeKind.OMITTED and not header.is_interruption
        server = self.server_name(header.number)
        self.tally.finished(
            server,
            kind,
            latency_ms=header.latency_ms,
            reward=header.reward,
            masked=header.masked,
            failure_class=header.failure_class,
            terminal=self._is_final(header),
            sends=header.sends,
            attempt=header.attempt,
        )
        if self.timing is not None and self.spec.rollout_timeout_s is not None:
            if kind is OutcomeKind.RESULT:
                self.timing.add(header.latency_ms / 1000)
            elif header.latency_ms >= 1000 * self.spec.rollout_timeout_s:
                self.timing.add_timed_out()
        if self.spec.paths is not None and kind is not OutcomeKind.OMITTED:
            self._agents.add(self._agent_name(header.number), is_result=kind is OutcomeKind.RESULT)
        if kind is OutcomeKind.RESULT and not self.spec.is_plain:
            self._score(header.number, header.reward, masked=header.masked)
        if kind is OutcomeKind.RESULT:
            self.budget.took(header.latency_ms / 1000, header.tokens)
        if self.spec.deliver:
            self.deliveries.put(Delivery(header, self.plan.line(header.number), bytes(record)))
        return True

    def _score(self, number: int, reward: float | None, *, masked: bool) -> None:
        if reward is not None and not masked:
            self.scores.add(self.server_name(number), self.plan.agent(number), self.plan.key(number)[0], reward)

    def persisted(self, header: CompletionHeader, record: memoryview | bytes) -> memoryview | bytes:
        """The line that is kept of an outcome; empty for one of which nothing is."""
        if header.kind == OutcomeKind.FAILURE and self.spec.marks_failures_unrouted:
            line = bytes(record)
            return line if is_reported(line) else unrouted(line)
        if header.kind == OutcomeKind.OMITTED:
            if not self.spec.records_omitted:
                return b""
            return self._omitted_row(header.number, header.attempt, keys.KILL_SHAPED, "the server asked for no record")
        return record

    def unstarted_rows(self) -> list[tuple[int, bool, bytes]]:
        """Sidecar rows, as a recorder takes them, for rollouts that a budget kept from starting."""
        if not self.spec.records_omitted:
            return []
        return [
            (
                self.plan.owner(number),
                False,
                self._omitted_row(number, self.ledger.attempts(number), keys.CANCELLED, reason, is_drained=True),
            )
            for number, reason in self._unstarted
        ]

    def _omitted_row(self, number: int, attempt: int, name: str, reason: str, *, is_drained: bool = False) -> bytes:
        server = self._servers[self.plan.server(number)]
        this = Attempt(read_identity(self.plan.line(number)), attempt, server, self.spec.run_id)
        return omitted_row(this, name, reason, is_drained=is_drained)

    def _withhold(self, state: State, reason: str) -> None:
        numbers = self.ledger.withhold(state)
        if not numbers:
            return
        logger.warning("%d rollouts were not started: %s", len(numbers), reason)
        bound = "" if state is State.DRAINED else f" (at most {self.ledger.count(State.LEASED)})"
        self.notes.append(f"{len(numbers)} rollouts were not started: {reason}{bound}")
        self._unstarted += [(number, reason) for number in numbers]
        self.tally.withheld(len(numbers), is_drained=state is State.DRAINED)
        if self.spec.deliver:
            record = msgspec.json.encode(
                {
                    keys.FAILURE_CLASS: keys.CANCELLED,
                    keys.NO_PERSIST: True,
                    keys.DISPATCH_DRAINED: True,
                    keys.ERROR_MESSAGE: reason,
                }
            )
            for number in numbers:
                header = CompletionHeader(
                    run=self.spec.run_id, number=number, attempt=self.ledger.attempts(number),
                    kind=int(OutcomeKind.WITHHELD), size=len(record), reply_bytes=0, latency_ms=0.0, reward=None,
                    masked=False, failure_class=keys.CANCELLED, terminal=False, tokens=None, sends=0,
                )  # fmt: skip
                self.deliveries.put(Delivery(header, self.plan.line(number), record))
        self.changed.set()

    def give_back(self, number: int, *, started: bool) -> None:
        """Owe a leased rollout again."""
        self.ledger.give_back(number, started=started)
        if number in self._let_go:
            self._let_go.discard(number)
            self.ledger.set_aside(number)
        self.tally.returned(1)

    def let_go(self, numbers: Sequence[int], reason: str) -> None:
        """Do not lease these again once they come back: they stay owed."""
        self._let_go.update(numbers)
        self.notes.append(f"{len(numbers)} rollouts were cancelled and are owed: {reason}")

    def enter(self, phase: Phase) -> None:
        """Change the phase and tell whoever waits."""
        self.phase = phase
        self.changed.set()

    def status(self, now: float, shards: int) -> RunStatus:
        """How the run stands, for `<stem>_run_status.json`."""
        progress = self.tally.snapshot(now)
        state = RunState.RUNNING
        if self.error is not None:
            state = RunState.FAILED
        elif self.report is not None:
            state = RunState.COMPLETE if self.report.is_complete else RunState.INCOMPLETE
        elif self.is_given_up:
            state = RunState.INCOMPLETE
        return RunStatus(
            state=state,
            updated_at=f"{datetime.now(UTC):%FT%TZ}",
            run_id=self.spec.run_id,
            output=self.spec.paths.merged.name if self.spec.paths else "",
            expected=progress.planned,
            completed=progress.results,
            failed=progress.failures,
            omitted=progress.omitted + progress.drained,
            remaining=progress.owed,
            failures_by_kind=progress.failures_by_class,
            by_agent=self._agents.by_agent(),
            aggregation=None if self.report is None else self.report.aggregation,
            shards=shards,
        )

    def view(self, now: float) -> RunView:
        """A snapshot for the caller."""
        was_stopped = self.is_stopped or self.is_draining
        return RunView(self.phase, self.tally.snapshot(now), self.report, self.error, was_stopped)

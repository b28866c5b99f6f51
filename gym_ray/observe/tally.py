"""Counts of a run as it goes, in a few microseconds for each rollout, and snapshots of them for people and programs.

Pure: time is an argument. The equation `planned = results + failures + drained + omitted + owed` holds in every
snapshot; rollouts in flight are part of what is owed.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from gym_ray.observe.latency import LatencyHistogram
from gym_ray.outcomes.outcome import OutcomeKind

RATE_WINDOW_S = 10.0
"""The rate shown is that of the last ten seconds."""


@dataclass(frozen=True, slots=True)
class ServerProgress:
    """The part of one environment server."""

    planned: int
    results: int
    failures: int
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class InFlight:
    """A rollout that a run waits for."""

    task_index: int
    rollout_index: int
    attempt: int
    server: str
    age_s: float
    """Since it was handed to its shard."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A run at one moment."""

    planned: int
    results: int
    failures: int
    drained: int
    omitted: int
    in_flight: int
    cap: int
    elapsed_s: float
    rate_per_s: float
    eta_s: float | None
    reward_sum: float
    rewarded: int
    masked: int
    terminal_failures: int
    retries: int
    later_attempts: int = 0
    """Rollouts that ended here in an attempt after their first."""
    earlier: int = 0
    """Results and failures that stand from earlier invocations of the run."""
    failures_by_class: dict[str, int] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)
    servers: dict[str, ServerProgress] = field(default_factory=dict)
    oldest: tuple[InFlight, ...] = ()
    """Once nothing is left to start: the rollouts that have been in flight longest, oldest first."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The right side of the equation."""
        return ("results", "failures", "drained", "omitted", "owed")

    @property
    def owed(self) -> int:
        """Still to do, in flight or not."""
        return self.planned - self.results - self.failures - self.drained - self.omitted

    @property
    def equation(self) -> str:
        """Where every planned rollout is."""
        return f"planned {self.planned} = " + " + ".join(f"{part} {getattr(self, part)}" for part in self.parts)

    @property
    def mean_rate_per_s(self) -> float:
        """Rollouts that ended in a second, over the whole time."""
        ended = self.results + self.failures + self.omitted - self.earlier
        return ended / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def mean_reward(self) -> float | None:
        """Over the results that carry a reward and are not masked."""
        return self.reward_sum / self.rewarded if self.rewarded else None

    @property
    def mean_reward_failures_as_zero(self) -> float | None:
        """The same with every failure counted as a reward of zero."""
        over = self.rewarded + self.failures
        return self.reward_sum / over if over else None


@dataclass(slots=True)
class _Server:
    planned: int
    results: int = 0
    failures: int = 0
    reward_sum: float = 0.0
    rewarded: int = 0


class Tally:
    """The running counts of one run."""

    def __init__(self, planned_by_server: Mapping[str, int], cap: int, started_at: float) -> None:
        self._servers = {name: _Server(planned) for name, planned in planned_by_server.items()}
        self._cap = cap
        self._started_at = started_at
        self._latency = LatencyHistogram()
        self._kinds = [0, 0, 0]
        self._drained = self._held = self._retries = self._masked = self._terminal = self._earlier = self._later = 0
        self._classes: Counter[str] = Counter()
        self._history: deque[tuple[float, int]] = deque([(started_at, 0)])

    def planned(self, server: str, count: int) -> None:
        """Plan more rollouts."""
        part = self._servers.setdefault(server, _Server(0))
        part.planned += count

    def started(self, count: int) -> None:
        """Note rollouts that a shard now holds."""
        self._held += count

    def returned(self, count: int) -> None:
        """Note rollouts that came back without an outcome."""
        self._held -= count

    def withheld(self, count: int, *, is_drained: bool) -> None:
        """Note rollouts that never start: the budget left no time for them, or no tokens."""
        if is_drained:
            self._drained += count
        else:
            self._kinds[OutcomeKind.OMITTED] += count

    def finished(
        self,
        server: str,
        kind: OutcomeKind,
        *,
        latency_ms: float,
        reward: float | None,
        masked: bool,
        failure_class: str | None,
        terminal: bool,
        sends: int,
        attempt: int = 0,
    ) -> None:
        """Note one outcome."""
        self._held -= 1
        self._later += attempt > 0
        self._retries += max(sends - 1, 0)
        self._count(server, kind, reward, masked, failure_class, terminal)
        if kind is OutcomeKind.RESULT:
            self._latency.add(latency_ms)

    def restored(
        self,
        server: str,
        kind: OutcomeKind,
        *,
        reward: float | None = None,
        masked: bool = False,
        failure_class: str | None = None,
        terminal: bool = False,
    ) -> None:
        """Note an outcome that stands from an earlier invocation."""
        self._earlier += 1
        self._history[0] = (self._started_at, self._earlier)
        self._count(server, kind, reward, masked, failure_class, terminal)

    def _count(
        self,
        server: str,
        kind: OutcomeKind,
        reward: float | None,
        masked: bool,
        failure_class: str | None,
        terminal: bool,
    ) -> None:
        self._kinds[kind] += 1
        part = self._servers[server]
        if kind is OutcomeKind.RESULT:
            part.results += 1
            self._masked += masked
            if reward is not None and not masked:
                part.reward_sum += reward
                part.rewarded += 1
        elif kind is OutcomeKind.FAILURE:
            part.failures += 1
            self._classes[failure_class or "unclassified"] += 1
            self._terminal += terminal

    @property
    def p99_s(self) -> float | None:
        """The 99th percentile of what results took."""
        p99_ms = self._latency.percentile(99)
        return None if p99_ms is None else p99_ms / 1000

    def snapshot(self, now: float) -> Progress:
        """The run at `now`."""
        ended = sum(self._kinds)
        planned = sum(part.planned for part in self._servers.values())
        rate = self._rate(now, ended)
        rewarded = sum(part.rewarded for part in self._servers.values())
        percentiles = {f"p{percent}": self._latency.percentile(percent) for percent in (50, 90, 99)}
        return Progress(
            planned=planned,
            results=self._kinds[OutcomeKind.RESULT],
            failures=self._kinds[OutcomeKind.FAILURE],
            drained=self._drained,
            omitted=self._kinds[OutcomeKind.OMITTED],
            in_flight=min(self._held, self._cap),  # what a shard holds beyond the cap waits there for a slot
            cap=self._cap,
            elapsed_s=now - self._started_at,
            rate_per_s=rate,
            eta_s=(planned - ended - self._drained) / rate if rate > 0 else None,
            reward_sum=sum(part.reward_sum for part in self._servers.values()),
            rewarded=rewarded,
            masked=self._masked,
            terminal_failures=self._terminal,
            retries=self._retries,
            later_attempts=self._later,
            earlier=self._earlier,
            failures_by_class=dict(self._classes.most_common()),
            latency_ms={name: value for name, value in percentiles.items() if value is not None}
            | ({"max": self._latency.max_ms} if self._latency.count else {}),
            servers={
                name: ServerProgress(
                    part.planned,
                    part.results,
                    part.failures,
                    part.reward_sum / part.rewarded if part.rewarded else None,
                )
                for name, part in self._servers.items()
            },
        )

    def _rate(self, now: float, ended: int) -> float:
        if now > self._history[-1][0]:
            self._history.append((now, ended))
        while len(self._history) > 2 and self._history[1][0] <= now - RATE_WINDOW_S:
            self._history.popleft()
        then, before = self._history[0]
        return (ended - before) / (now - then) if now > then else 0.0

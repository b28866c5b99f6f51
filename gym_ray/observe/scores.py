"""Scores that gym_ray computes itself while results come in: mean, error, pass@k. Pure.

They stand beside the servers' own metrics, and the same code computes them from files, so both can be compared. Only
results with a reward that are not masked count. A result is *solved* if its reward is at least 1.

The error of the mean takes the repeats of a task as one cluster, because they are not independent: it is the
cluster-robust error of a ratio estimator, `sqrt(T/(T-1) * sum_t (s_t - n_t * mean)^2) / N` for T tasks with n_t scored
repeats of sum s_t. pass@k is the unbiased estimator `1 - C(n-c, k) / C(n, k)`, averaged over the tasks with at least k
scored repeats; for fewer it is undefined, which is counted and never taken for 0 or 1.
"""

from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import comb, fsum, sqrt
from typing import Any

SOLVED = 1.0
Z_95 = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""


@dataclass(frozen=True, slots=True)
class PassAtK:
    """pass@k over the tasks for which it is defined."""

    k: int
    value: float | None
    """None if no task has k scored repeats."""
    tasks: int
    undefined: int
    """Tasks with fewer than k scored repeats."""


@dataclass(frozen=True, slots=True)
class Score:
    """What one group of results adds up to."""

    server: str
    agent: str | None
    mean: float
    standard_error: float | None
    """None for a single task."""
    scored: int
    """Results that count."""
    tasks: int
    """Tasks with at least one of them."""
    pass_at: tuple[PassAtK, ...]

    def to_dict(self) -> dict[str, Any]:
        """The score as JSON values."""
        return {**asdict(self), "interval_95": self.interval_95}

    @property
    def interval_95(self) -> tuple[float, float] | None:
        """The normal 95 % confidence interval of the mean."""
        if self.standard_error is None:
            return None
        return self.mean - Z_95 * self.standard_error, self.mean + Z_95 * self.standard_error


class _Group:
    """Per task, by slot: scored repeats, their sum, and how many are solved. 12 bytes a task."""

    def __init__(self) -> None:
        self.counts, self.sums, self.solved = array("H"), array("d"), array("H")

    def add(self, task: int, reward: float) -> None:
        if task >= len(self.counts):
            missing = task + 1 - len(self.counts)
            self.counts.extend([0] * missing)
            self.sums.extend([0.0] * missing)
            self.solved.extend([0] * missing)
        self.counts[task] += 1
        self.sums[task] += reward
        self.solved[task] += reward >= SOLVED


class Scores:
    """The running scores of a run, by environment server and agent."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str | None], _Group] = {}
        self._slots: dict[int, int] = {}

    def add(self, server: str, agent: str | None, task: int, reward: float) -> None:
        """Count a scored, unmasked result; `task` is any number that names its task."""
        group = self._groups.get((server, agent))
        if group is None:
            group = self._groups[server, agent] = _Group()
        group.add(self._slots.setdefault(task, len(self._slots)), reward)

    def summary(self) -> tuple[Score, ...]:
        """The scores by server and agent, sorted by name."""
        ordered = sorted(self._groups.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        return tuple(_score(server, agent, group) for (server, agent), group in ordered)


def _score(server: str, agent: str | None, group: _Group) -> Score:
    tasks = [task for task, count in enumerate(group.counts) if count]
    scored = sum(group.counts)
    mean = fsum(group.sums) / scored  # exact sums, so that the order of completions does not show
    error = None
    if len(tasks) > 1:
        spread = fsum((group.sums[task] - group.counts[task] * mean) ** 2 for task in tasks)
        error = sqrt(spread * len(tasks) / (len(tasks) - 1)) / scored
    return Score(server, agent, mean, error, scored, len(tasks), tuple(_passes(group, tasks)))


def _passes(group: _Group, tasks: list[int]) -> Iterator[PassAtK]:
    """pass@1, @2, @4 and so on, and that of the largest group."""
    largest = max(group.counts[task] for task in tasks)
    ks = {1 << power for power in range(largest.bit_length()) if 1 << power <= largest} | {largest}
    for k in sorted(ks):
        values = [
            1.0 - comb(group.counts[task] - group.solved[task], k) / comb(group.counts[task], k)
            for task in tasks
            if group.counts[task] >= k
        ]
        value = fsum(values) / len(values) if values else None
        yield PassAtK(k, value, len(values), len(tasks) - len(values))

"""Durations of rollouts: exact percentiles, pooled over as many calls as share a tracker. Pure."""

from array import array
from collections.abc import Sequence
from math import inf


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of sorted values lie, interpolated at position (n - 1) * share."""
    position = (len(ordered) - 1) * share
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


class DispatchLatencyTracker:
    """Collects how long successful rollouts took; hand one to `run_examples`, or the same one to several calls."""

    def __init__(self) -> None:
        self._durations = array("d")
        self._is_sorted = True
        self.num_drained = 0
        """Rows that a dispatch budget kept from starting."""

    def record(self, duration_s: float) -> None:
        """Note the duration of a successful rollout; one that is not positive and finite is passed over."""
        if 0 < duration_s < inf:
            self._durations.append(duration_s)
            self._is_sorted = False

    def record_drained(self, count: int = 1) -> None:
        """Note rows that did not start."""
        self.num_drained += count

    def __len__(self) -> int:
        return len(self._durations)

    def percentile(self, percent: float) -> float | None:
        """A percentile in seconds; None before the first duration."""
        if not self._durations:
            return None
        if not self._is_sorted:
            self._durations = array("d", sorted(self._durations))
            self._is_sorted = True
        return quantile(self._durations, percent / 100)

    @property
    def total_s(self) -> float:
        """All durations together."""
        return sum(self._durations)

    def summary(self) -> dict[str, float | int | None]:
        """Count, percentiles and sum in seconds, and the rows that were drained."""
        return {
            "count": len(self),
            "median_s": self.percentile(50),
            "p90_s": self.percentile(90),
            "p99_s": self.percentile(99),
            "max_s": self.percentile(100),
            "total_s": self.total_s,
            "drained": self.num_drained,
        }

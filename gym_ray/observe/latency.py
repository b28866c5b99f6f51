"""Latencies in logarithmic buckets: any number of them in a few kilobytes, mergeable over processes."""

import math
from collections import Counter

GROWTH = 1.02
"""Neighbouring buckets differ by 2 %, so a percentile is off by at most 1 %."""
_LOG_GROWTH = math.log(GROWTH)
_FLOOR_MS = 0.01
"""Everything faster shares one bucket."""


class LatencyHistogram:
    """Counts of latencies in milliseconds."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.max_ms = 0.0

    def add(self, latency_ms: float) -> None:
        """Count one latency."""
        self._buckets[math.floor(math.log(max(latency_ms, _FLOOR_MS)) / _LOG_GROWTH)] += 1
        self.count += 1
        self.max_ms = max(self.max_ms, latency_ms)

    def merge(self, other: "LatencyHistogram") -> None:
        """Take over the counts of another histogram."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self.max_ms = max(self.max_ms, other.max_ms)

    def percentile(self, percent: float) -> float | None:
        """The latency below which `percent` of all lie, within 2 %; None without any."""
        rank = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(float(GROWTH ** (bucket + 0.5)), self.max_ms)
        return None

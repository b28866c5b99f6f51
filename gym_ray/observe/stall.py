"""Notices that a run stands still: nothing has ended for much longer than rollouts take. Pure: time is an argument."""

FLOOR_S = 10.0
"""Fast rollouts make short silences look long."""
UNKNOWN_S = 600.0
"""The limit while nothing has ended yet, so that nobody knows how long a rollout takes."""


class StallWatch:
    """One run. `factor` times the 99th percentile of what rollouts took is the silence that counts as a stall."""

    def __init__(self, factor: float, now: float) -> None:
        self._factor = factor
        self._last_at = now
        self._said = 0

    def moved(self, now: float) -> None:
        """Something has ended, or nothing is in flight that could."""
        self._last_at = now
        self._said = 0

    def limit_s(self, p99_s: float | None) -> float:
        """The silence that counts as a stall."""
        return UNKNOWN_S if p99_s is None else max(self._factor * p99_s, FLOOR_S)

    def silence_s(self, now: float, p99_s: float | None) -> float | None:
        """How long nothing has ended, if that is to be said now: at the limit and at each doubling of it."""
        silence_s = now - self._last_at
        if silence_s < self.limit_s(p99_s) * 2**self._said:
            return None
        self._said += 1
        return silence_s

"""The health of a run whose rollouts have a time limit: how near they come, and how busy its servers are. Pure."""

from collections.abc import Iterator

from gym_ray.observe.latency import LatencyHistogram

NEAR = 0.8
"""Above this share of the limit a rollout is close to being cut."""


class RunTimingReport:
    """Durations against the limit, and samples of load."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._durations = LatencyHistogram()
        self._near = self.timed_out = 0
        self._waiting: list[int] = []
        self._running: list[int] = []
        self._without_answer = 0

    def add(self, latency_s: float) -> None:
        """Note a result."""
        self._durations.add(latency_s * 1000)
        self._near += latency_s > NEAR * self._limit_s

    def add_timed_out(self) -> None:
        """Note a rollout that was cut by the limit."""
        self.timed_out += 1

    def add_load(self, load: tuple[int, int] | None) -> None:
        """One sample of requests waiting and running, summed over every server; None if no server answered."""
        if load is None:
            self._without_answer += 1
            return
        self._waiting.append(load[0])
        self._running.append(load[1])

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        count = self._durations.count
        share = f"{self._near} of {count} results took more than {NEAR:.0%} of it" if count else "no result yet"
        yield f"time limit of a rollout: {self._limit_s:g} s; {self.timed_out} were cut by it; {share}"
        if self._waiting:
            yield (
                f"servers, {len(self._waiting)} samples: waiting {_spread(self._waiting)}, "
                f"running {_spread(self._running)}"
            )
        if self._without_answer:
            yield f"servers: {self._without_answer} samples found none that says how busy it is"


def _spread(values: list[int]) -> str:
    return f"{sum(values) / len(values):.1f} on average and {max(values)} at most"

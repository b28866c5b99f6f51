"""The work: how many rollouts, how large, how slow, how many at once."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.server import AGENT

ROW_CHARS = 500
"""Prompt of a row: that of a short word problem with instructions."""


@dataclass(frozen=True)
class Scenario:
    """One piece of work that every side does."""

    name: str
    rollouts: int
    reply_bytes: int
    concurrency: int
    shards: int
    latency_s: tuple[float, float] = (0.0, 0.0)

    @property
    def mean_latency_s(self) -> float:
        return sum(self.latency_s) / 2

    def scaled(self, factor: float) -> "Scenario":
        """The same with a share of the rollouts, but never fewer than fill the cap twice."""
        return replace(self, rollouts=max(round(self.rollouts * factor), min(2 * self.concurrency, self.rollouts)))

    def ideal_s(self, longest_s: float) -> float:
        """Wall time of a collector that costs nothing: the cap is full until the last rollouts run out."""
        return self.rollouts * self.mean_latency_s / self.concurrency + longest_s


QUICK_S = (0.005, 0.015)
"""Long enough that the cap is really in flight, short enough that 256 at once could be 25,000 a second."""

SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    # Many quick, small replies: the cost of the collector itself
    "small": (Scenario("small", 20_000, 1_000, 256, 2, QUICK_S),),
    # Long transcripts: the cost of moving and judging bytes
    "large": (Scenario("large", 2_000, 200_000, 256, 2, QUICK_S),),
    # Slow replies, thousands at once: whether the cap is really used
    "wide": (Scenario("wide", 8_000, 1_000, 4096, 2, (1.0, 2.0)),),
    # The same work at two lengths: what memory grows with
    "memory": (
        Scenario("memory-2000", 2_000, 1_000, 256, 2, QUICK_S),
        Scenario("memory-50000", 50_000, 1_000, 256, 2, QUICK_S),
    ),
}


def write_rows(path: Path, count: int) -> None:
    """Input rows in the flat form, as every side reads them."""
    with path.open("w") as file:
        for number in range(count):
            question = f"Question {number}: what is {number} + {number % 97}? ".ljust(ROW_CHARS, ".")
            row = {
                "id": number,
                "responses_create_params": {"input": [{"role": "user", "content": question}]},
                "agent_ref": {"type": "responses_api_agents", "name": AGENT},
            }
            file.write(json.dumps(row) + "\n")

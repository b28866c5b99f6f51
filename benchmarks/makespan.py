"""How long a run takes beside the shortest possible, where shards or rollouts differ.

Driver, pool and shards are the real ones; what is simulated is the rollouts, which only wait, and the clock, which
jumps. So the numbers are exact, and the same on every machine.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.actors.fakes import World, makespan
from tests.virtual import run_virtual

SHARDS = 4


@dataclass(frozen=True)
class Workload:
    name: str
    count: int
    cap: int
    seconds: Callable[[int], float]
    """How long a rollout takes in a shard of usual speed."""
    slowness: dict[int, float] = field(default_factory=dict)
    """How many times longer in the shard of a slot."""

    @property
    def ideal_s(self) -> float:
        """All slots of all shards are busy until the end."""
        slots = self.cap / SHARDS
        rate = sum(slots / self.slowness.get(slot, 1.0) for slot in range(SHARDS))
        return sum(map(self.seconds, range(self.count))) / rate

    @property
    def split_s(self) -> float:
        """Every shard works off the rollouts whose records it has, task after task in turn."""
        slots = self.cap / SHARDS
        return max(
            sum(map(self.seconds, range(slot, self.count, SHARDS))) * self.slowness.get(slot, 1.0) / slots
            for slot in range(SHARDS)
        )

    def measured_s(self) -> float:
        world = World(self.seconds)
        world.slowness = self.slowness
        return run_virtual(makespan(world, self.count, shards=SHARDS, cap=self.cap))


def workloads() -> list[Workload]:
    long_first = lambda number: 10.0 - 9.0 * number / 2000  # noqa: E731
    short_first = lambda number: 1.0 + 9.0 * number / 2000  # noqa: E731
    return [
        Workload("one shard is 10x slower", 2000, 16, lambda _: 1.0, {0: 10.0}),
        Workload("one shard is 10x slower, 256 in flight", 20_000, 256, lambda _: 1.0, {0: 10.0}),
        Workload("sorted, 1-10 s, short ones first", 2000, 64, short_first),
        Workload("sorted, 1-10 s, long ones first", 2000, 64, long_first),
        Workload("short ones first, one shard is 10x slower", 2000, 16, short_first, {0: 10.0}),
    ]


def main() -> None:
    logging.disable()  # the ends of these runs are stalls, and are said to be
    table = Table("work on 4 shards", "ideal s", "gym_ray s", "ratio", "split in advance")
    for work in workloads():
        ideal, measured = work.ideal_s, work.measured_s()
        table.add_row(
            work.name, f"{ideal:,.1f}", f"{measured:,.1f}", f"{measured / ideal:.2f}x", f"{work.split_s / ideal:.2f}x"
        )
    Console().print(table)


if __name__ == "__main__":
    main()

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray.errors import RoutingError
from gym_ray.paths import RunPaths
from gym_ray.planning.arriving import BATCH, feed
from gym_ray.planning.in_memory import PlanCollector
from gym_ray.planning.shaping import Shaping
from gym_ray.planning.writing import PlanWriter
from gym_ray.rows.memory import rows_of_async
from tests.planning.planned import Row, deployment, plan, row, shaping


class Arriving:
    """Rows that arrive, and how many were taken."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows, self.taken = rows, 0

    async def __aiter__(self) -> AsyncIterator[Row]:
        for each in self.rows:
            self.taken += 1
            yield each


ROWS = [row("a", "games", x=number) for number in range(BATCH * 2 + 5)]


async def collected(arriving: Arriving, **settings: Any) -> list[Row]:
    wanted = shaping(**settings)
    collector = PlanCollector(wanted, deployment())
    await feed(collector, rows_of_async(arriving), wanted)
    return [json.loads(line) for line in collector.finish()[0]]


@pytest.mark.parametrize("settings", [{}, {"limit": 7}, {"sample": 9}, {"limit": 300, "sample": 9}, {"num_repeats": 2}])
async def test_rows_that_arrive_are_planned_like_rows_that_are_there(settings: dict[str, Any]) -> None:
    assert await collected(Arriving(ROWS), **settings) == plan(ROWS, **settings)


async def test_no_row_beyond_the_limit_is_waited_for() -> None:
    arriving = Arriving(ROWS)
    await collected(arriving, limit=3)
    assert arriving.taken == 3


async def test_rows_that_arrive_are_written(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    with PlanWriter(Shaping(), deployment(), paths, 2) as writer:
        await feed(writer, rows_of_async(Arriving(ROWS)), Shaping())
        assert sum(writer.publish().rollouts_by_shard) == len(ROWS)


async def test_problems_of_rows_that_arrive_are_told_together(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    rows = [row("nobody"), *ROWS, row("nobody")]
    with (
        PlanWriter(Shaping(), deployment(), paths, 2) as writer,
        pytest.raises(RoutingError, match=rf"rows\[0\], rows\[{len(rows) - 1}\]"),
    ):
        await feed(writer, rows_of_async(Arriving(rows)), Shaping())
        writer.publish()
    assert list(tmp_path.iterdir()) == []

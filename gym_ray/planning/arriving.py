"""Plans rows that arrive asynchronously, without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterable

from gym_ray.planning.in_memory import PlanCollector
from gym_ray.planning.shaping import Shaping
from gym_ray.planning.writing import PlanWriter
from gym_ray.rows.source_row import SourceRow

BATCH = 256
"""Rows for each visit to a thread: a visit costs about 100 µs, a row 20."""


async def feed(plan: PlanWriter | PlanCollector, rows: AsyncIterable[SourceRow], shaping: Shaping) -> None:
    """Plan the rows in threads, up to the limit of the shaping. Cancelled, it stops between two batches.

    With a sample the rows are kept in memory until the last one has arrived.
    """
    limit, samples = shaping.limit or None, shaping.choice.sample is not None
    batch: list[SourceRow] = []
    count = 0
    async for row in rows:
        batch.append(row)
        count += 1
        if not samples and len(batch) == BATCH:
            await asyncio.to_thread(plan.extend, batch)
            batch = []
        if count == limit:
            break
    await asyncio.to_thread(lambda: plan.extend(plan.drawn_from(batch)))

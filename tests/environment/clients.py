"""Clients whose waits cost nothing, on both event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from gym_ray.environment.client import EnvironmentClient

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Waits:
    """A clock that only sleeping moves, and what was slept."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now += delay_s
        await asyncio.sleep(0)


@asynccontextmanager
async def a_client(
    *,
    retry_requests: bool = True,
    retry_budget_s: float | None = None,
    draw: float = 0.5,
    waits: Waits | None = None,
    **more: Any,
) -> AsyncIterator[EnvironmentClient]:
    waits = waits or Waits()
    client = EnvironmentClient(
        retry_requests=retry_requests,
        retry_budget_s=retry_budget_s,
        clock=waits.clock,
        wall_clock=lambda: 1_700_000_000.0,
        sleep=waits.sleep,
        draw=lambda: draw,
        **more,
    )
    try:
        yield client
    finally:
        await client.aclose()

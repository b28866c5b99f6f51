"""Where a task waits, in one line for a person."""

import asyncio
from pathlib import PurePath
from typing import Any

MAX_FRAMES = 8
"""The innermost ones; what lies outside of them is the same for every attempt."""


def waiting_place(task: "asyncio.Task[Any]") -> str:
    """The coroutines that a suspended task is in, as `outer > ... > inner (file:line)`."""
    frames: list[tuple[str, str]] = []
    waits_in: Any = task.get_coro()
    while waits_in is not None:
        frame = getattr(waits_in, "cr_frame", None) or getattr(waits_in, "gi_frame", None)
        if frame is None:
            break
        frames.append((frame.f_code.co_name, f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"))
        waits_in = getattr(waits_in, "cr_await", None) or getattr(waits_in, "gi_yieldfrom", None)
    if not frames:
        return "not started"
    return " > ".join(name for name, _ in frames[-MAX_FRAMES:]) + f" ({frames[-1][1]})"

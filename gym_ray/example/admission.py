"""How many episodes run at once, and how long the others wait for a place.

Invariant: at most `max_running` are inside, the others wait in order of arrival, and each leaves the queue exactly
once: by a place, by the end of its patience, or because its client went away.

Source: protocol §2.8.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NoPlaceError(Exception):
    """No place became free within the queue's time limit."""


class AdmissionGate:
    """The one place where episodes wait. Without `max_running` nobody waits."""

    def __init__(self, max_running: int | None, max_wait_s: float | None) -> None:
        self._places = None if max_running is None else asyncio.Semaphore(max_running)
        self._max_wait_s = max_wait_s
        self.waiting = 0
        self.running = 0
        self.peak_running = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Holds a place for the time of the block.

        Raises:
            NoPlaceError: none became free in time.
        """
        if self._places is not None:
            await self._wait(self._places)
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        try:
            yield
        finally:
            self.running -= 1
            if self._places is not None:
                self._places.release()

    async def _wait(self, places: asyncio.Semaphore) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(self._max_wait_s):
                await places.acquire()
        except TimeoutError:
            raise NoPlaceError(f"no place became free within {self._max_wait_s:g} s") from None
        finally:
            self.waiting -= 1

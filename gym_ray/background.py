"""An event loop in a thread of its own, for callers that block: scripts, and code that has no loop to await in."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from gym_ray import event_loop

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines in its thread while the caller waits; `close` it."""

    def __init__(self) -> None:
        self._runner = event_loop.runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gym_ray-calls", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises; it is cancelled if the wait for it is interrupted.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the helper behind this iterator is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, each when it is asked for."""
        while True:
            try:
                yield self.call(_next(items))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._runner.close()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)

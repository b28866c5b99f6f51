"""An event loop in a thread of its own, for callers that block: scripts, and code that has no loop to await in."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, Protocol, Self, TypeVar

from gym_ray import event_loop

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BackgroundLoop:
    """Runs coroutines in its thread while the caller waits; `close` it."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=_run, args=(started,), name="gym_ray-calls", daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._guard = threading.Lock()
        self._is_closed = False
        self._waited_for: set[Future[Any]] = set()
        self._posted: set[asyncio.Task[None]] = set()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises; it is cancelled if the wait for it is interrupted.

        Raises:
            RuntimeError: the loop is closed, or is closed meanwhile.
        """
        with self._guard:
            if self._is_closed:
                work.close()
                raise RuntimeError("the helper behind this iterator is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waited_for.add(future)
        try:
            return future.result()
        except CancelledError:
            if self._is_closed:
                raise RuntimeError("the helper behind this iterator is closed") from None
            raise
        except BaseException:
            future.cancel()
            raise
        finally:
            self._waited_for.discard(future)

    def post(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have it done some time, if the loop lives; waits for nothing, so that a finalizer may call it anywhere."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, work)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work())
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    def close(self) -> None:
        """End the loop and its thread; whoever waits for a call is told. A second call does nothing."""
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for future in list(self._waited_for):
            future.cancel()


def _run(started: "Future[asyncio.AbstractEventLoop]") -> None:
    with event_loop.runner() as runner:
        loop = runner.get_loop()
        started.set_result(loop)
        loop.run_forever()


class Closable(Protocol[T_co]):
    """An asynchronous iterator that can be closed."""

    def __anext__(self) -> Coroutine[Any, Any, T_co]: ...

    async def aclose(self) -> None: ...


class BlockingIterator(Iterator[T], Generic[T]):
    """The items of an asynchronous iterator, each when it is asked for; an item that is an error is raised, and the
    next call goes on behind it. `close` it to end early; one that nobody refers to any more is closed."""

    def __init__(self, loop: BackgroundLoop, items: Closable[T]) -> None:
        self._loop = loop
        self._items = items

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._loop.call(self._items.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Cancel what is in flight, and wait for it."""
        if not self._loop.is_closed:
            self._loop.call(self._items.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._loop.post(self._items.aclose)

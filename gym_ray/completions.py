"""The iterator that `run_examples` and `run_outcomes` return: awaitables of `(row, result)` in completion order.

Nothing starts before it is used. Whoever ends early closes it; until then abandoned rollouts run on. Source: protocol
§6.2, §6.3, §6.9.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, Self

from gym_ray.dispatch.claims import Claims
from gym_ray.errors import RecordingError

Pair = tuple[dict[str, Any], Any]
"""The row as it was dispatched, and what became of it."""


class Session(Protocol):
    """One open-ended run behind an iterator; `start` is called once, before anything else."""

    async def start(self, arrived: Callable[[int, Any], None], failed: Callable[[BaseException], None]) -> None:
        """Begin to report outcomes as (position of the row, result or exception)."""

    async def feed(self, positions: range, *, is_last: bool) -> None:
        """Have these rows dispatched."""

    async def join(self) -> None:
        """After the last outcome: return once everything that was to be written is."""

    async def stop(self) -> None:
        """Start nothing more, cancel what is in flight, and return once every outcome there is was reported."""


class RolloutCompletions:
    """Hands out one awaitable for each row; works as `for future in it: row, result = await future` and as
    `async for row, result in it`.

    Without `max_resident`, every row is dispatched when the iterator is first advanced. With it, at most so many rows
    are resident, that is running or finished but not yet awaited; the first are dispatched when the first awaitable is
    awaited.
    """

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        session: Session,
        *,
        max_resident: int | None = None,
        semaphore: asyncio.Semaphore | None = None,
    ) -> None:
        self._rows = rows
        self._session = session
        self._max_resident = max_resident
        self._semaphore = semaphore
        self._claims: Claims[tuple[int, Any], asyncio.Future[tuple[int, Any]]] = Claims(
            is_bounded=max_resident is not None
        )
        self._handed_out = 0
        self._fed = self._arrived = 0
        self._feeding: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        """What ended the session; outcomes that came before it are still there."""
        self._is_told = False
        """True once somebody got that error."""
        self._is_shut = False
        """True once the owner has closed it."""
        self._is_drained = False
        """True once somebody transfers what is unclaimed, or gives it up."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of the first use; nothing of it can be awaited in another one."""

    # Iteration

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "Claim":
        """An awaitable for the next completion; needs a running event loop.

        Raises:
            StopIteration: every row has one, or the iterator is closed. A session that failed is not an end: the
                awaitables that are left raise its error.
        """
        if self._is_shut or self._handed_out == len(self._rows):
            raise StopIteration
        self._handed_out += 1
        if self._max_resident is None:
            self._start()
        return Claim(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Pair:
        try:
            claim = next(self)
        except StopIteration:
            if not self._is_shut:
                await self._session.join()
                self._raise_untold()
            raise StopAsyncIteration from None
        try:
            return await claim
        except asyncio.CancelledError:
            self._handed_out -= 1  # nobody can await it again, so its turn is the next one's
            raise

    async def aclose(self) -> None:
        """Cancel unfinished rollouts, and wait until their connections are closed.

        Servers may keep working: nobody acknowledges a cancellation. An awaitable that was handed out may still return
        a result that had come, or raises CancelledError, which looks to `gather` and `TaskGroup` as if somebody had
        cancelled the task that awaits it; with `max_resident` it raises CancelledError if it is first awaited now. A
        second call waits for the first. Before first use it only ends the iteration.

        Raises:
            RecordingError: what ended after the last outcome did so badly, and nobody was told yet.
        """
        self._is_drained = True
        self._shut()
        await self._stopped()
        if isinstance(self._error, RecordingError):
            self._raise_untold()

    async def aclose_and_drain(self) -> list["asyncio.Future[Pair]"]:
        """Close, and return what had finished and was not claimed: settled futures of `(row, result)`.

        Every outcome is transferred once: a second call, or one after `aclose`, returns an empty list, and one after a
        call that was cancelled returns what that one did not. Work that this call cancels is not among them. An
        awaitable that waits already keeps what it claimed, or raises CancelledError.
        """
        is_first, self._is_drained = not self._is_drained, True
        try:
            self._shut()
            await self._stopped()
        except BaseException:
            self._is_drained = not is_first
            raise
        if not is_first:
            return []
        return [self._settled(outcome) for outcome in self._claims.drain()]

    async def abort(self, error: BaseException) -> None:
        """End it because whatever serves it ends: who waits, and who comes later, gets `error`."""
        if self._feeding is None or self._loop is not asyncio.get_running_loop():
            return
        self._on_failure(error)
        self._begin_closing()
        await self._stopped()

    # Dispatch

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("these completions belong to another event loop: use them where they were first used")

    def _start(self) -> None:
        self._check_loop()
        if self._feeding is None:
            self._feeding = asyncio.get_running_loop().create_task(self._feed())

    async def _feed(self) -> None:
        """Dispatch rows in order as far as residents and semaphore allow; ends once the last is dispatched."""
        try:
            await self._session.start(self._on_arrival, self._on_failure)
            fed, total = 0, len(self._rows)
            while fed < total:
                room = await self._wait_for_room(fed)
                self._fed = fed + room
                await self._session.feed(range(fed, fed + room), is_last=fed + room == total)
                fed += room
            if total == 0:
                await self._session.feed(range(0), is_last=True)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again in whoever awaits a completion
            self._on_failure(error)

    def _stop_feeding(self) -> None:
        feeding = self._feeding
        if feeding is not None and feeding is not asyncio.current_task() and not feeding.cancelling():
            feeding.cancel()  # once: a second time would cut its cleaning up short

    async def _wait_for_room(self, fed: int) -> int:
        room = len(self._rows) - fed
        if self._max_resident is not None:
            while (free := self._max_resident - (fed - self._claims.claimed)) <= 0:
                self._room.clear()
                await self._room.wait()
            room = min(room, free)
        if self._semaphore is not None:
            await self._semaphore.acquire()
            taken = 1
            while taken < room and not self._semaphore.locked():
                await self._semaphore.acquire()  # does not wait: a slot is free and nobody is in line
                taken += 1
            room = taken
        return room

    def _on_arrival(self, position: int, result: Any) -> None:
        self._free_slots(min(1, self._fed - self._arrived))
        self._hand_over((position, result))

    def _free_slots(self, count: int) -> None:
        self._arrived += count
        if self._semaphore is not None:
            for _ in range(count):
                self._semaphore.release()

    def _hand_over(self, outcome: tuple[int, Any]) -> None:
        """Give an outcome to the first in line whose task still waits, or keep it for whoever asks next."""
        while (waiter := self._claims.arrive(outcome)) is not None:
            if not waiter.done():
                waiter.set_result(outcome)
                break
            self._claims.claimed -= 1
        self._room.set()

    def _on_failure(self, error: BaseException) -> None:
        self._error = self._error or error
        self._stop_feeding()
        self._free_slots(self._fed - self._arrived)
        for waiter in self._claims.close():
            if not waiter.done():
                self._is_told = True
                waiter.set_exception(self._error)
                waiter.exception()

    def _raise_untold(self) -> None:
        if self._error is not None and not self._is_told:
            self._is_told = True
            raise self._error

    async def _claim(self) -> Pair:
        self._check_loop()
        if not self._claims.is_closed:
            self._start()
        outcome = self._claims.claim()
        if outcome is not None:
            self._room.set()
            return self._pair(outcome[0])
        if self._error is not None:
            self._is_told = True
            raise self._error
        waiter: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        if not self._claims.wait(waiter):
            raise asyncio.CancelledError
        try:
            return self._pair(await waiter)
        except asyncio.CancelledError:
            self._claims.withdraw(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._claims.claimed -= 1  # cancelled at the moment it was served: the outcome goes to the next
                self._hand_over(waiter.result())
            raise

    def _pair(self, outcome: tuple[int, Any]) -> Pair:
        position, result = outcome
        if isinstance(result, BaseException):
            raise result
        return self._rows[position], result

    def _settled(self, outcome: tuple[int, Any]) -> "asyncio.Future[Pair]":
        future: asyncio.Future[Pair] = asyncio.get_running_loop().create_future()
        position, result = outcome
        if isinstance(result, BaseException):
            future.set_exception(result)
            future.exception()  # retrieved: an abandoned future says nothing
        else:
            future.set_result((self._rows[position], result))
        return future

    # Closing

    def _shut(self) -> None:
        self._check_loop()
        self._is_shut = True
        for waiter in self._claims.close():
            waiter.cancel()
        self._begin_closing()

    def _begin_closing(self) -> None:
        if self._feeding is not None and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end(self._feeding))

    async def _end(self, feeding: asyncio.Task[None]) -> None:
        self._stop_feeding()
        try:
            await asyncio.wait({feeding})
            await self._session.stop()
        finally:
            self._free_slots(self._fed - self._arrived)

    async def _stopped(self) -> None:
        if self._closing is not None:
            await asyncio.shield(self._closing)


class Claim(Awaitable[Pair]):
    """An awaitable for one completion; await it once."""

    def __init__(self, owner: RolloutCompletions) -> None:
        self._owner = owner

    def __await__(self) -> Generator[Any, None, Pair]:
        return self._owner._claim().__await__()

"""Signals during a run: the first one stops it in good order, the next one acts as if we were not there."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Turns the first signal into a cancellation. Use it inside a running loop."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        """`on_signal` is called once, before the work is cancelled."""
        self._on_signal = on_signal
        self._received: signal.Signals | None = None
        self._work: asyncio.Future[Any] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T | signal.Signals:
        """What `work` returns, or the signal that ended it; it is cancelled and its cleaning up is waited for.

        Raises: what `work` raises. After a signal that is the signal's doing, and not raised.
        """
        self._work = asyncio.ensure_future(work)
        self.arm()
        try:
            result: T = await self._work
        except (asyncio.CancelledError, Exception):
            if self._received is None:
                raise
            return self._received
        finally:
            self._disarm()
        return result

    def arm(self) -> None:
        """Take the signals, also from whoever has taken them since: Ray does while it starts."""
        if self._received is None:
            for number in STOPPING:
                asyncio.get_running_loop().add_signal_handler(number, self._stop, number)

    def _stop(self, number: signal.Signals) -> None:
        assert self._work is not None
        self._received = number
        self._disarm()
        self._on_signal()
        self._work.cancel()

    def _disarm(self) -> None:
        for number in STOPPING:
            asyncio.get_running_loop().remove_signal_handler(number)


def exit_code(number: signal.Signals) -> int:
    """What a shell reports of a program that a signal ended."""
    return 128 + number

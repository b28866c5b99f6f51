"""Signals during a run: the first lets what is in flight end, the second cancels it, the third is not ours."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
ON_A_CLOCK = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP})
"""Whoever sends these (a job's end, a scheduler, a terminal that closes) does not wait: after the grace it is as if
they came twice."""


class Interruption:
    """Turns the first signal into a drain and the second into a cancellation. Use it inside a running loop."""

    def __init__(
        self, drain: Callable[[signal.Signals], bool], on_cancel: Callable[[], None], *, grace_s: float
    ) -> None:
        """Take the signals in `run`.

        Args:
            drain: begins to drain; False if nothing runs yet that could be drained, which cancels at once.
            on_cancel: called once, before the work is cancelled.
            grace_s: time for draining after a signal that does not wait.
        """
        self._drain = drain
        self._on_cancel = on_cancel
        self._grace_s = grace_s
        self._work: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_cancelled = False
        # A program that is started to outlive its terminal, as by nohup, ignores this one already
        is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._signals = [number for number in STOPPING if number != signal.SIGHUP or not is_ignored]
        self.received: signal.Signals | None = None
        """The first signal."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T | signal.Signals:
        """What `work` returns, or the signal that cancelled it; its cleaning up is waited for.

        Raises: what `work` raises. After a cancellation that is the signal's doing, and not raised.
        """
        self._work = asyncio.ensure_future(work)
        self.arm()
        try:
            result: T = await self._work
        except (asyncio.CancelledError, Exception):
            if not self._is_cancelled or self.received is None:
                raise
            return self.received
        finally:
            self._disarm()
        return result

    def arm(self) -> None:
        """Take the signals, also from whoever has taken them since: Ray does while it starts."""
        if not self._is_cancelled:
            for number in self._signals:
                asyncio.get_running_loop().add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        if self.received is not None:
            self._cancel()
            return
        self.received = number
        if not self._drain(number):
            self._cancel()
        elif number in ON_A_CLOCK:
            self._timer = asyncio.get_running_loop().call_later(self._grace_s, self._cancel)

    def _cancel(self) -> None:
        assert self._work is not None
        if self._is_cancelled:
            return
        self._is_cancelled = True
        self._disarm()
        self._on_cancel()
        self._work.cancel()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)


def exit_code(number: signal.Signals) -> int:
    """What a shell reports of a program that a signal ended."""
    return 128 + number

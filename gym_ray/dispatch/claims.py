"""Outcomes on one side, those who wait for them on the other: who gets what, also when the iteration is closed. Pure.

Invariants: an outcome is claimed, drained or left unclaimed, and only once; a claim gets an outcome, a cancellation, or
waits; outcomes are claimed in the order in which they came. Source: protocol §6.2, §6.3, §6.9.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
W = TypeVar("W")


class Claims(Generic[T, W]):
    """Outcomes `T` that have come, and waiters `W` in line for them.

    In bounded mode whoever asks after the closing is refused even if an outcome is there; in eager mode what is there
    is still handed out.
    """

    def __init__(self, *, is_bounded: bool) -> None:
        self._is_bounded = is_bounded
        self._outcomes: deque[T] = deque()
        self._waiters: deque[W] = deque()
        self._is_closed = False
        self.claimed = 0
        """Outcomes that were handed out."""

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def unclaimed(self) -> int:
        """Outcomes that came and were not handed out."""
        return len(self._outcomes)

    def arrive(self, outcome: T) -> W | None:
        """Take an outcome; returns the waiter that gets it, if one waits."""
        if self._waiters:
            self.claimed += 1
            return self._waiters.popleft()
        self._outcomes.append(outcome)
        return None

    def claim(self) -> tuple[T] | None:
        """The oldest unclaimed outcome, in a tuple; None if there is none or it may not be handed out any more."""
        if not self._outcomes or (self._is_closed and self._is_bounded):
            return None
        self.claimed += 1
        return (self._outcomes.popleft(),)

    def wait(self, waiter: W) -> bool:
        """Stand in line; False if nothing will come any more, so that the waiter is to be cancelled."""
        if self._is_closed:
            return False
        self._waiters.append(waiter)
        return True

    def withdraw(self, waiter: W) -> None:
        """Leave the line."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def close(self) -> list[W]:
        """Close; returns those in line, who are to be cancelled. What was unclaimed stays until `drain`."""
        self._is_closed = True
        waiting, self._waiters = list(self._waiters), deque()
        return waiting

    def drain(self) -> list[T]:
        """Take every unclaimed outcome; a second call gets what came since."""
        drained, self._outcomes = list(self._outcomes), deque()
        return drained

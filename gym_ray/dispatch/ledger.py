"""The account of one run: every rollout is owed, leased or ended, and the sum is always the plan.

Invariants: a rollout ends at most once; its attempt number grows with every lease; numbers are leased in plan order
except that what came back goes first. A million rollouts take two megabytes.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum

QUARANTINE_DEATHS = 3
"""A rollout in flight in this many shard deaths is their likely cause; a fourth try is not worth a shard."""


class State(IntEnum):
    """Where a rollout stands."""

    OWED = 0
    LEASED = 1
    RESULT = 2
    FAILURE = 3
    DRAINED = 4
    OMITTED = 5


class Ledger:
    """States and attempt counts of the rollouts `0 .. planned - 1`, in plan order."""

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self._states = bytearray(planned)
        self._attempts = bytearray(planned)
        self._deaths: dict[int, int] = {}
        self._returned: deque[int] = deque()
        self._cursor = 0
        self._counts = [planned, 0, 0, 0, 0, 0]
        self._set_aside = bytearray(planned)
        self._aside = 0

    def count(self, state: State) -> int:
        """How many rollouts are in `state`."""
        return self._counts[state]

    @property
    def leasable(self) -> int:
        """Rollouts that may be leased now."""
        return self._counts[State.OWED] - self._aside

    @property
    def is_over(self) -> bool:
        """True once nothing is leased and nothing is left to lease."""
        return not self.leasable and not self._counts[State.LEASED]

    def attempts(self, number: int) -> int:
        """Attempt numbers that this rollout has used up."""
        return self._attempts[number]

    def extend(self, count: int) -> None:
        """Plan `count` more rollouts behind those that are planned."""
        self.planned += count
        self._states.extend(bytes(count))
        self._attempts.extend(bytes(count))
        self._set_aside.extend(bytes(count))
        self._counts[State.OWED] += count

    def use_attempts(self, number: int, count: int) -> None:
        """Take over the attempts of earlier runs, before the rollout is leased."""
        self._attempts[number] = min(count, 255)

    def set_aside(self, number: int) -> None:
        """Keep an owed rollout owed: this run does not lease it."""
        if self._states[number] == State.OWED and not self._set_aside[number]:
            self._set_aside[number] = True
            self._aside += 1

    def release(self, rollouts: Iterable[tuple[int, int]]) -> None:
        """Have rollouts that were set aside leased after all, in this order; given as (number, least attempt)."""
        for number, attempt in rollouts:
            if self._set_aside[number]:
                self.use_attempts(number, max(self._attempts[number], attempt))
                self._set_aside[number] = False
                self._aside -= 1
                self._returned.append(number)

    def lease_first(self, numbers: Iterable[int]) -> None:
        """Lease these before all others, in this order."""
        self._returned.extend(numbers)

    def lease(self, limit: int) -> Iterator[tuple[int, int]]:
        """Up to `limit` owed rollouts as (number, attempt), each now leased."""
        while limit > 0:
            if self._returned:
                number = self._returned.popleft()
            elif self._cursor < self.planned:
                number, self._cursor = self._cursor, self._cursor + 1
            else:
                return
            if self._states[number] != State.OWED or self._set_aside[number]:
                continue  # it ended while it waited to be leased again, or is not to be run
            attempt = self._attempts[number]
            self._attempts[number] = min(attempt + 1, 255)
            self._move(number, State.LEASED)
            limit -= 1
            yield number, attempt

    def withhold(self, state: State) -> list[int]:
        """End every owed rollout as `state`, because none may start any more; returns their numbers in plan order."""
        numbers = [
            number for number, held in enumerate(self._states) if held == State.OWED and not self._set_aside[number]
        ]
        for number in numbers:
            self._move(number, state)
        return numbers

    def settle(self, number: int, state: State) -> bool:
        """Record how a rollout ended; False if it had ended before, so that the caller drops the second record."""
        if self._states[number] > State.LEASED:
            return False
        self._move(number, state)
        return True

    def give_back(self, number: int, *, started: bool) -> None:
        """Owe a leased rollout again; an attempt that never started does not use up its number."""
        if self._states[number] != State.LEASED:
            return
        if not started:
            self._attempts[number] -= 1
        self._move(number, State.OWED)
        self._returned.append(number)

    def died(self, number: int) -> bool:
        """Count a shard death for a rollout in flight; True if it must not be tried again."""
        deaths = self._deaths[number] = self._deaths.get(number, 0) + 1
        return deaths >= QUARANTINE_DEATHS

    def _move(self, number: int, state: State) -> None:
        self._counts[self._states[number]] -= 1
        self._counts[state] += 1
        self._states[number] = state

"""The account of one run: every rollout is owed, leased or ended, and the sum is always the plan.

Invariants: a rollout ends at most once; its attempt number grows with every lease; the rollouts of one environment
server are leased in plan order except that what came back goes first. A million rollouts take ten megabytes.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum

QUARANTINE_DEATHS = 3
"""A rollout in flight in this many shard deaths is their likely cause; a fourth try is not worth a shard."""
MAX_ATTEMPTS = 65_535
"""Attempt numbers that one rollout can use up."""

_NUMBER_BITS = 32


class State(IntEnum):
    """Where a rollout stands."""

    OWED = 0
    LEASED = 1
    RESULT = 2
    FAILURE = 3
    DRAINED = 4
    OMITTED = 5


class _Lane:
    """The rollouts of one environment server."""

    __slots__ = ("cursor", "leasable", "numbers", "returned")

    def __init__(self) -> None:
        self.numbers = array("I")
        self.cursor = 0
        self.returned: deque[int] = deque()
        """What goes first: the turn at which it was put here, then its number, in one integer."""
        self.leasable = 0


class Ledger:
    """States and attempt counts of the rollouts `0 .. planned - 1`, in plan order.

    `servers` holds the position of the environment server of each.
    """

    def __init__(self, servers: Iterable[int] = ()) -> None:
        self.planned = 0
        self._states = bytearray()
        self._attempts = array("H")
        self._set_aside = bytearray()
        self._servers = array("H")
        self._lanes: dict[int, _Lane] = {}
        self._deaths: dict[int, int] = {}
        self._turn = 0
        self._counts = [0, 0, 0, 0, 0, 0]
        self.extend(servers)

    def state(self, number: int) -> State:
        """Where a rollout is."""
        return State(self._states[number])

    def count(self, state: State) -> int:
        """How many rollouts are in `state`."""
        return self._counts[state]

    @property
    def leasable(self) -> int:
        """Rollouts that may be leased now."""
        return sum(lane.leasable for lane in self._lanes.values())

    def leasable_by_server(self) -> dict[int, int]:
        """The same for each environment server that has some."""
        return {server: lane.leasable for server, lane in self._lanes.items() if lane.leasable}

    @property
    def is_over(self) -> bool:
        """True once nothing is leased and nothing is left to lease."""
        return not self.leasable and not self._counts[State.LEASED]

    def attempts(self, number: int) -> int:
        """Attempt numbers that this rollout has used up."""
        return self._attempts[number]

    def extend(self, servers: Iterable[int]) -> None:
        """Plan more rollouts behind those that are planned, given as their environment servers."""
        first = self.planned
        self._servers.extend(servers)
        self.planned = len(self._servers)
        added = self.planned - first
        self._states.extend(bytes(added))
        self._attempts.extend(array("H", bytes(2 * added)))
        self._set_aside.extend(bytes(added))
        self._counts[State.OWED] += added
        for number in range(first, self.planned):
            lane = self._lanes.setdefault(self._servers[number], _Lane())
            lane.numbers.append(number)
            lane.leasable += 1

    def use_attempts(self, number: int, count: int) -> None:
        """Take over the attempts of earlier runs, before the rollout is leased.

        Raises:
            ValueError: there are more than `MAX_ATTEMPTS`.
        """
        if count > MAX_ATTEMPTS:
            raise ValueError(f"rollout {number} of the plan has used {count} attempts, at most {MAX_ATTEMPTS} can be")
        self._attempts[number] = count

    def set_aside(self, number: int) -> None:
        """Keep an owed rollout owed: this run does not lease it."""
        if self._states[number] == State.OWED and not self._set_aside[number]:
            self._set_aside[number] = True
            self._lane(number).leasable -= 1

    def release(self, rollouts: Iterable[tuple[int, int]]) -> None:
        """Have rollouts that were set aside leased after all, in this order; given as (number, least attempt)."""
        for number, attempt in rollouts:
            if self._set_aside[number]:
                self.use_attempts(number, max(self._attempts[number], attempt))
                self._set_aside[number] = False
                self._lane(number).leasable += 1
                self._put_first(number)

    def lease_first(self, numbers: Iterable[int]) -> None:
        """Lease these before all others of their servers, in this order."""
        for number in numbers:
            self._put_first(number)

    def lease(self, shares: Mapping[int, int]) -> list[tuple[int, int]]:
        """Up to so many owed rollouts of each server as (number, attempt), each now leased."""
        first: list[int] = []
        planned: list[int] = []
        for server, limit in shares.items():
            if server in self._lanes:
                self._take(self._lanes[server], limit, first, planned)
        first.sort()
        planned.sort()
        leased = []
        for number in [turn & ((1 << _NUMBER_BITS) - 1) for turn in first] + planned:
            attempt = self._attempts[number]
            self._attempts[number] = attempt + 1
            leased.append((number, attempt))
        return leased

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
        self._put_first(number)

    def died(self, number: int) -> bool:
        """Count a shard death for a rollout in flight; True if it must not be tried again."""
        deaths = self._deaths[number] = self._deaths.get(number, 0) + 1
        return deaths >= QUARANTINE_DEATHS

    def _take(self, lane: _Lane, limit: int, first: list[int], planned: list[int]) -> None:
        """Move up to `limit` rollouts of a lane to LEASED, into the list that says where they stood."""
        while limit > 0:
            if lane.returned:
                entry = lane.returned.popleft()
                number, into = entry & ((1 << _NUMBER_BITS) - 1), first
            elif lane.cursor < len(lane.numbers):
                number = entry = lane.numbers[lane.cursor]
                lane.cursor, into = lane.cursor + 1, planned
            else:
                return
            if self._states[number] != State.OWED or self._set_aside[number]:
                continue  # it ended while it waited to be leased again, or is not to be run
            self._move(number, State.LEASED)
            into.append(entry)
            limit -= 1

    def _put_first(self, number: int) -> None:
        self._lane(number).returned.append(self._turn << _NUMBER_BITS | number)
        self._turn += 1

    def _lane(self, number: int) -> _Lane:
        return self._lanes[self._servers[number]]

    def _move(self, number: int, state: State) -> None:
        before = self._states[number]
        self._counts[before] -= 1
        self._counts[state] += 1
        self._states[number] = state
        if not self._set_aside[number] and State.OWED in (before, state):
            self._lane(number).leasable += 1 if state == State.OWED else -1

"""When an attempt starts in a shard: leases wait in order, at most `cap` are in flight.

A pure state machine: the loop around it starts what `admit` returns and reports what ended. Invariants: in flight never
exceeds the cap at the time of an admission; leases start in the order of their offer; each lease is either waiting, in
flight, released or ended, and only once.
"""

from collections import deque
from dataclasses import dataclass

from gym_ray.dispatch.exchange import LeaseHeader


@dataclass(frozen=True, slots=True)
class Lease:
    """A rollout that this shard holds, with the bytes of its materialized row."""

    header: LeaseHeader
    line: bytes


class Admission:
    """The waiting and running leases of one shard."""

    def __init__(self, cap: int = 0) -> None:
        self.cap = cap
        self._waiting: deque[Lease] = deque()
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_starving(self) -> bool:
        """True when a slot is free and nothing waits for it."""
        return not self._waiting and self._in_flight < self.cap

    def offer(self, lease: Lease) -> None:
        """Queue a lease behind those that wait already."""
        self._waiting.append(lease)

    def admit(self) -> Lease | None:
        """The next lease to start now, or None when the cap is reached or nothing waits."""
        if self._in_flight >= self.cap or not self._waiting:
            return None
        self._in_flight += 1
        return self._waiting.popleft()

    def ended(self) -> None:
        """Note that one admitted attempt has ended."""
        if self._in_flight == 0:
            raise AssertionError("an attempt ended that was never admitted")
        self._in_flight -= 1

    def release(self, run: str) -> list[Lease]:
        """Take back every lease of a run that has not started."""
        released = [lease for lease in self._waiting if lease.header.run == run]
        self._waiting = deque(lease for lease in self._waiting if lease.header.run != run)
        return released

    def withdraw(self, count: int) -> list[Lease]:
        """Take back up to `count` leases that have not started, last first."""
        return [self._waiting.pop() for _ in range(min(count, len(self._waiting)))]

    def withdraw_one(self, run: str, number: int) -> Lease | None:
        """Take back this lease if it has not started."""
        for lease in self._waiting:
            if (lease.header.run, lease.header.number) == (run, number):
                self._waiting.remove(lease)
                return lease
        return None

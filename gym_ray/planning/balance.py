"""Which shard owns a task: the one with the fewest rollouts so far, the lowest of several.

Invariant: all rollouts of a task have one owner, and the loads of two shards differ by at most one task's rollouts.
"""

import heapq
from array import array
from collections.abc import Iterable


class ShardBalance:
    """Assigns tasks while their rows stream by. Slots are dense task numbers in order of first sight."""

    def __init__(self, shards: int) -> None:
        self._loads = [0] * shards
        self._lightest = [(0, shard) for shard in range(shards)]
        """A heap with one entry for each shard, whose load may be out of date, which is never too high."""
        self._owners = array("H")
        self._is_late = False

    @property
    def owners(self) -> "array[int]":
        """Slot -> shard."""
        return self._owners

    @property
    def has_late_rows(self) -> bool:
        """True if a task grew after a later one had been assigned: then the loads may lie further apart."""
        return self._is_late

    def add(self, slot: int, rollouts: int) -> int:
        """The owner of a task that has so many rollouts more."""
        if slot == len(self._owners):
            self._owners.append(self._lightest_shard())
        elif slot != len(self._owners) - 1:
            self._is_late = True
        owner = self._owners[slot]
        self._loads[owner] += rollouts
        return owner

    def _lightest_shard(self) -> int:
        heap, loads = self._lightest, self._loads
        while heap[0][0] != loads[heap[0][1]]:
            shard = heap[0][1]
            heapq.heapreplace(heap, (loads[shard], shard))
        return heap[0][1]


def balanced_owners(rollouts_by_slot: Iterable[int], shards: int) -> "array[int]":
    """Slot -> shard when every task's size is known, so that late rows do no harm."""
    balance = ShardBalance(shards)
    for slot, rollouts in enumerate(rollouts_by_slot):
        balance.add(slot, rollouts)
    return balance.owners

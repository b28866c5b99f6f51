"""Which task a row belongs to and which rollout of it a copy is.

Invariants: equal texts are one task; a task's rollouts are 0, 1, 2, ... in the order in which they are planned, over
all rows, targets and repeats. Source: protocol §5.4.
"""

import hashlib
from array import array
from typing import NamedTuple

from gym_ray.planning.digest_index import DIGEST_BYTES, DigestIndex
from gym_ray.rows.source_row import SourceRow


def text_digest(text: bytes) -> bytes:
    """A digest of a text that serves as its identity: two texts of a plan will not have the same."""
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


def text_identity(row: SourceRow) -> bytes:
    """The digest of the text by which a row without an index is told from others."""
    text = row.line if row.identity_text is None else row.identity_text
    if row.is_terminated:
        return text_digest(text)
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES, person=b"unterminated").digest()


def index_identity(index: int) -> bytes:
    """The digest of a row that brings its task index."""
    return index.to_bytes(DIGEST_BYTES, "little")


class Task(NamedTuple):
    """One task of a plan."""

    number: int
    """Its `_ng_task_index`."""
    slot: int
    """How many tasks were seen before it: dense, where indices that rows bring need not be."""


class Numbering:
    """Numbers the rows of one plan; a few tens of bytes for each task."""

    def __init__(self) -> None:
        self._texts = DigestIndex()
        self._slots: DigestIndex | None = None
        """Task index -> slot; None as long as no row brought an index, because then they are the same."""
        self._next_rollout = array("I")
        """Slot -> rollouts planned."""
        self._lowest_given: int | None = None

    @property
    def tasks(self) -> int:
        """Distinct tasks so far."""
        return len(self._next_rollout)

    @property
    def rollouts_by_slot(self) -> "array[int]":
        """How many rollouts each task has; owned by this object."""
        return self._next_rollout

    @property
    def has_collisions(self) -> bool:
        """True if an index that a row brought is also one that was assigned to another row's text."""
        return self._lowest_given is not None and self._lowest_given < len(self._texts)

    def task_by_text(self, digest: bytes) -> Task:
        """The task of a row without an index, by the digest of its text."""
        return self._task(self._texts.number(digest))

    def task_by_index(self, index: int) -> Task:
        """The task of a row that brings its index."""
        if self._slots is None:
            self._slots = DigestIndex()
            for earlier in range(len(self._next_rollout)):
                self._slots.number(index_identity(earlier))
        self._lowest_given = index if self._lowest_given is None else min(index, self._lowest_given)
        return self._task(index)

    def next_rollout(self, task: Task) -> int:
        """The index of the next rollout of a task."""
        rollout = self._next_rollout[task.slot]
        self._next_rollout[task.slot] = rollout + 1
        return rollout

    def _task(self, index: int) -> Task:
        slot = index if self._slots is None else self._slots.number(index_identity(index))
        if slot == len(self._next_rollout):
            self._next_rollout.append(0)
        return Task(index, slot)

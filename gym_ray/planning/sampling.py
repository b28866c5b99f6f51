"""Draws a fixed number of tasks from a stream. Pure.

A task is drawn by a keyed digest of its name, not by its position: the same seed draws the same tasks from the same
data, in whatever order, on any machine, and most of them still when some rows are added.
"""

import hashlib
import heapq

from gym_ray.planning.task_names import TaskName

_KEY_BYTES = 16


def sample_key(name: TaskName | None, identity: bytes, seed: int) -> int:
    """The number by which a task is drawn, the lowest first: of its name, else of the digest of its text."""
    text = identity if name is None else name.full.encode("utf-8", "surrogatepass")
    key = seed.to_bytes(_KEY_BYTES, "little", signed=True)
    return int.from_bytes(hashlib.blake2b(text, digest_size=_KEY_BYTES, key=key).digest(), "big")


class Sample:
    """The tasks with the lowest keys so far. Invariant: at most `size`, and none left out has a lower key."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._negated: list[int] = []
        """A heap of the negated keys, so that its top is the highest of them."""
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, key: int) -> None:
        """Consider a task; its second row changes nothing."""
        if key in self._members:
            return
        if len(self._members) < self._size:
            heapq.heappush(self._negated, -key)
        elif key < -self._negated[0]:
            self._members.discard(-heapq.heapreplace(self._negated, -key))
        else:
            return
        self._members.add(key)

    @property
    def cut(self) -> int:
        """Tasks with a key up to this one are drawn."""
        return -self._negated[0] if self._negated else -1

"""Numbers things in the order of their first sight, and remembers digests, not the things.

An open-addressing table in flat arrays: about 30 bytes for each entry, where a dict of bytes needs 150. A plan of a
million rows of 2 KB would otherwise hold 2 GB of text to tell equal lines.
"""

from array import array
from struct import Struct

DIGEST_BYTES = 16
_pair = Struct("<QQ")
_FIRST_SIZE = 1 << 10


class DigestIndex:
    """Digest -> number. Invariant: numbers are 0, 1, 2, ... in order of first sight; equal digests share one."""

    def __init__(self) -> None:
        self._count = 0
        self._clear(_FIRST_SIZE)

    def __len__(self) -> int:
        return self._count

    def number(self, digest: bytes) -> int:
        """The number of a 16-byte digest; a new one gets the next."""
        left, right = _pair.unpack(digest)
        slot = self._slot(left, right)
        if taken := self._numbers[slot]:
            return taken - 1
        number = self._count
        self._put(slot, left, right, number)
        self._count += 1
        if self._count * 3 > len(self._numbers) * 2:
            self._grow()
        return number

    def _slot(self, left: int, right: int) -> int:
        """The slot of a digest, or the empty one where it belongs. There always is an empty one."""
        numbers, lefts, rights, mask = self._numbers, self._lefts, self._rights, self._mask
        slot = left & mask
        while numbers[slot] and (lefts[slot] != left or rights[slot] != right):
            slot = (slot + 1) & mask
        return slot

    def _put(self, slot: int, left: int, right: int, number: int) -> None:
        self._lefts[slot], self._rights[slot], self._numbers[slot] = left, right, number + 1

    def _grow(self) -> None:
        entries = zip(self._lefts, self._rights, self._numbers, strict=True)
        self._clear(len(self._numbers) * 2)
        for left, right, taken in entries:
            if taken:
                self._put(self._slot(left, right), left, right, taken - 1)

    def _clear(self, size: int) -> None:
        self._mask = size - 1
        self._lefts = array("Q", bytes(8 * size))
        self._rights = array("Q", bytes(8 * size))
        self._numbers = array("I", bytes(4 * size))
        """Number + 1, so that 0 means empty."""

"""Outcomes on their way to the caller: kept until acknowledged, bounded so that a slow caller slows the run down."""

from collections import deque
from typing import NamedTuple

from gym_ray.dispatch.exchange import CompletionHeader

MAX_UNCLAIMED_BYTES = 64 << 20
"""Over this the run starts nothing new until its caller has caught up."""
BATCH_BYTES = 8 << 20


class Delivery(NamedTuple):
    """One outcome with the row that led to it."""

    header: CompletionHeader
    line: bytes
    record: bytes


class Deliveries:
    """A queue with acknowledgement: a batch is repeated until the caller says that it has it."""

    def __init__(self) -> None:
        self._waiting: deque[Delivery] = deque()
        self._batch: tuple[Delivery, ...] = ()
        self._seq = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= MAX_UNCLAIMED_BYTES

    @property
    def is_empty(self) -> bool:
        """True once everything was acknowledged."""
        return not self._waiting and not self._batch

    @property
    def has_news(self) -> bool:
        """True if a call of `take` would return something that was not taken before."""
        return bool(self._waiting)

    def put(self, delivery: Delivery) -> None:
        """Queue one outcome."""
        self._waiting.append(delivery)
        self._bytes += len(delivery.line) + len(delivery.record)

    def take(self, ack: int, max_items: int) -> tuple[int, tuple[Delivery, ...]]:
        """Forget the batch numbered `ack`, then return the next and its number; the same again if `ack` is older."""
        if self._batch and ack < self._seq:
            return self._seq, self._batch
        self._bytes -= sum(len(item.line) + len(item.record) for item in self._batch)
        batch: list[Delivery] = []
        size = 0
        while self._waiting and len(batch) < max_items and size < BATCH_BYTES:
            item = self._waiting.popleft()
            batch.append(item)
            size += len(item.line) + len(item.record)
        self._batch = tuple(batch)
        self._seq += bool(batch)
        return self._seq, self._batch

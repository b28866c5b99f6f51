"""What driver and shards hand each other in one `step`: plain values, batched, bodies as one blob each way.

A header holds the facts of one item; its bytes are the next `size` bytes of the blob. Headers are named tuples because
thousands of them cross a process border each second and a tuple of small values is the cheapest thing to pickle.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


class LeaseHeader(NamedTuple):
    """One rollout handed to a shard for one attempt; its bytes are the materialized row."""

    run: str
    number: int
    attempt: int
    server: int
    size: int


class CompletionHeader(NamedTuple):
    """How one attempt ended; its bytes are the record line."""

    run: str
    number: int
    attempt: int
    kind: int
    """An `OutcomeKind`."""
    size: int
    reply_bytes: int
    latency_ms: float
    reward: float | None
    masked: bool
    failure_class: str | None
    terminal: bool
    tokens: int | None
    sends: int


class Blob:
    """Bytes that Ray moves without copying them through a pickle stream: they travel out of band."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return (_rebuild, (pickle.PickleBuffer(self.data),))

    def __len__(self) -> int:
        return len(self.data)


def _rebuild(buffer: Any) -> Blob:
    return Blob(memoryview(buffer))


def slices(sizes: Iterable[int], blob: Blob) -> Iterator[memoryview]:
    """The items of a blob, without a copy, in the order of their headers."""
    view, start = memoryview(blob.data), 0
    for size in sizes:
        yield view[start : start + size]
        start += size


@dataclass(frozen=True, slots=True)
class StepRequest:
    """Down: what the shard may start, what it may forget, and how long it may keep the call open."""

    ack: int
    """The last sequence number whose completions are durable."""
    leases: tuple[LeaseHeader, ...]
    blob: Blob
    cap: int
    """Attempts that this shard may have in flight."""
    cancelled_runs: tuple[str, ...] = ()
    more: bool = True
    """False when nothing is left to lease: the shard then need not hurry for more work."""
    lease_seq: int = 0
    """Numbers the batches of leases, so that one that is sent again is taken once."""


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """Up: ended attempts, what a cancelled run left without an outcome, and how much more work would fit."""

    seq: int
    completions: tuple[CompletionHeader, ...]
    blob: Blob
    released: tuple[tuple[str, int, int, bool], ...]
    """(run, number, attempt, started) of leases of a cancelled run that ended without an outcome."""
    in_flight: int
    waiting: int
    notices: tuple[str, ...] = ()
    """What the shard has to tell a person."""

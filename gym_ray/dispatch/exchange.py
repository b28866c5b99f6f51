"""What driver and shards hand each other in one `step`: plain values, batched, bodies as one blob each way.

A header holds the facts of one item; its bytes are the next `size` bytes of the blob. Headers are named tuples because
thousands of them cross a process border each second and a tuple of small values is the cheapest thing to pickle.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class LeaseHeader(NamedTuple):
    """One rollout handed to a shard for one attempt; its bytes are the materialized row."""

    run: str
    number: int
    attempt: int
    server: int
    size: int
    retry_requests: bool = True
    timeout_s: float | None = None
    is_plain: bool = False
    """The caller wants the server's reply as it is, not a record."""
    counts_tokens: bool = False
    enrichment: tuple[str, bool] | None = None
    """What becomes of captured bodies, and whether captures are removed; None leaves the record as it is judged."""


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
    is_interruption: bool = False
    """A failure that does not count against the attempts of its rollout."""


class ServerSignal(NamedTuple):
    """How an environment server has answered a shard since its last signal."""

    server: int
    answers: int
    """That say that it works."""
    setbacks: int
    """Tries that reached nobody."""
    refusals: int
    """429 and 503."""
    retry_after_s: float
    """The longest wait that a refusal asked for."""
    last: str
    """What the last setback or refusal was, for a person."""


Buffer = bytes | memoryview

LARGE_ITEM_BYTES = 32 << 10
"""From here on an item travels by itself: a copy costs more than one buffer more."""


class Blob:
    """Items that Ray moves without copying them through a pickle stream: they travel out of band.

    Small items are joined on the way; the receiver gets the same items, as views of what arrived.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return (Blob._of_buffers, tuple(pickle.PickleBuffer(part) for part in _joined(self.parts)))

    @classmethod
    def _of_buffers(cls, *buffers: Any) -> "Blob":
        return cls([memoryview(buffer) for buffer in buffers])


def slices(sizes: Iterable[int], blob: Blob) -> Iterator[memoryview]:
    """The items of a blob, without a copy, in the order of their headers."""
    parts = iter(blob.parts)
    view, start = memoryview(b""), 0
    for size in sizes:
        while start + size > len(view):  # this part is used up; an empty item needs none
            view, start = memoryview(next(parts)), 0
        yield view[start : start + size]
        start += size


def _joined(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes in fewer parts; an item is never split."""
    small: list[Buffer] = []
    for part in parts:
        if len(part) < LARGE_ITEM_BYTES:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield part
    if small:
        yield b"".join(small)


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
    drained_runs: tuple[str, ...] = ()
    """What of these has not started is handed back; what has may end."""
    more: bool = True
    """False when nothing is left to lease: the shard then need not hurry for more work."""
    lease_seq: int = 0
    """Numbers the batches of leases, so that one that is sent again is taken once."""
    recall: int = 0
    """Waiting leases to hand back, last first: somebody else has a free slot for them."""
    cancels: tuple[tuple[str, int], ...] = ()
    """(run, number) of single rollouts to cancel."""

    @property
    def has_orders(self) -> bool:
        """True if it says more than how many attempts may run."""
        return bool(self.leases or self.cancelled_runs or self.drained_runs or self.cancels or self.recall)


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """Up: ended attempts, what a cancelled run left without an outcome, and how much more work would fit."""

    seq: int
    completions: tuple[CompletionHeader, ...]
    blob: Blob
    released: tuple[tuple[str, int, int, bool], ...]
    """(run, number, attempt, started) of leases that ended without an outcome: cancelled, drained or recalled."""
    in_flight: int
    waiting: int
    signals: tuple[ServerSignal, ...] = ()
    notices: tuple[str, ...] = ()
    """What the shard has to tell a person."""

"""The loop of one shard: takes leases, keeps at most `cap` attempts running, hands over what ended in batches.

Invariants: a lease that was accepted appears in exactly one answer, as a completion or as released; an answer is
repeated until its number is acknowledged; what has ended and was not handed over is bounded, which stops admission.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from gym_ray.dispatch.admission import Admission, Lease
from gym_ray.dispatch.exchange import Blob, CompletionHeader, StepAnswer, StepRequest, slices
from gym_ray.dispatch.stacks import waiting_place

Execute = Callable[[Lease], Awaitable[tuple[CompletionHeader, bytes]]]
"""Runs one attempt to its end. Raises nothing but CancelledError: a fault of ours is a record too."""

MAX_ITEMS = 512
MAX_BYTES = 8 << 20
"""One answer carries at most this (or a single larger record): above it a batch costs memory and gains nothing.

Over 100 KB a call goes through the object store, which costs about 5 ms: at 1 KB a record, 512 items cost 15 us less
each than 256 on a saturated machine, and 1,024 gain nothing more."""
LINGER_S = 0.03
"""How long the first item of a batch waits for company: a call costs 1.3 ms of CPU whatever it carries."""
STARVING_LINGER_S = 0.003
"""The same while a slot is free and no lease waits for it."""
WAIT_S = 1.0
"""An answer without items after this long is the sign of life."""
MAX_OUTBOX_BYTES = 4 * MAX_BYTES


class ShardLoop:
    """Bounded execution of leases behind one long-polled `step`. The owner calls `aclose` to end what still runs."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._admission = Admission()
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._outbox: deque[tuple[CompletionHeader, bytes]] = deque()
        self._outbox_bytes = 0
        self._released: list[tuple[str, int, int, bool]] = []
        self._answer: StepAnswer | None = None
        self._seq = 0
        self._lease_seq = 0
        self._more = True
        self._due: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        return self._admission.in_flight

    def stacks(self) -> list[str]:
        """Where the attempts in flight wait, most frequent first, each as `17 x outer > ... > inner (file:line)`."""
        counts = Counter(waiting_place(task) for task in self._tasks.values())
        return [f"{count} x {place}" for place, count in counts.most_common()]

    async def step(self, request: StepRequest) -> StepAnswer:
        """Accept leases and acknowledgement, then answer once a batch is due or the sign of life is.

        Never raises for a rollout. One call at a time; a call that is repeated because its answer was lost gets the
        same answer and its leases are taken once.
        """
        if self._answer is not None and request.ack < self._answer.seq:
            return self._answer
        self._answer = None
        self._accept(request)
        await self._until_due()
        self._answer = self._cut()
        return self._answer

    async def aclose(self) -> None:
        """Start nothing more, cancel every attempt and wait until its connection is closed."""
        self._admission.cap = 0
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, request: StepRequest) -> None:
        self._admission.cap, self._more = request.cap, request.more
        if request.lease_seq > self._lease_seq:
            self._lease_seq = request.lease_seq
            for header, line in zip(
                request.leases, slices((h.size for h in request.leases), request.blob), strict=True
            ):
                self._admission.offer(Lease(header, bytes(line)))
        for run in (*request.drained_runs, *request.cancelled_runs):
            self._released += [(*lease.header[:3], False) for lease in self._admission.release(run)]
        self._released += [(*lease.header[:3], False) for lease in self._admission.withdraw(request.recall)]
        for run in request.cancelled_runs:
            self._cancel(run)
        for key in request.cancels:
            self._cancel_one(key)
        self._admit()

    def _cancel(self, run: str) -> None:
        for (owner, _), task in self._tasks.items():
            if owner == run:
                task.cancel()

    def _cancel_one(self, key: tuple[str, int]) -> None:
        if (task := self._tasks.get(key)) is not None:
            task.cancel()
        elif (lease := self._admission.withdraw_one(*key)) is not None:
            self._released.append((*lease.header[:3], False))

    def _admit(self) -> None:
        while self._outbox_bytes < MAX_OUTBOX_BYTES and (lease := self._admission.admit()) is not None:
            key = (lease.header.run, lease.header.number)
            self._tasks[key] = asyncio.get_running_loop().create_task(self._attempt(lease))

    async def _attempt(self, lease: Lease) -> None:
        header = lease.header
        try:
            completion, record = await self._execute(lease)
            self._outbox.append((completion, record))
            self._outbox_bytes += len(record)
        except asyncio.CancelledError:
            self._released.append((*header[:3], True))
            raise
        finally:
            self._admission.ended()
            del self._tasks[header.run, header.number]
            self._admit()
            self._consider()

    def nudge(self) -> None:
        """Answer the open `step` now: the driver has something to say."""
        self._fire()

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.create_future()
        self._timer = loop.call_later(WAIT_S, self._fire)
        try:
            self._consider()
            await self._due
        finally:
            self._timer.cancel()
            self._due = None

    def _consider(self) -> None:
        """Bring the answer forward when what there is to say warrants it."""
        if self._due is None or self._timer is None:
            return
        is_last = self._outbox and not self._tasks and not self._more  # nothing comes that could keep it company
        if is_last or len(self._outbox) >= MAX_ITEMS or self._outbox_bytes >= MAX_BYTES:
            self._fire()
        elif self._outbox or self._released:
            linger = STARVING_LINGER_S if self._more and self._admission.is_starving else LINGER_S
            loop = asyncio.get_running_loop()
            if self._timer.when() > loop.time() + linger:
                self._timer.cancel()
                self._timer = loop.call_later(linger, self._fire)

    def _fire(self) -> None:
        if self._due is not None and not self._due.done():
            self._due.set_result(None)

    def _cut(self) -> StepAnswer:
        headers: list[CompletionHeader] = []
        records: list[bytes] = []
        size = 0
        while self._outbox and len(headers) < MAX_ITEMS:
            header, record = self._outbox[0]
            if records and size + len(record) > MAX_BYTES:
                break
            self._outbox.popleft()
            headers.append(header)
            records.append(record)
            size += len(record)
        self._outbox_bytes -= size
        self._admit()
        released, self._released = tuple(self._released), []
        self._seq += 1
        return StepAnswer(
            seq=self._seq,
            completions=tuple(headers),
            blob=Blob(records),
            released=released,
            in_flight=self._admission.in_flight,
            waiting=self._admission.waiting,
        )

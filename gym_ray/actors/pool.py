"""The shards of a driver: started, kept busy, replaced when they die, added and retired while runs go on.

Invariants: a link is in the pool from its first answer to its death or retirement; the caps of all links, and what may
still run above them, never exceed the cap; a dead shard's leases are given to the owner before anything replaces it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gym_ray.actors.link import Leased, ShardDied, ShardHandle, ShardLink
from gym_ray.dispatch.exchange import Blob, LeaseHeader, StepAnswer, StepRequest
from gym_ray.dispatch.leasing import credit, split_cap
from gym_ray.errors import ClusterError, ShardLostError

logger = logging.getLogger("gym_ray.driver")

STEP_TIMEOUT_S = 10.0
"""Ten signs of life missed: the shard hangs."""
MAX_RESTARTS = 3
"""Of one shard slot; a process that keeps dying is a fault that a fourth start will not mend."""
FORGIVEN_AFTER_S = 3600.0
"""A shard that has lived for so long died of something else than the one before it."""
PATIENCE_S = 10.0
"""So long the start waits for every shard; then those that are there begin, and the others join them."""

Spawn = Callable[[int], Awaitable[ShardHandle]]
"""Starts the shard of a slot and returns once it answers; cancelling it leaves nothing behind."""


class Work(Protocol):
    """What the pool asks of its owner."""

    @property
    def owed(self) -> int:
        """Rollouts that could be leased now."""

    @property
    def may_wait_in_shards(self) -> bool:
        """False where a lease must start at once."""

    def lease(self, slots: int, reserve: int) -> list[tuple[LeaseHeader, bytes]]:
        """Rollouts for a shard: up to `slots` that can start at once, and `reserve` that wait for one."""

    async def announce(self, headers: Sequence[LeaseHeader]) -> bool:
        """Note which attempts are about to start; False if none of them may."""

    def take_back(self, headers: Sequence[LeaseHeader]) -> None:
        """Owe leases again that no shard has seen."""

    async def take(self, link: ShardLink, answer: StepAnswer) -> None:
        """Settle what a shard has handed over; it is acknowledged after this."""

    async def lose(self, link: ShardLink, error: ShardDied) -> None:
        """Settle the leases of a dead shard, or owe them again."""

    def abandon(self, error: Exception) -> None:
        """No shard is left and none will come."""


@dataclass(eq=False)
class _Keeper:
    """Whoever keeps one slot filled."""

    slot: int
    placed: asyncio.Future[None]
    task: asyncio.Task[None] | None = None
    link: ShardLink | None = None
    is_spawning: bool = False
    is_leaving: bool = False


class ShardPool:
    """Any number of shards that share one cap. `start` it inside a running loop; `aclose` it."""

    def __init__(self, spawn: Spawn, cap: int, work: Work, clock: Callable[[], float]) -> None:
        self._spawn = spawn
        self._cap = cap
        self._work = work
        self._clock = clock
        self._links: list[ShardLink] = []
        self._parts: dict[ShardLink, int] = {}
        """What each shard that takes leases has of the cap, once nothing that runs elsewhere stands in its way."""
        self._keepers: list[_Keeper] = []
        self._slots = 0
        self._news = asyncio.Event()
        self._nudges: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Shards that take leases."""
        return len(self._parts)

    @property
    def is_abandoned(self) -> bool:
        """True if nobody keeps a slot filled any more."""
        return not any(not keeper.is_leaving for keeper in self._keepers)

    @property
    def wanted(self) -> int:
        """Shards that are there or will be."""
        return sum(not keeper.is_leaving for keeper in self._keepers)

    async def start(self, shards: int) -> None:
        """Start shards and begin to serve them; returns once all answer, or after a while once one does.

        Raises:
            ShardLostError: they died while they started.
            ClusterError: none of them was placed.
        """
        placed = [self._add().placed for _ in range(shards)]
        await asyncio.wait(placed, timeout=PATIENCE_S)
        while not self._links and (pending := [future for future in placed if not future.done()]):
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        errors = [error for future in placed if future.done() and (error := future.exception())]
        if len(errors) == len(placed):
            raise errors[0]
        if len(self) < shards:
            logger.warning("%d of %d shards are there; the others join them when they come", len(self), shards)

    def scale(self, shards: int) -> None:
        """Have so many shards: more are started, superfluous ones end with what they have in flight."""
        staying = [keeper for keeper in self._keepers if not keeper.is_leaving]
        for _ in range(shards - len(staying)):
            self._add()
        # Those first that are not there yet, then the youngest
        leaving = sorted(staying, key=lambda keeper: (keeper.link is None, keeper.slot), reverse=True)
        for keeper in leaving[: max(len(staying) - shards, 0)]:
            self._retire(keeper)
        self.wake()

    def leave_nodes(self, nodes: Iterable[str]) -> None:
        """Replace the shards on these nodes, which are about to go away; what is in flight there may end."""
        going = set(nodes)
        for keeper in list(self._keepers):
            if not keeper.is_leaving and keeper.link is not None and keeper.link.handle.node in going:
                logger.warning("the node of shard %d is drained: its work moves to a new shard", keeper.slot)
                self._retire(keeper)
                self._add()

    async def aclose(self) -> None:
        """Close every shard; what is in flight is cancelled."""
        tasks = [keeper.task for keeper in self._keepers if keeper.task is not None]
        for task in [*tasks, *self._nudges]:
            task.cancel()
        await asyncio.gather(*tasks, *self._nudges, return_exceptions=True)

    # What the owner tells

    def wake(self) -> None:
        """Make every shard look for work: the parked ones and those that wait in an open step."""
        self._news.set()
        for link in self._links:
            self._nudge(link)

    def cancel_run(self, run_id: str) -> None:
        """Have the shards that hold some of a run let go of it."""
        for link in self._holders(run_id):
            link.cancelled.append(run_id)
        self.wake()

    def drain_run(self, run_id: str) -> None:
        """Have them hand back what of it has not started."""
        for link in self._holders(run_id):
            link.drained.append(run_id)
        self.wake()

    def forget_run(self, run_id: str) -> None:
        """Have no order of it reach a shard any more: the next run may have the same id."""
        for link in self._links:
            link.cancelled = [each for each in link.cancelled if each != run_id]
            link.drained = [each for each in link.drained if each != run_id]
            link.cancels = [each for each in link.cancels if each[0] != run_id]

    def cancel(self, run_id: str, numbers: Iterable[int]) -> None:
        """Cancel single rollouts wherever they are."""
        wanted = {(run_id, number) for number in numbers}
        for link in self._links:
            link.cancels += wanted & link.leases.keys()
        self.wake()

    def leases(self, run_id: str) -> Iterator[tuple[int, Leased]]:
        """What the shards hold of a run, as (number, lease)."""
        for link in self._links:
            for (owner, number), lease in link.leases.items():
                if owner == run_id:
                    yield number, lease

    async def stacks(self) -> list[str]:
        """Where the attempts in flight of each shard wait, a line each."""

        async def of(link: ShardLink) -> list[str]:
            try:
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    return [f"shard {link.slot}: {line}" for line in await link.handle.stacks()]
            except (ShardDied, TimeoutError):
                return [f"shard {link.slot} does not answer"]

        return [line for lines in await asyncio.gather(*map(of, self._links)) for line in lines]

    # Keeping a slot filled

    def _add(self) -> _Keeper:
        loop = asyncio.get_running_loop()
        keeper = _Keeper(self._slots, loop.create_future())
        self._slots += 1
        self._keepers.append(keeper)
        keeper.task = loop.create_task(self._keep(keeper))
        return keeper

    def _retire(self, keeper: _Keeper) -> None:
        keeper.is_leaving = True
        if keeper.link is None:
            if keeper.is_spawning:
                assert keeper.task is not None
                keeper.task.cancel()
            return  # what a dead shard held is still being settled
        keeper.link.is_retiring = True
        self._divide()
        keeper.link.drained += {run_id for run_id, _ in keeper.link.leases}
        self._nudge(keeper.link)

    async def _keep(self, keeper: _Keeper) -> None:
        error: Exception | None = None
        try:
            error = await self._keep_filled(keeper)
        except Exception as fault:
            logger.exception("shard %d cannot be served", keeper.slot)
            self._work.abandon(fault)
        finally:
            self._keepers.remove(keeper)
            if not keeper.placed.done():
                keeper.placed.set_exception(error or ShardLostError(f"shard {keeper.slot} is not wanted any more"))
                keeper.placed.exception()  # it is enough that `start` reads it
        if error is not None and self.is_abandoned:
            self._work.abandon(error)

    async def _keep_filled(self, keeper: _Keeper) -> Exception | None:
        """Serve one process after the other; returns why no other follows, None if none is wanted."""
        deaths = 0
        while not keeper.is_leaving:
            born = self._clock()
            keeper.is_spawning = True
            try:
                handle = await self._spawn(keeper.slot)
            except ShardDied as error:
                if not keeper.placed.done():
                    return ShardLostError(f"a shard could not be started: {error}")
                logger.warning("shard %d could not be started again: %s", keeper.slot, error)
                reason = error
            except ClusterError as error:
                if not self._links:
                    return error
                continue  # a node may come yet, and the others do the work
            except Exception as error:  # noqa: BLE001 - it is told to whoever waits for the start
                return error
            else:
                keeper.is_spawning = False
                lost = await self._live(keeper, handle)
                if lost is None:
                    return None
                reason = lost
            finally:
                keeper.is_spawning = False
            deaths = 1 if self._clock() - born > FORGIVEN_AFTER_S else deaths + 1
            if deaths > MAX_RESTARTS:
                logger.warning(
                    "shard %d is given up after %d restarts; %d remain", keeper.slot, MAX_RESTARTS, self.wanted - 1
                )
                return ShardLostError(f"every shard died; the last one: {reason}")
        return None

    async def _live(self, keeper: _Keeper, handle: ShardHandle) -> ShardDied | None:
        """Serve a shard until it has retired or died; returns what it died of."""
        link = keeper.link = ShardLink(keeper.slot, handle)
        self._links.append(link)
        self._divide()
        if not keeper.placed.done():
            keeper.placed.set_result(None)
        try:
            await self._serve(link)
        except ShardDied as error:
            self._forget(keeper, link)
            logger.warning("shard %d is lost with %d leases: %s", link.slot, len(link.leases), error)
            await asyncio.gather(handle.kill(), return_exceptions=True)
            await self._work.lose(link, error)
            self.wake()
            return error
        except BaseException:
            self._forget(keeper, link)
            await asyncio.gather(handle.aclose(), return_exceptions=True)
            raise
        self._forget(keeper, link)
        await asyncio.gather(handle.aclose(), return_exceptions=True)
        self.wake()
        return None

    def _forget(self, keeper: _Keeper, link: ShardLink) -> None:
        self._links.remove(link)
        keeper.link = None
        self._divide()

    # Serving one shard

    async def _serve(self, link: ShardLink) -> None:
        """Keep a shard busy until it has retired.

        Raises:
            ShardDied: it is gone, or has not answered for long.
        """
        while True:
            request = self._request(link)
            if not await self._work.announce(request.leases):
                self._undo(link, request)
                continue
            if not link.leases and not request.has_orders:
                if link.is_retiring:
                    return
                await self._park(link)
                continue
            try:
                link.is_open = True
                # Not wait_for: before Python 3.12 it swallows a cancellation that meets a result
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    answer = await link.handle.step(request)
            except TimeoutError:
                raise ShardDied(f"it has not answered for {STEP_TIMEOUT_S:.0f} s") from None
            finally:
                link.is_open = False
            await self._work.take(link, answer)
            had = link.ceiling
            link.answered(answer, self._clock())
            if link.ceiling < had and any(each.cap < part for each, part in self._parts.items()):
                self.wake()  # what this one may run less, another may run more

    def _request(self, link: ShardLink) -> StepRequest:
        owed = self._work.owed
        limit = self._credit(link, owed)
        slots = min(limit, max(link.cap - len(link.leases), 0))
        leased = self._work.lease(slots, limit - slots)
        now = self._clock()
        for header, _ in leased:
            link.leases[header.run, header.number] = Leased(header.attempt, header.server, now)
        link.lease_seq += bool(leased)
        cancelled, drained, cancels = link.take_orders()
        return StepRequest(
            ack=link.ack,
            leases=tuple(header for header, _ in leased),
            blob=Blob([line for _, line in leased]),
            cap=link.cap,
            cancelled_runs=cancelled,
            drained_runs=drained,
            more=owed > len(leased),
            lease_seq=link.lease_seq,
            recall=self._to_recall(link, owed),
            cancels=cancels,
        )

    def _credit(self, link: ShardLink, owed: int) -> int:
        if link.is_retiring:
            return 0
        others = sum(each.most_in_flight for each in self._links if each is not link)
        link.cap = max(min(self._parts[link], self._cap - others), 0)
        link.ceiling = max(link.ceiling, link.cap)
        return credit(
            cap=link.cap,
            held=len(link.leases),
            held_by_all=sum(len(each.leases) for each in self._links),
            rate_per_s=link.rate_per_s,
            owed=owed,
            shards=len(self._parts),
            has_reserve=self._work.may_wait_in_shards,
        )

    def _to_recall(self, link: ShardLink, owed: int) -> int:
        """Leases that wait in this shard while others are idle and nothing else is left for them."""
        if owed or not link.waiting:
            return 0
        idle = sum(max(part - len(each.leases), 0) for each, part in self._parts.items() if each is not link)
        return min(link.waiting, idle)

    def _divide(self) -> None:
        """Split the cap over the shards that take leases."""
        active = [link for link in self._links if not link.is_retiring]
        self._parts = dict(zip(active, split_cap(self._cap, len(active)), strict=True)) if active else {}

    def _undo(self, link: ShardLink, request: StepRequest) -> None:
        """Take back a request that was not sent."""
        link.cancelled = [*request.cancelled_runs, *link.cancelled]
        link.drained = [*request.drained_runs, *link.drained]
        link.cancels = [*request.cancels, *link.cancels]
        for header in request.leases:
            del link.leases[header.run, header.number]
        self._work.take_back(request.leases)

    async def _park(self, link: ShardLink) -> None:
        self._news.clear()
        for other in self._links:
            if other is not link and other.waiting:
                self._nudge(other)  # some of that could start here
        await self._news.wait()

    def _nudge(self, link: ShardLink) -> None:
        if link.is_open:
            task = asyncio.get_running_loop().create_task(self._send_nudge(link))
            self._nudges.add(task)
            task.add_done_callback(self._nudges.discard)

    async def _send_nudge(self, link: ShardLink) -> None:
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await link.handle.nudge()
        except (ShardDied, TimeoutError):
            return  # the open step of the same shard reports it

    def _holders(self, run_id: str) -> list[ShardLink]:
        return [link for link in self._links if any(owner == run_id for owner, _ in link.leases)]

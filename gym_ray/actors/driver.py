"""The driver: hands leases to shards, writes what they return, settles the ledger, ends the runs.

Invariants: a batch is acknowledged only after its records are written; every planned rollout is owed, leased or ended;
a shard's death turns its leases into owed rollouts or into failures, never into nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from gym_ray.actors.conclude import conclude
from gym_ray.actors.link import ShardDied, ShardHandle, ShardLink
from gym_ray.actors.opening import open_run
from gym_ray.actors.run import Phase, Run, RunView
from gym_ray.actors.spec import DriverSpec, RunSpec
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.exchange import Blob, CompletionHeader, LeaseHeader, StepAnswer, StepRequest, slices
from gym_ray.dispatch.leasing import credit, split_cap
from gym_ray.dispatch.ledger import State
from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.load import sample_load
from gym_ray.errors import ShardLostError
from gym_ray.identity import read_identity
from gym_ray.observe.tally import InFlight
from gym_ray.outcomes.judge import lost
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.outcomes.reply import Delivery as DeliveryEvidence
from gym_ray.recording.attempts import Ended, Started
from gym_ray.recording.status import write_status

logger = logging.getLogger("gym_ray.driver")

STEP_TIMEOUT_S = 10.0
"""Ten signs of life missed: the shard hangs."""
MAX_RESTARTS = 3
"""Of one shard slot; a process that keeps dying is a fault that a fourth start will not mend."""
SYNC_EVERY_S = 5.0
"""fsync period: what a power cut can take. A killed process loses nothing, since every batch is written at once."""

SAMPLE_EVERY_S = 30.0
"""Between looks at how busy the servers of a run are. Source: protocol §1.8."""
MAX_STRAGGLERS = 5
"""Rollouts in flight that are named while a run waits for its last ones."""

Spawn = Callable[[int], Awaitable[ShardHandle]]
"""Starts the shard of a slot and returns once it answers."""


class Driver:
    """Runs any number of runs over one set of shards. `start` it inside a running loop; `aclose` it."""

    def __init__(
        self,
        spec: DriverSpec,
        spawn: Spawn,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_time: Callable[[], float] = time.time,
    ) -> None:
        self._spec = spec
        self._spawn = spawn
        self._clock = clock
        self._time = wall_time
        self._links: list[ShardLink] = []
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._work = asyncio.Event()
        self._files = ThreadPoolExecutor(1, thread_name_prefix="gym_ray-files")
        self._client = EnvironmentClient(retry_requests=True)
        self._synced_at = clock()

    # Called by the owner

    async def start(self) -> None:
        """Start the shards and begin to serve them.

        Raises:
            ShardLostError: a shard died while it started.
        """
        try:
            handles = await asyncio.gather(*(self._spawn(slot) for slot in range(self._spec.shards)))
        except ShardDied as error:
            raise ShardLostError(f"a shard could not be started: {error}") from None
        self._links = [ShardLink(slot, handle) for slot, handle in enumerate(handles)]
        for link in self._links:
            self._own(self._serve, link)

    async def aclose(self) -> None:
        """Cancel everything that runs, close the shards, and let go of the files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.handle.aclose() for link in self._links), return_exceptions=True)
        for run in list(self._runs.values()):
            await self.forget(run.spec.run_id)
        await self._client.aclose()
        self._files.shutdown()

    # Called by the caller of a run

    async def open_run(self, spec: RunSpec, lines: Iterable[bytes] | None = None) -> int:
        """Begin a run from its files, or from rows in memory; returns how many rollouts it has.

        Raises:
            RoutingError: a row names no server that this driver knows.
            RunFolderError, RecordingError: the files cannot be used.
        """
        if not self._links:  # every shard has died in an earlier run
            await self.start()
        servers = self._spec.shard.servers
        if spec.paths is None:
            held = open_run(spec, servers, lines)  # touches no disk, and a thread would cost a training step a hop
        else:
            held = await self._in_thread(open_run, spec, servers, lines)
        run = Run(spec, held, self._spec.shard.servers, self._spec.cap, self._clock())
        self._runs[spec.run_id] = run
        await self._publish(run)
        self._consider(run)
        self._wake()
        if run.timing is not None:
            self._own(self._sample_load, run)
        return len(run.plan)

    async def feed(self, run_id: str, lines: Iterable[bytes], *, is_last: bool) -> None:
        """Give an open-ended run more rows; with `is_last` there are no more.

        Raises:
            RoutingError: a row names no server that this driver knows.
        """
        run = self._runs[run_id]
        run.feed(lines)
        run.is_sealed = is_last
        self._consider(run)
        self._wake()

    async def release(self, run_id: str, rollouts: Iterable[tuple[int, int]], *, is_last: bool) -> None:
        """Let rollouts of an open-ended run with files start, in this order, given as (number, least attempt); with
        `is_last` there are no more."""
        run = self._runs[run_id]
        run.ledger.release(rollouts)
        run.is_sealed = is_last
        self._consider(run)
        self._wake()

    async def next(
        self, run_id: str, ack: int, max_items: int, wait_s: float
    ) -> tuple[int, tuple[Delivery, ...], RunView]:
        """The next outcomes of a run that delivers; waits up to `wait_s` for one. Repeatable until acknowledged."""
        run = self._runs[run_id]
        was_full = run.deliveries.is_full
        seq, batch = run.deliveries.take(ack, max_items)
        if was_full and not run.deliveries.is_full:
            self._wake()
        if not batch and run.phase not in (Phase.DONE, Phase.FAILED):
            await self._wait(run, wait_s)
            seq, batch = run.deliveries.take(ack, max_items)
        return seq, batch, self._view(run)

    async def poll(self, run_id: str, wait_s: float) -> RunView:
        """How a run stands; returns early when its phase changes."""
        run = self._runs[run_id]
        if run.phase not in (Phase.DONE, Phase.FAILED):
            await self._wait(run, wait_s)
        return self._view(run)

    async def stop_run(self, run_id: str) -> None:
        """Start nothing more of a run and cancel what is in flight; what is owed stays owed."""
        run = self._runs[run_id]
        self._cancel(run)
        self._consider(run)

    async def drain_run(self, run_id: str) -> None:
        """Start nothing more of a run and let what is in flight end; what is owed stays owed."""
        run = self._runs.get(run_id)
        if run is None:
            return
        run.is_draining = True
        for link in self._links:
            if any(owner == run_id for owner, _ in link.leases):
                link.drained.append(run_id)
        self._consider(run)
        self._wake()

    async def forget(self, run_id: str) -> None:
        """Drop a run: cancel what is in flight and close its files."""
        run = self._runs.pop(run_id, None)
        if run is not None:
            self._cancel(run)
            await self._in_thread(run.held.close)

    # Serving the shards

    async def _serve(self, link: ShardLink) -> None:
        while True:
            request = self._request(link)
            if not await self._log_leases(link, request):
                continue
            if not link.leases and not link.cancelled and not request.cancelled_runs and not request.drained_runs:
                self._work.clear()
                await self._work.wait()
                continue
            started_at = self._clock()
            try:
                link.is_open = True
                # Not wait_for: before Python 3.12 it swallows a cancellation that meets a result
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    answer = await link.handle.step(request)
            except (ShardDied, TimeoutError) as error:
                if not await self._replace(link, error):
                    return
                continue
            finally:
                link.is_open = False
            await self._take(link, answer)
            link.measured(len(answer.completions), self._clock() - started_at)

    def _request(self, link: ShardLink) -> StepRequest:
        link.cap = cap = split_cap(self._spec.cap, len(self._links))[self._links.index(link)]
        owed = sum(run.leasable for run in self._runs.values())
        limit = credit(
            cap=cap,
            held=len(link.leases),
            held_by_all=sum(len(each.leases) for each in self._links),
            rate_per_s=link.rate_per_s,
            owed=owed,
            shards=len(self._links),
            has_reserve=all(run.may_wait_in_shards for run in self._runs.values()),
        )
        headers: list[LeaseHeader] = []
        lines: list[bytes] = []
        for run in list(self._runs.values()):
            for header, line in run.lease(limit - len(headers), self._clock()):
                headers.append(header)
                lines.append(line)
                link.leases[header.run, header.number] = (header.attempt, self._clock())
            self._consider(run)  # a spent budget may have ended it just now
        link.lease_seq += bool(headers)
        cancelled, link.cancelled = tuple(link.cancelled), []
        drained, link.drained = tuple(link.drained), []
        return StepRequest(
            ack=link.ack,
            leases=tuple(headers),
            blob=Blob(lines),
            cap=cap,
            cancelled_runs=cancelled,
            drained_runs=drained,
            more=owed > len(headers),
            lease_seq=link.lease_seq,
        )

    async def _log_leases(self, link: ShardLink, request: StepRequest) -> bool:
        """Note which attempt numbers are about to be used; False if a file refuses, and then none of them is."""
        attempts: dict[str, list[Started]] = {}
        now_ms = round(self._time() * 1000)
        for header in request.leases:
            run = self._runs[header.run]
            if run.held.files is not None:
                started = Started(now_ms, *run.plan.key(header.number), header.attempt)
                attempts.setdefault(header.run, []).append(started)
        for run_id, started_now in attempts.items():
            run = self._runs[run_id]
            assert run.held.files is not None
            try:
                await self._in_thread(run.held.files.attempts.started, started_now)
            except Exception as error:  # noqa: BLE001 - whatever stops the records ends the run, and is told to its caller
                self._fail(run, error)
                self._take_back(link, request)
                return False
        return True

    def _take_back(self, link: ShardLink, request: StepRequest) -> None:
        """Undo a request that was not sent."""
        link.cancelled = [*request.cancelled_runs, *link.cancelled]
        link.drained = [*request.drained_runs, *link.drained]
        for header in request.leases:
            del link.leases[header.run, header.number]
            self._runs[header.run].give_back(header.number, started=False)

    async def _take(self, link: ShardLink, answer: StepAnswer) -> None:
        """Write a batch, then settle it, then let the next request acknowledge it."""
        arrived: dict[str, list[tuple[CompletionHeader, memoryview]]] = {}
        for header, record in zip(
            answer.completions, slices((h.size for h in answer.completions), answer.blob), strict=True
        ):
            if link.leases.pop((header.run, header.number), None) is not None:
                arrived.setdefault(header.run, []).append((header, record))
        for run_id, items in arrived.items():
            if (run := self._runs.get(run_id)) is not None:
                await self._record(run, items)
        for run_id, number, _, started in answer.released:
            link.leases.pop((run_id, number), None)
            if (run := self._runs.get(run_id)) is not None:
                run.give_back(number, started=started)
                self._consider(run)
        for notice in answer.notices:
            logger.warning("%s", notice)
        link.ack = answer.seq

    async def _record(self, run: Run, items: list[tuple[CompletionHeader, memoryview]]) -> None:
        if run.held.files is not None:
            batch = [
                (run.plan.owner(header.number), header.kind == OutcomeKind.RESULT, line)
                for header, record in items
                if (line := run.persisted(header, record))
            ]
            now_ms = round(self._time() * 1000)
            ended = [Ended(now_ms, *run.plan.key(h.number), h.attempt, h.kind, h.latency_ms, h.sends) for h, _ in items]
            try:
                await self._in_thread(run.held.files.append, batch, ended)
                await self._sync_now_and_then(run)
            except Exception as error:  # noqa: BLE001 - whatever stops the records ends the run, and is told to its caller
                self._fail(run, error)
                return
        for header, record in items:
            run.settle(header, record)
        run.changed.set()
        self._consider(run)

    async def _sync_now_and_then(self, run: Run) -> None:
        if run.held.files is not None and self._clock() - self._synced_at >= SYNC_EVERY_S:
            self._synced_at = self._clock()
            await self._in_thread(run.held.files.recorder.sync)
            await self._publish(run)

    async def _publish(self, run: Run) -> None:
        """Write how a run stands beside its records."""
        if run.spec.paths is not None:
            await self._in_thread(write_status, run.spec.paths, run.status(self._clock()))

    async def _sample_load(self, run: Run) -> None:
        """Look at the servers of a run now and then, as long as it dispatches."""
        urls = tuple(server.base_url for server in self._spec.shard.servers)
        while run.phase is Phase.DISPATCHING and not run.is_stopped and run.timing is not None:
            sample = await sample_load(self._client.get, urls, self._spec.model_urls)
            run.timing.add_load(None if sample is None else (sample.waiting, sample.running))
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def _replace(self, link: ShardLink, error: Exception) -> bool:
        """Deal with the leases of a dead shard and start another; False if this slot is given up."""
        logger.warning("shard %d is lost with %d leases: %s", link.slot, len(link.leases), error)
        leases, link.leases = link.leases, {}
        await asyncio.gather(link.handle.aclose(), return_exceptions=True)
        for position, ((run_id, number), (attempt, _)) in enumerate(leases.items()):
            if (run := self._runs.get(run_id)) is not None:
                # Leases start in order, so those beyond the cap were most likely still waiting: not what killed it
                is_poison = position < link.cap and run.ledger.died(number)
                await self._lose(run, number, attempt, f"shard {link.slot} died: {error}", is_poison=is_poison)
        while link.restarts < MAX_RESTARTS:
            link.restarts += 1
            try:
                link.reset(await self._spawn(link.slot))
            except ShardDied as again:
                logger.warning("shard %d could not be started again: %s", link.slot, again)
                continue
            return True
        self._links.remove(link)
        logger.warning("shard %d is given up after %d restarts; %d remain", link.slot, MAX_RESTARTS, len(self._links))
        if not self._links:
            for run in self._runs.values():
                self._fail(run, ShardLostError(f"every shard died; the last one: {error}"))
        self._wake()
        return False

    async def _lose(self, run: Run, number: int, attempt: int, reason: str, *, is_poison: bool) -> None:
        if run.spec.retry_requests and not is_poison and run.has_budget(self._clock()):
            run.give_back(number, started=True)
            self._consider(run)
            return
        line = run.plan.line(number)
        server = self._spec.shard.servers[run.plan.server(number)]
        outcome = lost(
            read_identity(line), attempt, server, reason, DeliveryEvidence.POSSIBLY_DELIVERED, run.spec.run_id
        )
        header = CompletionHeader(
            run.spec.run_id, number, attempt, int(outcome.kind), len(outcome.record), 0, 0.0, None, False,
            outcome.failure_class, outcome.terminal, None, 0,
        )  # fmt: skip
        await self._record(run, [(header, memoryview(outcome.record))])

    # Ending a run

    def _consider(self, run: Run) -> None:
        if run.phase is Phase.DISPATCHING and run.is_dispatched:
            run.enter(Phase.MERGING)
            self._own(self._conclude, run)

    async def _conclude(self, run: Run) -> None:
        try:
            run.report = await conclude(run, self._spec.shard.servers, self._client, self._in_thread, self._clock)
            await self._publish(run)
            await self._in_thread(run.held.close)
            run.enter(Phase.DONE)
        except Exception as error:  # noqa: BLE001 - it is told to the caller of the run
            self._fail(run, error)

    def _fail(self, run: Run, error: BaseException) -> None:
        logger.error("run %s fails: %s", run.spec.run_id, error)
        run.error = error
        self._cancel(run)
        run.enter(Phase.FAILED)

    def _cancel(self, run: Run) -> None:
        """Lease nothing more of a run, and have the shards that hold some of it let go."""
        run.is_stopped = True
        for link in self._links:
            if any(run_id == run.spec.run_id for run_id, _ in link.leases):
                link.cancelled.append(run.spec.run_id)
        self._wake()

    # Plumbing

    def _view(self, run: Run) -> RunView:
        now = self._clock()
        view = run.view(now)
        if view.progress.owed != run.ledger.count(State.LEASED):
            return view  # something is left to start, so nobody waits for a straggler yet
        held = [
            (leased_at, number, attempt)
            for link in self._links
            for (run_id, number), (attempt, leased_at) in link.leases.items()
            if run_id == run.spec.run_id
        ]
        oldest = tuple(
            InFlight(*run.plan.key(number), attempt, run.server_name(number), now - leased_at)
            for leased_at, number, attempt in sorted(held)[:MAX_STRAGGLERS]
        )
        return replace(view, progress=replace(view.progress, oldest=oldest))

    def _wake(self) -> None:
        """Make every shard look for work: the parked ones and those that wait in an open step."""
        self._work.set()
        for link in self._links:
            if link.is_open:
                self._own(self._nudge, link)

    async def _nudge(self, link: ShardLink) -> None:
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await link.handle.nudge()
        except (ShardDied, TimeoutError):
            return  # the open step of the same shard reports it

    async def _wait(self, run: Run, wait_s: float) -> None:
        run.changed.clear()
        try:
            async with asyncio.timeout(wait_s):
                await run.changed.wait()
        except TimeoutError:
            return

    def _own(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work, *args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        try:
            await work(*args)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            logger.exception("the driver failed")
            for run in self._runs.values():
                self._fail(run, error)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._files, function, *args)

"""Driver and shards as Ray actors. Each wrapper is the plain class plus one call; supervision is the driver's.

Ray never restarts an actor and never retries a call (`max_restarts=0`, `max_task_retries=0`): it would leave processes
without configuration and run work twice. A call that fails says that the process is gone.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray._private.state import state  # it has no public door; Ray's own libraries use it for the same
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gym_ray.actors.driver import Driver
from gym_ray.actors.link import ShardDied
from gym_ray.actors.notices import Notices
from gym_ray.actors.run import RunView
from gym_ray.actors.shard import Shard
from gym_ray.actors.spec import DriverSpec, RunSpec, ShardSpec
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.exchange import Blob, StepAnswer, StepRequest, slices
from gym_ray.errors import ClusterError, DriverLostError

logger = logging.getLogger("gym_ray.cluster")

ACTOR_CPUS = 0.25
"""A fraction, so that a small cluster fits them; never 0, for which Ray stops spreading actors over nodes."""
PATIENCE_S = 10.0
"""After this long without a place for an actor we say so."""
CALL_TIMEOUT_S = 60.0
"""For calls that answer at once unless the driver's machine is in trouble."""
CLOSE_TIMEOUT_S = 15.0

T = TypeVar("T")


class ShardActor:
    """A `Shard` in its own process."""

    def __init__(self, spec: ShardSpec) -> None:
        self._notices = Notices.install()
        _collect_garbage_rarely()
        self._spec = spec

    async def ready(self) -> str:
        """Begin to serve, and answer with the id of its node.

        Raises:
            ConfigError: see `Shard`; a constructor that raises would look like a dead process.
        """
        self._shard = Shard(self._spec)
        return str(ray.get_runtime_context().get_node_id())

    async def step(self, request: StepRequest) -> StepAnswer:
        answer = await self._shard.step(request)
        notices = self._notices.drain()
        return replace(answer, notices=notices) if notices else answer

    async def nudge(self) -> None:
        await self._shard.nudge()

    async def stacks(self) -> list[str]:
        return await self._shard.stacks()

    async def close(self) -> None:
        await self._shard.aclose()


class DriverActor:
    """A `Driver` in its own process; it owns the shard actors, so they end with it."""

    def __init__(self, spec: DriverSpec) -> None:
        self._spec = spec
        self._notices = Notices.install()
        _collect_garbage_rarely()
        self._driver = Driver(spec, self._spawn, draining_nodes=_draining_nodes)

    async def start(self) -> None:
        await self._driver.start()

    async def open_run(self, spec: RunSpec, sizes: tuple[int, ...], blob: Blob) -> int:
        return await self._driver.open_run(spec, [bytes(line) for line in slices(sizes, blob)])

    async def feed(self, run_id: str, sizes: tuple[int, ...], blob: Blob, *, is_last: bool) -> None:
        await self._driver.feed(run_id, [bytes(line) for line in slices(sizes, blob)], is_last=is_last)

    async def release(self, run_id: str, rollouts: list[tuple[int, int]], *, is_last: bool) -> None:
        await self._driver.release(run_id, rollouts, is_last=is_last)

    async def next(
        self, run_id: str, ack: int, max_items: int, wait_s: float
    ) -> tuple[int, tuple[Delivery, ...], RunView]:
        seq, batch, view = await self._driver.next(run_id, ack, max_items, wait_s)
        return seq, batch, self._with_notices(view)

    async def poll(self, run_id: str, wait_s: float) -> RunView:
        return self._with_notices(await self._driver.poll(run_id, wait_s))

    def _with_notices(self, view: RunView) -> RunView:
        return replace(view, notices=self._notices.drain())

    async def stop_run(self, run_id: str) -> None:
        await self._driver.stop_run(run_id)

    async def drain_run(self, run_id: str) -> None:
        await self._driver.drain_run(run_id)

    async def forget(self, run_id: str) -> None:
        await self._driver.forget(run_id)

    async def scale(self, shards: int) -> None:
        await self._driver.scale(shards)

    async def close(self) -> None:
        await self._driver.aclose()

    async def _spawn(self, slot: int) -> "RemoteShard":
        # SPREAD: a node that dies takes as few shards with it as possible
        actor = _actor(ShardActor, scheduling_strategy="SPREAD").remote(self._spec.shard)
        try:
            ready = _call(actor.ready.remote())
            node = await _placed(ready, f"shard {slot}", self._spec.spawn_timeout_s)
        except BaseException:
            ray.kill(actor)  # also one that waits for a place
            raise
        return RemoteShard(actor, node)


class RemoteShard:
    """The handle of a shard actor; a dead process raises `ShardDied`."""

    def __init__(self, actor: Any, node: str) -> None:
        self._actor = actor
        self._node = node

    @property
    def node(self) -> str | None:
        return self._node

    async def step(self, request: StepRequest) -> StepAnswer:
        return await _call(self._actor.step.remote(request))

    async def nudge(self) -> None:
        await _call(self._actor.nudge.remote())

    async def stacks(self) -> list[str]:
        return await _call(self._actor.stacks.remote())

    async def kill(self) -> None:
        ray.kill(self._actor)

    async def aclose(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await _call(self._actor.close.remote())
        except (ShardDied, TimeoutError):
            logger.debug("a shard did not close by itself")
        finally:
            ray.kill(self._actor)


async def _call(ref: Awaitable[T]) -> T:
    """Wait for a call of a shard actor.

    Raises:
        ShardDied: its process is gone.
    """
    try:
        return await ref
    except RayTaskError as error:
        raise error.cause from None
    except RayActorError as error:
        raise ShardDied(str(error).splitlines()[0]) from None


async def _draining_nodes() -> set[str]:
    """Ids of the nodes that the cluster is about to take away, by preemption, scaling down or `ray drain-node`."""
    return set(await asyncio.to_thread(state.get_draining_nodes))


class RemoteDriver:
    """The handle of a driver actor: the methods of `Driver`, each with a bounded wait.

    A dead driver raises `ClusterError`.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def open_run(self, spec: RunSpec, lines: list[bytes] | None = None) -> int:
        lines = lines or []
        sizes = tuple(map(len, lines))
        # No time limit of its own: reading the plan of a million rows takes its time, and a dead driver is seen at once
        return await self._call(self._actor.open_run.remote(spec, sizes, Blob(lines)), None)

    async def feed(self, run_id: str, lines: list[bytes], *, is_last: bool) -> None:
        sizes = tuple(map(len, lines))
        await self._call(self._actor.feed.remote(run_id, sizes, Blob(lines), is_last=is_last), CALL_TIMEOUT_S)

    async def release(self, run_id: str, rollouts: list[tuple[int, int]], *, is_last: bool) -> None:
        await self._call(self._actor.release.remote(run_id, rollouts, is_last=is_last), CALL_TIMEOUT_S)

    async def next(
        self, run_id: str, ack: int, max_items: int, wait_s: float
    ) -> tuple[int, tuple[Delivery, ...], RunView]:
        call = self._actor.next.remote(run_id, ack, max_items, wait_s)
        seq, batch, view = await self._call(call, wait_s + CALL_TIMEOUT_S)
        return seq, batch, _told(view)

    async def poll(self, run_id: str, wait_s: float) -> RunView:
        return _told(await self._call(self._actor.poll.remote(run_id, wait_s), wait_s + CALL_TIMEOUT_S))

    async def stop_run(self, run_id: str) -> None:
        await self._call(self._actor.stop_run.remote(run_id), CALL_TIMEOUT_S)

    async def drain_run(self, run_id: str) -> None:
        await self._call(self._actor.drain_run.remote(run_id), CALL_TIMEOUT_S)

    async def forget(self, run_id: str) -> None:
        await self._call(self._actor.forget.remote(run_id), CALL_TIMEOUT_S)

    async def scale(self, shards: int) -> None:
        await self._call(self._actor.scale.remote(shards), CALL_TIMEOUT_S)

    async def _call(self, ref: Awaitable[T], timeout_s: float | None) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await ref
        except RayActorError as error:
            raise DriverLostError(f"the driver actor died: {str(error).splitlines()[0]}") from None
        except RayTaskError as error:
            raise error.cause from None  # the error itself, without the remote traceback around its message
        except TimeoutError:
            raise ClusterError(f"the driver actor has not answered for {timeout_s:.0f} s") from None


def _collect_garbage_rarely() -> None:
    """Tune the collector of an actor process, which is ours alone.

    By default it runs after every 700 new objects and walks all of Ray's modules now and then: 28 of 125 us for each
    rollout at 1 KB. What we make is freed by reference counts; the collector is for the rare cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _told(view: RunView) -> RunView:
    for notice in view.notices:
        logger.warning("%s", notice)
    return view


@asynccontextmanager
async def remote_driver(spec: DriverSpec) -> AsyncIterator[RemoteDriver]:
    """A started driver actor with its shards; closed and killed on exit.

    Raises:
        ClusterError: the cluster could not place the actors within `spec.spawn_timeout_s`.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = _actor(DriverActor, scheduling_strategy=here).remote(spec)
    try:
        await _placed(_shielded_start(actor), f"the driver and {spec.shards} shards", spec.spawn_timeout_s + PATIENCE_S)
        yield RemoteDriver(actor)
        async with asyncio.timeout(CLOSE_TIMEOUT_S + PATIENCE_S):  # longer than the shards are given
            await actor.close.remote()
    except RayActorError as error:
        raise DriverLostError(f"the driver actor died: {str(error).splitlines()[0]}") from None
    finally:
        ray.kill(actor)


async def _shielded_start(actor: Any) -> None:
    try:
        await actor.start.remote()
    except RayTaskError as error:
        raise error.cause from None  # the error itself, without the remote traceback around its message


def _actor(plain: type, **options: Any) -> Any:
    return ray.remote(plain).options(
        num_cpus=ACTOR_CPUS,
        max_restarts=0,  # gym_ray supervises; see the module docstring
        max_task_retries=0,
        **options,
    )


async def _placed(ready: Awaitable[T], what: str, timeout_s: float) -> T:
    """What an actor answers at first; says so when the cluster takes long to place it, raises when it takes too long.

    Raises:
        ClusterError: there was no place for it within `timeout_s`.
    """
    task = asyncio.ensure_future(ready)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    if not done:
        logger.warning("Ray has not placed %s for %.0f s; %s. Still waiting.", what, PATIENCE_S, _free())
        done, _ = await asyncio.wait({task}, timeout=timeout_s - PATIENCE_S)
    if not done:
        task.cancel()
        raise ClusterError(
            f"Ray could not place {what} within {timeout_s:.0f} s; {_free()}: free CPUs, or ask for fewer --shards"
        )
    return await task


def _free() -> str:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]  # ray has no types for it
    return f"each actor needs {ACTOR_CPUS} CPU, the cluster has {free.get('CPU', 0):g} free"

"""Joins the Ray cluster that is there, or starts a quiet one on this machine."""

import asyncio
import contextlib
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import ray

from gym_ray.errors import ClusterError

logger = logging.getLogger("gym_ray.cluster")

OBJECT_STORE_BYTES = 256 << 20
"""A local store holds batches on their way, 8 MiB each; the default, 30 % of the memory, serves nobody here."""
ANSWER_WITHIN_S = 10.0
"""For the first byte of a connection; where nothing listens Ray itself asks again for many minutes."""
CONNECT_WITHIN_S = 60.0
"""For all of `ray.init`; a cluster of this machine starts in 2-10 s."""

_HOST_AND_PORT = re.compile(r"\[?([^/\[\]]+)\]?:([0-9]+)")


@asynccontextmanager
async def connection(address: str | None, shards: int) -> AsyncIterator[None]:
    """A connection to Ray: the caller's own, else `address` or RAY_ADDRESS, else a new local cluster.

    Only what this call started is shut down on exit.

    Raises:
        ClusterError: the cluster at the address does not answer.
    """
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if address is not None:
        await _check_listens(address)
    left = threading.Event()
    try:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            await _in_daemon_thread(lambda: _connect(address, shards), left)
    except TimeoutError:
        raise ClusterError(
            f"Ray at {address or 'this machine'} has not answered for {CONNECT_WITHIN_S:.0f} s: is it Ray that listens "
            "there, of this version, and with this authentication (RAY_AUTH_MODE)?"
        ) from None
    try:
        yield
    finally:
        await asyncio.to_thread(ray.shutdown)
        left.set()


async def _check_listens(address: str) -> None:
    """Say at once that nothing listens at `HOST:PORT`; other kinds of addresses are Ray's to judge.

    Raises:
        ClusterError: nothing does.
    """
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None:
        return
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            _, writer = await asyncio.open_connection(match[1], int(match[2]))
    except (OSError, OverflowError, TimeoutError) as error:
        reason = str(error) or f"no answer within {ANSWER_WITHIN_S:.0f} s"
        raise ClusterError(f"Ray at {address} cannot be reached: {reason}") from error
    writer.close()


async def _in_daemon_thread(work: Callable[[], None], left: threading.Event) -> None:
    """Wait for `work` in a thread that the end of this process does not wait for.

    It lives until `left` is set: Ray's processes are told to end with the thread that has started them.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised in whoever waits
            errors.append(error)
        with contextlib.suppress(RuntimeError):  # nobody waits any more, and the loop is closed
            loop.call_soon_threadsafe(done.set)
        if not errors:
            left.wait()

    threading.Thread(target=run, name="gym_ray-connect", daemon=True).start()
    await done.wait()
    if errors:
        raise errors[0]


def _connect(address: str | None, shards: int) -> None:
    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            address="local",
            num_cpus=max(2, shards + 1),  # as many workers are started ahead, so that no actor waits for a process
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"Ray at {address or 'this machine'} cannot be reached: {error}") from error

"""Joins the Ray cluster that is there, or starts a quiet one on this machine."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import ray

from gym_ray.errors import ClusterError

logger = logging.getLogger("gym_ray.cluster")

OBJECT_STORE_BYTES = 256 << 20
"""A local store holds batches on their way, 8 MiB each; the default, 30 % of the memory, serves nobody here."""


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
    await asyncio.to_thread(_connect, address or os.environ.get("RAY_ADDRESS"), shards)
    try:
        yield
    finally:
        await asyncio.to_thread(ray.shutdown)


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

"""Driver and shards in the caller's own process: the same classes without Ray, for laptops and tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gym_ray.actors.driver import Driver
from gym_ray.actors.shard import Shard
from gym_ray.actors.spec import DriverSpec


@asynccontextmanager
async def local_driver(spec: DriverSpec) -> AsyncIterator[Driver]:
    """A started driver whose shards share this event loop; closed on exit."""

    async def spawn(_slot: int) -> Shard:
        return Shard(spec.shard)

    driver = Driver(spec, spawn)
    try:
        await driver.start()
        yield driver
    finally:
        await driver.aclose()

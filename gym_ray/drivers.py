"""Drivers that stay warm from call to call."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack

from gym_ray.actors.backend import DriverHandle, started_driver
from gym_ray.actors.spec import DriverSpec
from gym_ray.config import Executor
from gym_ray.errors import ClusterError

logger = logging.getLogger("gym_ray.cluster")


class WarmDrivers:
    """Starts a driver when it is first asked for, and keeps it until it is lost or this is closed."""

    def __init__(self, executor: Executor, ray_address: str | None) -> None:
        self._executor = executor
        self._ray_address = ray_address
        self._held: dict[Hashable, DriverHandle] = {}
        self._stack = AsyncExitStack()
        self._guard = asyncio.Lock()

    @property
    def held(self) -> tuple[DriverHandle, ...]:
        """Those that are there."""
        return tuple(self._held.values())

    async def get(self, key: Hashable, spec: Callable[[], DriverSpec]) -> DriverHandle:
        """The driver of a key; the first call starts it.

        Raises: as `started_driver`.
        """
        async with self._guard:
            if key not in self._held:
                starting = started_driver(spec(), self._executor, self._ray_address)
                self._held[key] = await self._stack.enter_async_context(starting)
            return self._held[key]

    async def let_go_of(self, lost: DriverHandle) -> None:
        """Have the next call start another one; with the last one their Ray goes too, which may be what has died."""
        async with self._guard:
            if lost in self.held:
                self._held = {key: held for key, held in self._held.items() if held is not lost}
                if not self._held:
                    await self._close()

    async def aclose(self) -> None:
        """End every driver; one that is starting is waited for. Calls that follow start anew."""
        async with self._guard:
            self._held.clear()
            await self._close()

    async def _close(self) -> None:
        try:
            await self._stack.aclose()
        except ClusterError as error:  # whoever needed it was told; what it held has ended with it
            logger.info("%s", error)

"""One open-ended run of a driver behind an iterator of completions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gym_ray.actors.backend import DriverHandle
from gym_ray.actors.run import Phase
from gym_ray.actors.spec import RunSpec
from gym_ray.dispatch.deliveries import Delivery

BATCH_ITEMS = 256
WAIT_S = 10.0
FEED_BYTES = 8 << 20
"""Rows go to the driver in calls of about this size."""


class DriverSession:
    """Feeds lines to a driver and reports what comes back; see `completions.Session`."""

    def __init__(
        self,
        driver: Callable[[], Awaitable[DriverHandle]],
        spec: RunSpec,
        lines: Sequence[bytes],
        meaning: Callable[[Delivery], Any],
    ) -> None:
        """`meaning` turns a delivery into the result, or the exception, that the caller gets."""
        self._driver = driver
        self._spec = spec
        self._lines = lines
        self._meaning = meaning
        self._pump: asyncio.Task[None] | None = None

    async def start(self, arrived: Callable[[int, Any], None], failed: Callable[[BaseException], None]) -> None:
        """Open the run and begin to report."""
        driver = await self._driver()
        await driver.open_run(self._spec, [])
        self._pump = asyncio.get_running_loop().create_task(self._report(driver, arrived, failed))

    async def feed(self, positions: range, *, is_last: bool) -> None:
        """Have these rows dispatched, in order."""
        driver, batch, size = await self._driver(), list[bytes](), 0
        for position in positions:
            batch.append(self._lines[position])
            size += len(batch[-1])
            if size >= FEED_BYTES and position != positions[-1]:
                await driver.feed(self._spec.run_id, batch, is_last=False)
                batch, size = [], 0
        await driver.feed(self._spec.run_id, batch, is_last=is_last)

    async def stop(self) -> None:
        """Cancel what is in flight; returns once everything that had ended was reported."""
        if self._pump is None:
            return
        if not self._pump.done():
            with contextlib.suppress(KeyError):  # it ended and was forgotten meanwhile
                await (await self._driver()).stop_run(self._spec.run_id)
        await asyncio.wait({self._pump})

    async def _report(
        self, driver: DriverHandle, arrived: Callable[[int, Any], None], failed: Callable[[BaseException], None]
    ) -> None:
        run_id, ack = self._spec.run_id, 0
        try:
            while True:
                ack, batch, view = await driver.next(run_id, ack, BATCH_ITEMS, WAIT_S)
                for delivery in batch:
                    arrived(delivery.header.number, self._meaning(delivery))
                if not batch and view.error is not None:
                    failed(view.error)
                    return
                if not batch and view.phase is Phase.DONE:
                    return
        except Exception as error:  # noqa: BLE001 - a dead driver is told to whoever awaits a completion
            failed(error)
        finally:
            with contextlib.suppress(Exception):
                await driver.forget(run_id)

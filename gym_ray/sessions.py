"""One open-ended run of a driver behind an iterator of completions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from gym_ray.actors.backend import DriverHandle
from gym_ray.actors.run import Phase
from gym_ray.actors.spec import RunSpec
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.preparing import visible_folder

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
        meaning: Callable[[int, Delivery], Any],
        planned: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """A session over rows.

        Args:
            meaning: turns the position of a row and its delivery into the result, or the exception, that the caller
                gets.
            planned: number and least attempt of each row, in a plan that the driver reads from files; None feeds it
                the rows.
        """
        self._driver = driver
        self._spec = spec
        self._lines = lines
        self._meaning = meaning
        self._planned = planned
        self._positions = None if planned is None else {number: at for at, (number, _) in enumerate(planned)}
        self._pump: asyncio.Task[None] | None = None
        self._arrived: Callable[[int, Any], None] = lambda _position, _result: None
        self._failed: Callable[[BaseException], None] = lambda _error: None

    async def start(self, arrived: Callable[[int, Any], None], failed: Callable[[BaseException], None]) -> None:
        """Begin to report. A run of rows is opened with the first of them, which saves a call."""
        self._arrived, self._failed = arrived, failed
        driver = await self._driver()
        if self._planned is not None:
            with visible_folder(self._spec) as spec:
                await driver.open_run(spec, [])
            self._begin(driver)

    def _begin(self, driver: DriverHandle) -> None:
        work = self._report(driver, self._arrived, self._failed)
        self._pump = asyncio.get_running_loop().create_task(work)

    async def _hand_over(self, driver: DriverHandle, lines: list[bytes], *, is_last: bool) -> None:
        if self._pump is not None:
            await driver.feed(self._spec.run_id, lines, is_last=is_last)
            return
        await driver.open_run(replace(self._spec, is_open_ended=not is_last), lines)
        self._begin(driver)

    async def feed(self, positions: range, *, is_last: bool) -> None:
        """Have these rows dispatched, in order."""
        driver, batch, size = await self._driver(), list[bytes](), 0
        if self._planned is not None:
            rollouts = [self._planned[position] for position in positions]
            await driver.release(self._spec.run_id, rollouts, is_last=is_last)
            return
        for position in positions:
            batch.append(self._lines[position])
            size += len(batch[-1])
            if size >= FEED_BYTES and position != positions[-1]:
                await self._hand_over(driver, batch, is_last=False)
                batch, size = [], 0
        await self._hand_over(driver, batch, is_last=is_last)

    async def join(self) -> None:
        """Wait for the status of a recorded run; others have nothing to wait for."""
        if self._spec.paths is not None and self._pump is not None:
            await asyncio.wait({self._pump})

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
                    number = delivery.header.number
                    position = number if self._positions is None else self._positions[number]
                    arrived(position, self._meaning(position, delivery))
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

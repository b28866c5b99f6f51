"""One open-ended run of a driver behind an iterator of completions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from gym_ray.actors.backend import DriverHandle, open_run
from gym_ray.actors.run import Phase
from gym_ray.actors.spec import RunSpec
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.errors import ClusterError, DriverLostError, IncompleteRunError
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
        on_lost: Callable[[DriverHandle], Awaitable[None]] | None = None,
    ) -> None:
        """A session over rows.

        Args:
            driver: gives the driver, when the session starts.
            meaning: turns the position of a row and its delivery into the result, or the exception, that the caller
                gets.
            planned: number and least attempt of each row, in a plan that the driver reads from files; None feeds it
                the rows.
            on_lost: told of a driver that has died.
        """
        self._driver = driver
        self._spec = spec
        self._lines = lines
        self._meaning = meaning
        self._planned = planned
        self._on_lost = on_lost
        self._positions = None if planned is None else {number: at for at, (number, _) in enumerate(planned)}
        self._handle: DriverHandle | None = None
        self._pump: asyncio.Task[None] | None = None
        self._reported = 0
        self._last: tuple[int, Any] | None = None
        self._is_stopping = False
        self._arrived: Callable[[int, Any], None] = lambda _position, _result: None
        self._failed: Callable[[BaseException], None] = lambda _error: None

    async def start(self, arrived: Callable[[int, Any], None], failed: Callable[[BaseException], None]) -> None:
        """Begin to report. A run of rows is opened with the first of them, which saves a call."""
        self._arrived, self._failed = arrived, failed
        self._handle = await self._driver()
        if self._planned is not None:
            with visible_folder(self._spec) as spec:
                await self._open(spec, [])

    async def _open(self, spec: RunSpec, lines: list[bytes]) -> None:
        assert self._handle is not None
        try:
            await open_run(self._handle, spec, lines)
        except DriverLostError:
            await self._tell_lost(self._handle)
            raise
        self._pump = asyncio.get_running_loop().create_task(self._report(self._handle))

    async def _hand_over(self, lines: list[bytes], *, is_last: bool) -> None:
        assert self._handle is not None
        if self._pump is not None:
            await self._handle.feed(self._spec.run_id, lines, is_last=is_last)
            return
        await self._open(replace(self._spec, is_open_ended=not is_last), lines)

    async def feed(self, positions: range, *, is_last: bool) -> None:
        """Have these rows dispatched, in order."""
        assert self._handle is not None
        batch, size = list[bytes](), 0
        if self._planned is not None:
            rollouts = [self._planned[position] for position in positions]
            await self._handle.release(self._spec.run_id, rollouts, is_last=is_last)
            return
        for position in positions:
            batch.append(self._lines[position])
            size += len(batch[-1])
            if size >= FEED_BYTES and position != positions[-1]:
                await self._hand_over(batch, is_last=False)
                batch, size = [], 0
        await self._hand_over(batch, is_last=is_last)

    async def join(self) -> None:
        """Wait for the status of a recorded run; others have nothing to wait for."""
        if self._spec.paths is not None and self._pump is not None:
            await asyncio.wait({self._pump})

    async def stop(self) -> None:
        """Cancel what is in flight; returns once everything that had ended was reported."""
        if self._pump is None or self._handle is None:
            return
        self._is_stopping = True
        if not self._pump.done():
            # It ended and was forgotten meanwhile, or the driver is in trouble, of which the pump tells
            with contextlib.suppress(KeyError, ClusterError):
                await self._handle.stop_run(self._spec.run_id)
        await asyncio.wait({self._pump})

    async def _report(self, driver: DriverHandle) -> None:
        run_id, ack = self._spec.run_id, 0
        try:
            while True:
                ack, batch, view = await driver.next(run_id, ack, BATCH_ITEMS, WAIT_S)
                for delivery in batch:
                    number = delivery.header.number
                    position = number if self._positions is None else self._positions[number]
                    self._reported += 1
                    self._last = position, self._meaning_of(position, delivery)
                    if self._spec.paths is None or self._reported < len(self._lines):
                        self._arrived(*self._last)
                if batch:
                    continue
                if view.error is not None:
                    raise view.error
                if view.phase is Phase.DONE:
                    self._tell_last()
                    self._check_complete()
                    return
        except Exception as error:  # noqa: BLE001 - a dead driver is told to whoever awaits a completion
            self._tell_last()
            self._failed(error)
            if isinstance(error, DriverLostError):
                await self._tell_lost(driver)
        finally:
            with contextlib.suppress(Exception):
                await driver.forget(run_id)

    async def _tell_lost(self, driver: DriverHandle) -> None:
        if self._on_lost is not None:
            await self._on_lost(driver)

    def _tell_last(self) -> None:
        """The last outcome of a recorded call comes when its files are closed, and the next call may write there."""
        if self._spec.paths is not None and self._last is not None and self._reported == len(self._lines):
            self._arrived(*self._last)

    def _meaning_of(self, position: int, delivery: Delivery) -> Any:
        try:
            return self._meaning(position, delivery)
        except Exception as error:  # noqa: BLE001 - of this row alone; the others have theirs
            return error

    def _check_complete(self) -> None:
        missing = len(self._lines) - self._reported
        if missing and not self._is_stopping:
            self._failed(
                IncompleteRunError(
                    f"the run was stopped from elsewhere: {missing} of {len(self._lines)} rollouts have not run"
                )
            )

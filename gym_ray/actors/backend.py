"""Where a driver runs: in Ray actors, or in this process. The rest of gym_ray sees only `DriverHandle`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from gym_ray.actors.local import local_driver
from gym_ray.actors.run import RunView
from gym_ray.actors.spec import DriverSpec, RunSpec
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.errors import ClusterError


class DriverHandle(Protocol):
    """A started driver, wherever it runs; see `Driver` for what each call does."""

    async def open_run(self, spec: RunSpec, lines: list[bytes] | None = None) -> int: ...

    async def feed(self, run_id: str, lines: list[bytes], *, is_last: bool) -> None: ...

    async def release(self, run_id: str, rollouts: list[tuple[int, int]], *, is_last: bool) -> None: ...

    async def next(
        self, run_id: str, ack: int, max_items: int, wait_s: float
    ) -> tuple[int, tuple[Delivery, ...], RunView]: ...

    async def poll(self, run_id: str, wait_s: float) -> RunView: ...

    async def stop_run(self, run_id: str) -> None: ...

    async def drain_run(self, run_id: str) -> None: ...

    async def forget(self, run_id: str) -> None: ...

    async def scale(self, shards: int) -> None: ...


async def open_run(driver: DriverHandle, spec: RunSpec, lines: list[bytes]) -> None:
    """Have a driver open a run; if this is cancelled the run is forgotten, however far it had come.

    Raises: as `Driver.open_run`.
    """
    opening = asyncio.ensure_future(driver.open_run(spec, lines))

    async def undo() -> None:
        await asyncio.wait({opening})
        if not opening.cancelled() and opening.exception() is None:
            await driver.forget(spec.run_id)

    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        with contextlib.suppress(ClusterError):
            await asyncio.shield(asyncio.ensure_future(undo()))
        raise


@asynccontextmanager
async def started_driver(
    spec: DriverSpec, executor: Literal["ray", "local"], ray_address: str | None = None
) -> AsyncIterator[DriverHandle]:
    """A driver with its shards, closed on exit; so is the Ray cluster, if it was started for this.

    Raises:
        ClusterError: Ray cannot be reached, or cannot place the actors.
        ConfigError: the machine does not allow as many connections as the cap asks for.
    """
    if executor == "local":
        async with local_driver(spec) as driver:
            yield driver
        return
    # ray takes half a second to import, and a caller without it shall not pay for it
    from gym_ray.actors.connecting import connection  # noqa: PLC0415
    from gym_ray.actors.remote import remote_driver  # noqa: PLC0415

    async with connection(ray_address, spec.shards), remote_driver(spec) as remote:
        yield remote

"""What follows the last rollout."""

from collections.abc import Awaitable, Callable
from typing import Any

from gym_ray.actors.run import Run
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.environment.client import EnvironmentClient
from gym_ray.observe.report import RunReport


async def conclude(
    run: Run,
    servers: tuple[EnvironmentServer, ...],
    client: EnvironmentClient,
    in_thread: Callable[..., Awaitable[Any]],
    clock: Callable[[], float],
) -> RunReport:
    """Close the records, merge, aggregate, report."""
    if run.recorder is not None:
        await in_thread(run.recorder.close)
    return RunReport(run.spec.run_id, run.tally.snapshot(clock()))

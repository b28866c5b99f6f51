"""Driver and shards as real Ray actors against real servers; processes are killed by id."""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

from gym_ray.actors.backend import DriverHandle, started_driver
from gym_ray.actors.run import Phase, RunView
from gym_ray.actors.spec import DriverSpec, RunSpec, ShardSpec
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.errors import ClusterError
from gym_ray.example import ExampleDeployment, LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows

pytestmark = pytest.mark.usefixtures("ray_cluster")

ARITHMETIC = "arithmetic_environment_server"


@pytest.fixture
def deployment() -> Iterator[ExampleDeployment]:
    with example_in_thread(
        Profile(latency=LatencyRange(0.02, 0.05)), ledger=LedgerOptions(capacity=100_000)
    ) as deployment:
        yield deployment


def spec(deployment: ExampleDeployment, *, shards: int = 2, cap: int = 16) -> DriverSpec:
    block = deployment.config[ARITHMETIC]["environment_servers"]["single_agent_turn_legacy"]
    server = EnvironmentServer(ARITHMETIC, "single_agent_turn_legacy", f"http://{block['host']}:{block['port']}")
    return DriverSpec(ShardSpec((server,), None, cap), shards, cap)


def rows(repeats: int) -> list[bytes]:
    lines = []
    for task, line in enumerate(example_rows("arithmetic").read_text().splitlines()):
        for repeat in range(repeats):
            row = {**json.loads(line), "_ng_task_index": task, "_ng_rollout_index": repeat}
            row["_ng_environment_server"] = ARITHMETIC
            lines.append(json.dumps(row).encode() + b"\n")
    return lines


async def run(
    driver: DriverHandle, lines: list[bytes], *, retry_requests: bool = True
) -> AsyncIterator[tuple[Delivery, RunView]]:
    await driver.open_run(RunSpec("r", {}, deliver=True, aggregate=False, retry_requests=retry_requests), lines)
    ack = 0
    while True:
        ack, batch, view = await driver.next("r", ack, 64, 5.0)
        for item in batch:
            yield item, view
        if not batch and view.phase in (Phase.DONE, Phase.FAILED):
            assert view.phase is Phase.DONE, view.error
            return


def actor_processes(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith(f"ray::{name}") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


async def test_every_rollout_runs_once_and_the_server_agrees(deployment: ExampleDeployment) -> None:
    async with started_driver(spec(deployment), "ray") as driver:
        seen = Counter([item.header.number async for item, _ in run(driver, rows(2))])
    assert seen == Counter(range(480))
    stats = deployment.servers[ARITHMETIC].stats()
    assert stats["executed"] == 480
    assert stats["peak_in_flight"] == 16


async def test_a_killed_shard_loses_nothing(deployment: ExampleDeployment) -> None:
    seen: Counter[int] = Counter()
    async with started_driver(spec(deployment), "ray") as driver:
        async for item, _ in run(driver, rows(2)):
            seen[item.header.number] += 1
            if sum(seen.values()) in (50, 200):
                victim = actor_processes("ShardActor")[0]
                os.kill(victim.pid, signal.SIGKILL)
    assert seen == Counter(range(480))


async def test_without_replay_a_killed_shard_executes_nothing_twice(deployment: ExampleDeployment) -> None:
    outcomes: Counter[str | None] = Counter()
    numbers: Counter[int] = Counter()
    async with started_driver(spec(deployment), "ray") as driver:
        async for item, _ in run(driver, rows(1), retry_requests=False):
            numbers[item.header.number] += 1
            outcomes[item.header.failure_class] += 1
            if sum(numbers.values()) == 50:
                os.kill(actor_processes("ShardActor")[0].pid, signal.SIGKILL)
    assert numbers == Counter(range(240))
    assert outcomes["agent_request_failed"] > 0
    executed = Counter(deployment.servers[ARITHMETIC].stats()["executions"])
    assert max(executed.values()) == 1


async def test_nothing_outlives_the_driver(deployment: ExampleDeployment) -> None:
    async with started_driver(spec(deployment), "ray") as driver:
        async for _ in run(driver, rows(1)):
            break
    for _ in range(100):
        if not actor_processes("ShardActor") and not actor_processes("DriverActor"):
            break
        await asyncio.sleep(0.05)
    assert actor_processes("ShardActor") == actor_processes("DriverActor") == []


async def test_a_killed_driver_is_one_clear_error(deployment: ExampleDeployment) -> None:
    async def scenario() -> None:
        async with started_driver(spec(deployment), "ray") as driver:
            async for _ in run(driver, rows(2)):
                for process in actor_processes("DriverActor"):
                    os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(ClusterError, match="driver actor died"):
        await scenario()

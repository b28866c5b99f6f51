"""A trainer that is a Ray actor itself: its helper dispatches by actors of its own, which end when it does."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread
from gym_ray.helper import RolloutCollectionHelper
from gym_ray.planning.examples import preprocess_examples
from tests.collection.contract import executed, flat_rows, in_flight, until
from tests.ray.test_actors import actor_processes

pytestmark = pytest.mark.usefixtures("ray_cluster")

STEPS = 3
TASKS = 8


async def run_step(helper: RolloutCollectionHelper, rows: list[dict[str, Any]], head: str) -> list[int]:
    """The tasks of the results."""
    return [row["_ng_task_index"] async for row, _ in helper.run_examples(rows, head)]


class AsyncTrainer:
    """Keeps one helper warm over its steps, as an async actor does."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._helper = RolloutCollectionHelper()

    async def step(self, rows: list[dict[str, Any]]) -> list[int]:
        return await run_step(self._helper, rows, self._head)

    async def close(self) -> None:
        await self._helper.aclose()


class SyncTrainer:
    """Has no loop but the one that it starts for a step; one async method would make Ray run it in a loop."""

    def __init__(self, head: str) -> None:
        self._head = head

    def step(self, rows: list[dict[str, Any]]) -> list[int]:
        return asyncio.run(run_alone(rows, self._head))

    def step_and_leave_open(self, rows: list[dict[str, Any]]) -> list[int]:
        self._left = RolloutCollectionHelper()
        return asyncio.run(run_step(self._left, rows, self._head))

    def step_blocking(self, rows: list[dict[str, Any]]) -> list[int]:
        self._left = RolloutCollectionHelper()
        return [row["_ng_task_index"] for row, _ in self._left.run_examples_blocking(rows, self._head)]


async def run_alone(rows: list[dict[str, Any]], head: str) -> list[int]:
    """A step with a helper that ends with it."""
    async with RolloutCollectionHelper() as helper:
        return await run_step(helper, rows, head)


@pytest.fixture
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(0.02, 0.05))) as deployment:
        yield deployment


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return preprocess_examples(flat_rows(TASKS))


def started(trainer: type, head: str) -> Any:
    import ray  # not before the cluster's fixture has set its token

    return ray.remote(trainer).options(num_cpus=0.25).remote(head)


def kill(trainer: Any) -> None:
    import ray

    ray.kill(trainer)


async def until_its_actors_are_gone() -> None:
    await until(lambda: not actor_processes("ShardActor") and not actor_processes("DriverActor"))


async def test_an_async_actor_keeps_its_helper_warm(served: ExampleDeployment, rows: list[dict[str, Any]]) -> None:
    trainer = started(AsyncTrainer, served.head_address)
    processes = []
    for _ in range(STEPS):
        assert sorted(await trainer.step.remote(rows)) == list(range(TASKS))
        processes.append(sorted(process.pid for process in actor_processes("ShardActor")))
    assert processes == [processes[0]] * STEPS
    assert len(processes[0]) == 2
    assert executed(served) == STEPS * TASKS
    await trainer.close.remote()
    await until_its_actors_are_gone()
    kill(trainer)


async def test_the_actors_of_a_killed_trainer_end_and_so_do_their_requests(rows: list[dict[str, Any]]) -> None:
    with example_in_thread(Profile(latency=LatencyRange(60.0, 60.0))) as slow:
        trainer = started(AsyncTrainer, slow.head_address)
        step = trainer.step.remote(rows)
        await until(lambda: in_flight(slow) == TASKS)
        killed_at = time.monotonic()
        kill(trainer)
        await until_its_actors_are_gone()
        await until(lambda: in_flight(slow) == 0)
        assert time.monotonic() - killed_at < 20
        with pytest.raises(Exception, match="actor"):
            await step


async def test_a_sync_actor_may_run_a_loop_for_each_step(served: ExampleDeployment, rows: list[dict[str, Any]]) -> None:
    trainer = started(SyncTrainer, served.head_address)
    for _ in range(2):
        assert sorted(await trainer.step.remote(rows)) == list(range(TASKS))
    await until_its_actors_are_gone()
    kill(trainer)


async def test_what_a_step_leaves_open_ends_with_its_loop(
    served: ExampleDeployment, rows: list[dict[str, Any]]
) -> None:
    trainer = started(SyncTrainer, served.head_address)
    assert sorted(await trainer.step_and_leave_open.remote(rows)) == list(range(TASKS))
    await until_its_actors_are_gone()
    kill(trainer)


async def test_the_warm_actors_of_a_killed_sync_trainer_end(
    served: ExampleDeployment, rows: list[dict[str, Any]]
) -> None:
    trainer = started(SyncTrainer, served.head_address)
    assert sorted(await trainer.step_blocking.remote(rows)) == list(range(TASKS))
    assert len(actor_processes("ShardActor")) == 2
    kill(trainer)
    await until_its_actors_are_gone()

"""Where loops come from somewhere else: a notebook's runs already, a script starts one after the other."""

import ast
import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread
from gym_ray.helper import RolloutCollectionHelper
from tests.collection.contract import executed, numbered

CELLS = (
    "helper = RolloutCollectionHelper(executor='local')\nrows = helper.preprocess_examples(examples)",
    "first = [row['_ng_task_index'] async for row, _ in helper.run_examples(rows, head)]",
    "completions = helper.run_examples(rows, head)\nrow, _ = await next(completions)",
    "drained = await completions.aclose_and_drain()",
    "second = [await future for future in helper.run_examples(rows, head, max_resident_tasks=2)]",
    "third = list(helper.run_examples_blocking(rows, head))",
    "await helper.aclose()",
)


@pytest.fixture
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(0.01, 0.02))) as deployment:
        yield deployment


async def run_cell(source: str, names: dict[str, Any]) -> None:
    """As a notebook runs it: code with `await` at its top level, in the loop that runs already."""
    code = compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)
    if inspect.isawaitable(running):
        await running


async def test_a_notebook_awaits_at_its_top_level(served: ExampleDeployment) -> None:
    examples = [{key: value for key, value in row.items() if key[0] != "_"} for row in numbered(_local(), 6)]
    names: dict[str, Any] = {
        "RolloutCollectionHelper": RolloutCollectionHelper,
        "examples": examples,
        "head": served.head_address,
    }
    for cell in CELLS:
        await asyncio.create_task(run_cell(cell, names))  # each in a task of its own
        await asyncio.sleep(0.05)  # a person reads
    assert sorted(names["first"]) == list(range(6))
    claimed = [names["row"], *(future.result()[0] for future in names["drained"])]
    assert sorted(row["_ng_task_index"] for row in claimed) == list(range(6))
    for pairs in (names["second"], names["third"]):
        assert sorted(row["_ng_task_index"] for row, _ in pairs) == list(range(6))
    assert executed(served) == 4 * 6


async def test_an_interrupted_cell_leaves_the_helper_usable(served: ExampleDeployment) -> None:
    async with _local() as helper:
        rows = numbered(helper, 6)

        async def cell() -> int:
            return len([pair async for pair in helper.run_examples(rows, served.head_address)])

        interrupted = asyncio.ensure_future(cell())
        await asyncio.sleep(0.01)
        interrupted.cancel()
        assert await cell() == 6


def test_two_loops_one_after_the_other_each_have_a_helper(served: ExampleDeployment) -> None:
    async def step() -> list[int]:
        async with _local() as helper:
            rows = numbered(helper, 6)
            return [row["_ng_task_index"] async for row, _ in helper.run_examples(rows, served.head_address)]

    for _ in range(2):
        assert sorted(asyncio.run(step())) == list(range(6))


def test_a_closed_helper_may_be_used_in_the_next_loop(served: ExampleDeployment) -> None:
    helper = _local()

    async def step() -> list[int]:
        async with helper:
            rows = numbered(helper, 6)
            return [row["_ng_task_index"] async for row, _ in helper.run_examples(rows, served.head_address)]

    for _ in range(2):
        assert sorted(asyncio.run(step())) == list(range(6))


def test_an_iterator_may_be_made_without_a_loop_and_used_in_one(served: ExampleDeployment) -> None:
    helper = _local()
    completions = helper.run_examples(numbered(helper, 6), served.head_address)

    async def use() -> list[int]:
        async with helper:
            return [row["_ng_task_index"] async for row, _ in completions]

    assert sorted(asyncio.run(use())) == list(range(6))


def _local() -> RolloutCollectionHelper:
    return RolloutCollectionHelper(executor="local")

"""`RolloutRunner` without Ray: rows of every kind, files and none, early ends."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import ConfigError, RoutingError, RunFolderError
from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread, example_rows


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread() as deployment:
        yield deployment


def rows(count: int = 5) -> list[dict[str, Any]]:
    return [json.loads(line) for line in example_rows("arithmetic").read_text().splitlines()[:count]]


async def arriving(count: int = 5) -> AsyncIterator[Mapping[str, Any]]:
    for row in rows(count):
        await asyncio.sleep(0)
        yield row


class Dataset:
    """What a Ray Dataset offers, its refusal to be iterated included."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        raise TypeError("`Dataset` objects aren't iterable")

    def iter_rows(self) -> Iterator[Mapping[str, Any]]:
        yield from rows()


def config(served: ExampleDeployment, **settings: Any) -> RolloutCollectionConfig:
    return RolloutCollectionConfig(head=served.head_address, executor="local", num_repeats=2, **settings)


@pytest.mark.parametrize("kind", ["list", "iterator", "async", "dataset"])
@pytest.mark.parametrize("recorded", [True, False])
async def test_rows_of_every_kind_run(served: ExampleDeployment, tmp_path: Path, kind: str, recorded: bool) -> None:
    source: Any = {"list": rows, "iterator": lambda: iter(rows()), "async": arriving, "dataset": Dataset}[kind]()
    settings = {"output_jsonl_fpath": str(tmp_path / "r.jsonl")} if recorded else {}
    async with RolloutRunner(config(served, **settings)) as runner:
        got = [(row, result) async for row, result in runner.run(source)]
    keys = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row, _ in got)
    assert keys == Counter((task, repeat) for task in range(5) for repeat in range(2))
    for row, result in got:
        assert result["_ng_task_index"] == row["_ng_task_index"]
        assert result["expected_answer"] == row["expected_answer"]
    if recorded:
        assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 10
    else:
        assert not list(tmp_path.iterdir())


async def test_a_limit_holds_for_rows_that_arrive(served: ExampleDeployment) -> None:
    async with RolloutRunner(config(served, limit=3)) as runner:
        assert len([pair async for pair in runner.run(arriving(10))]) == 6


async def test_one_runner_runs_again_and_again(served: ExampleDeployment) -> None:
    async with RolloutRunner(config(served)) as runner:
        for count in (1, 2, 3):
            assert len([pair async for pair in runner.run(rows(count))]) == 2 * count


async def test_ending_early_cancels_what_is_in_flight() -> None:
    with example_in_thread(Profile(latency=LatencyRange(0.01, 20.0))) as served:
        async with RolloutRunner(config(served, num_samples_in_parallel=8)) as runner:
            stream = runner.run(rows(50))
            async for _ in stream:
                break
            await stream.aclose()
            async with asyncio.timeout(10):
                while any(server.stats()["in_flight"] for server in served.servers.values()):
                    await asyncio.sleep(0.01)


async def test_a_wrong_row_is_refused_before_anything_is_sent(served: ExampleDeployment) -> None:
    before = served.servers["arithmetic_environment_server"].stats()["requests"]
    wrong = [*rows(3), {**rows(1)[0], "agent_ref": {"name": "nobody"}}]
    async with RolloutRunner(config(served)) as runner:
        with pytest.raises(RoutingError, match=r"rows\[3\]"):
            await anext(aiter(runner.run(wrong)))
        with pytest.raises(ConfigError, match="no rows"):
            await anext(aiter(runner.run()))
    assert served.servers["arithmetic_environment_server"].stats()["requests"] == before


async def test_an_earlier_run_keeps_its_folder(served: ExampleDeployment, tmp_path: Path) -> None:
    settings = config(served, output_jsonl_fpath=str(tmp_path / "r.jsonl"))
    async with RolloutRunner(settings) as runner:
        assert len([pair async for pair in runner.run(rows(1))]) == 2
        with pytest.raises(RunFolderError, match="--fresh"):
            await anext(aiter(runner.run(rows(1))))


async def test_a_runner_wants_to_be_entered(served: ExampleDeployment) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await anext(aiter(RolloutRunner(config(served)).run(rows(1))))

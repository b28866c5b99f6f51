"""`RolloutRunner` without Ray, when runs are ended early, stopped, or asked of something before they have begun."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import DriverLostError, IncompleteRunError
from gym_ray.example import ExampleDeployment, LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows
from gym_ray.paths import RunPaths
from gym_ray.recording.control import Control, request
from gym_ray.recording.status import RunState, last_status

SERVER = "arithmetic_environment_server"


@pytest.fixture
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(0.02, 0.3)), ledger=LedgerOptions(capacity=1000)) as deployment:
        yield deployment


@pytest.fixture
def slow() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(30.0, 30.0))) as deployment:
        yield deployment


def rows(count: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in example_rows("arithmetic").read_text().splitlines()[:count]]


def config(served: ExampleDeployment, **settings: Any) -> RolloutCollectionConfig:
    options = {"executor": "local", "num_samples_in_parallel": 4} | settings
    return RolloutCollectionConfig(head=served.head_address, **options)


def in_flight(served: ExampleDeployment) -> int:
    return int(served.servers[SERVER].stats()["in_flight"])


def recorded(folder: Path) -> list[int]:
    """The tasks that have results in the shards."""
    lines = [line for path in folder.glob("rollouts-?.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line)["_ng_task_index"] for line in lines]


async def test_closing_the_stream_waits_until_nothing_runs(slow: ExampleDeployment) -> None:
    async with RolloutRunner(config(slow)) as runner:
        stream = runner.run(rows(12))
        first = asyncio.ensure_future(anext(stream))
        while in_flight(slow) < 4:
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await stream.aclose()
        assert not runner.is_running
        assert not runner._drivers.held[0]._runs


async def test_a_run_that_follows_one_ended_early_doubles_nothing(served: ExampleDeployment, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    out = tmp_path / "out" / "rollouts.jsonl"
    settings = config(
        served, input_jsonl_fpath=str(source), output_jsonl_fpath=str(out), resume_from_cache=True, merge_shards=False
    )
    async with RolloutRunner(settings) as runner:
        for _ in range(3):
            stream = runner.run()
            await anext(stream)
            await stream.aclose()
            status = last_status(RunPaths(out.parent, "rollouts"))
            assert status is not None
            assert status.state is RunState.INCOMPLETE
            assert status.completed == len(recorded(out.parent))
        async for _ in runner.run():
            pass
        assert len(runner._drivers.held[0]._pool._keepers) == 2, "no shard went with the runs"
    assert Counter(recorded(out.parent)) == Counter(range(12))
    assert served.servers[SERVER].stats()["peak_in_flight"] <= 4


async def test_a_stop_from_elsewhere_is_raised_after_what_came(slow: ExampleDeployment, tmp_path: Path) -> None:
    out = tmp_path / "rollouts.jsonl"
    async with RolloutRunner(config(slow, output_jsonl_fpath=str(out))) as runner:
        first = asyncio.ensure_future(anext(runner.run(rows(12))))
        while in_flight(slow) < 4:
            await asyncio.sleep(0.01)
        request(RunPaths(tmp_path, "rollouts"), Control(stop="cancel"))
        with pytest.raises(IncompleteRunError, match="12 rollouts are owed"):
            async with asyncio.timeout(20):
                await first


async def test_a_drain_of_its_own_ends_a_run_quietly(served: ExampleDeployment) -> None:
    async with RolloutRunner(config(served)) as runner:
        got = 0
        async for _ in runner.run(rows(12)):
            got += 1
            await runner.drain()
    assert 1 <= got <= 5


async def test_what_is_asked_while_a_run_is_planned_holds(served: ExampleDeployment) -> None:
    async with RolloutRunner(config(served)) as runner:
        got: list[Any] = []

        async def use() -> None:
            async for pair in runner.run(rows(40)):
                got.append(pair)

        using = asyncio.ensure_future(use())
        await asyncio.sleep(0)
        assert not runner.is_running
        await runner.drain()
        await runner.scale(5)
        await using
        assert got == []
        assert runner._drivers.held[0]._pool.wanted == 5


async def test_leaving_the_block_ends_runs_with_a_word(slow: ExampleDeployment) -> None:
    async with RolloutRunner(config(slow)) as runner:
        waiting = asyncio.ensure_future(anext(runner.run(rows(3))))
        while in_flight(slow) < 3:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="runner was closed"):
            await waiting


async def test_a_driver_that_is_lost_after_the_last_outcome_is_no_error(
    served: ExampleDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RolloutRunner(config(served)) as runner:
        assert len([pair async for pair in runner.run(rows(2))]) == 2

        async def lost(_run_id: str) -> None:
            raise DriverLostError("gone")

        monkeypatch.setattr(runner._drivers.held[0], "forget", lost)
        assert len([pair async for pair in runner.run(rows(2))]) == 2


async def test_after_a_lost_driver_comes_another(served: ExampleDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RolloutRunner(config(served)) as runner:
        assert len([pair async for pair in runner.run(rows(2))]) == 2

        async def lost(*_args: Any) -> None:
            raise DriverLostError("gone")

        monkeypatch.setattr(runner._drivers.held[0], "open_run", lost)
        with pytest.raises(DriverLostError):
            await anext(runner.run(rows(2)))
        assert len([pair async for pair in runner.run(rows(2))]) == 2


async def test_a_drain_outlives_the_driver(
    served: ExampleDeployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RolloutRunner(config(served, output_jsonl_fpath=str(tmp_path / "rollouts.jsonl"))) as runner:
        got: list[int] = []
        async for _ in runner.run(rows(40)):
            got.append(1)
            if len(got) == 1:
                await runner.drain()

                async def lost(*_args: Any) -> None:
                    raise DriverLostError("gone")

                monkeypatch.setattr(runner._drivers.held[0], "next", lost)
    assert len(got) <= 4, "the next driver starts nothing"


async def test_a_run_that_cannot_be_taken_up_lets_go_of_its_folder(
    served: ExampleDeployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(served, output_jsonl_fpath=str(tmp_path / "rollouts.jsonl"), resume_from_cache=True)
    async with RolloutRunner(settings) as runner:
        with monkeypatch.context() as broken:
            broken.setattr("gym_ray.actors.run.Scores", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await anext(runner.run(rows(2)))
        assert len([pair async for pair in runner.run(rows(2))]) == 2

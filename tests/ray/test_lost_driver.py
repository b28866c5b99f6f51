"""A driver that is killed: another one takes up the run from its files, and the caller hardly notices."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import DriverLostError
from gym_ray.example import ExampleDeployment, LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows
from gym_ray.observe.tally import Progress
from gym_ray.recording.run_names import run_at
from gym_ray.recording.verification import verify_run
from tests.collection.contract import ARITHMETIC, flat_rows
from tests.ray.test_actors import actor_processes

pytestmark = pytest.mark.usefixtures("ray_cluster")

PLANNED = 480


@pytest.fixture
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(
        Profile(latency=LatencyRange(0.05, 0.2)), ledger=LedgerOptions(capacity=10_000)
    ) as deployment:
        yield deployment


def config(served: ExampleDeployment, **settings: Any) -> RolloutCollectionConfig:
    given: dict[str, Any] = {"head": served.head_address, "num_repeats": 2, "num_samples_in_parallel": 16}
    return RolloutCollectionConfig(**{**given, **settings})


def kill_the_driver() -> None:
    for process in actor_processes("DriverActor"):
        os.kill(process.pid, signal.SIGKILL)


def executions(served: ExampleDeployment) -> Counter[tuple[int, int, int]]:
    found: Any = served.servers[ARITHMETIC].stats()["executions"]
    return Counter(tuple(each) for each in found)


@pytest.mark.parametrize("replays", [True, False])
async def test_a_batch_job_goes_on(served: ExampleDeployment, tmp_path: Path, replays: bool) -> None:
    killed: list[int] = []

    def watch(progress: Progress) -> None:
        if progress.results > 100 * (len(killed) + 1) and len(killed) < 2:
            killed.append(progress.results)
            kill_the_driver()

    settings = config(
        served,
        input_jsonl_fpath=str(example_rows("arithmetic")),
        output_jsonl_fpath=str(tmp_path / "r.jsonl"),
        retry_requests=replays,
    )
    async with RolloutRunner(settings) as runner:
        report = await runner.collect(on_progress=watch, every_s=0.05)
    assert len(killed) == 2
    assert report.is_complete
    assert report.progress.results == PLANNED
    checked = verify_run(run_at(str(tmp_path)))
    assert (checked.problems, checked.results, checked.duplicates) == ([], PLANNED, 0)
    assert max(executions(served).values()) == 1, "no attempt number is used twice"
    assert report.metrics


async def test_an_iteration_goes_on_and_repeats_nothing(served: ExampleDeployment, tmp_path: Path) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    async with RolloutRunner(config(served, output_jsonl_fpath=str(tmp_path / "r.jsonl"))) as runner:
        async for row, result in runner.run(flat_rows(240)):
            assert result["expected_answer"] == row["expected_answer"]
            seen[row["_ng_task_index"], row["_ng_rollout_index"]] += 1
            if sum(seen.values()) in (60, 200):
                kill_the_driver()
    assert seen == Counter((task, repeat) for task in range(240) for repeat in range(2))
    assert verify_run(run_at(str(tmp_path))).is_complete
    assert max(executions(served).values()) == 1


async def test_without_records_the_error_says_what_is_unsettled(served: ExampleDeployment) -> None:
    seen = 0
    with pytest.raises(DriverLostError, match=r"nothing was recorded: \d+ outcomes were delivered, \d+ rollouts are"):
        async with RolloutRunner(config(served)) as runner:
            async for _ in runner.run(flat_rows(240)):
                seen += 1
                if seen == 20:
                    kill_the_driver()

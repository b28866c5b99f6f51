"""A run on Ray whose servers hang says what it waits for, down to where each shard's attempts are."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.example import example_rows
from gym_ray.observe.tally import Progress
from tests.chaos.served import Served

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "executions.jsonl")
    served.start()
    yield served
    served.kill()


async def test_what_a_stalled_run_waits_for_is_named(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = RolloutCollectionConfig(
        head=served.head_address, input_jsonl_fpath=str(example_rows("arithmetic")), shards=2, limit=48,
        output_jsonl_fpath=str(tmp_path / "out" / "r.jsonl"), num_samples_in_parallel=8, on_stall="cancel",
        disable_aggregation=True,
    )  # fmt: skip
    has_hung = False

    def on_progress(progress: Progress) -> None:
        nonlocal has_hung
        if progress.results >= 40 and not has_hung:
            has_hung = True
            served.signal(signal.SIGSTOP)

    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(60), RolloutRunner(config) as runner:
            report = await runner.collect(on_progress=on_progress)
    served.signal(signal.SIGCONT)
    assert "no rollout has ended for 1" in caplog.text
    assert "attempt 0 on arithmetic_environment_server for " in caplog.text
    assert "shard 0: " in caplog.text
    assert "shard 1: " in caplog.text
    assert "post_run > _persist > _try > " in caplog.text
    assert not report.is_complete
    assert any("were cancelled and are owed" in note for note in report.notes)

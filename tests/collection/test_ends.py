"""How calls end that are disturbed: nobody waits for ever, nothing ends early without a word, nothing stays behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gym_ray.completions import RolloutCompletions
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.dispatch.exchange import CompletionHeader
from gym_ray.errors import IncompleteRunError, RecordingError
from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread
from gym_ray.helper import RolloutCollectionHelper
from gym_ray.identity import read_identity
from gym_ray.meanings import plain_result
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.paths import RunPaths
from gym_ray.recording.control import Control, request
from gym_ray.recording.status import RunState, last_status
from gym_ray.run_errors import RunResponseError
from tests.collection.contract import executed, flat_rows, in_flight, numbered, until


@pytest.fixture
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(0.03, 0.06))) as deployment:
        yield deployment


@pytest.fixture
def slow() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(30.0, 30.0))) as deployment:
        yield deployment


@pytest.fixture
async def helper() -> AsyncIterator[RolloutCollectionHelper]:
    async with RolloutCollectionHelper(executor="local", max_in_flight=4) as helper:
        yield helper


def recorded(helper: RolloutCollectionHelper, served: ExampleDeployment, folder: Path, rows: Any) -> RolloutCompletions:
    return helper.run_examples(rows, served.head_address, record_output_dir=folder, record_shard=0)


@pytest.mark.parametrize("max_resident", [None, 1])
async def test_an_anext_that_is_cancelled_loses_no_row(
    helper: RolloutCollectionHelper, served: ExampleDeployment, max_resident: int | None
) -> None:
    completions = helper.run_examples(numbered(helper, 4), served.head_address, max_resident_tasks=max_resident)
    for _ in range(6):
        with suppress(TimeoutError):
            await asyncio.wait_for(anext(completions), 0)
    rows = [row["_ng_task_index"] async for row, _ in completions]
    assert sorted(rows) == [0, 1, 2, 3]
    assert executed(served) == 4


async def test_a_stop_from_elsewhere_is_told(
    helper: RolloutCollectionHelper, slow: ExampleDeployment, tmp_path: Path
) -> None:
    completions = recorded(helper, slow, tmp_path, numbered(helper, 12))
    first = asyncio.ensure_future(anext(completions))
    await until(lambda: in_flight(slow) == 4)
    request(RunPaths(tmp_path, "rollouts-0", is_single=True), Control(stop="cancel"))
    with pytest.raises(IncompleteRunError, match="12 of 12 rollouts have not run"):
        async with asyncio.timeout(20):
            await first
    await completions.aclose()


@pytest.mark.parametrize("how", ["iteration", "closing"])
async def test_what_goes_wrong_after_the_last_outcome_is_told(
    helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path, how: str
) -> None:
    completions = recorded(helper, served, tmp_path, numbered(helper, 6))
    await anext(completions)
    (tmp_path / "rollouts-0.jsonl").unlink()
    rest = [await anext(completions) for _ in range(5)]
    assert len(rest) == 5
    with pytest.raises(RecordingError, match="removed or changed"):
        await (anext(completions) if how == "iteration" else completions.aclose())
    await completions.aclose()
    assert [pair async for pair in completions] == []
    status = last_status(RunPaths(tmp_path, "rollouts-0", is_single=True))
    assert status is not None
    assert status.state is RunState.FAILED


async def test_whoever_waits_when_the_helper_closes_is_told_at_once(slow: ExampleDeployment) -> None:
    helper = RolloutCollectionHelper(executor="local")
    completions = helper.run_examples(numbered(helper, 3), slow.head_address)
    waiting = asyncio.ensure_future(anext(completions))
    await until(lambda: in_flight(slow) == 3)
    async with asyncio.timeout(5):
        await helper.aclose()
        with pytest.raises(RuntimeError, match="helper was closed"):
            await waiting
        await completions.aclose()
    await until(lambda: in_flight(slow) == 0)
    async with helper:
        assert not helper._drivers.held, "closing afterwards starts nothing"


@pytest.mark.parametrize("turns", range(1, 12))
async def test_a_helper_may_close_while_its_driver_starts(
    served: ExampleDeployment, turns: int, recwarn: pytest.WarningsRecorder
) -> None:
    helper = RolloutCollectionHelper(executor="local")
    waiting = asyncio.ensure_future(anext(helper.run_examples(numbered(helper, 3), served.head_address)))
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await helper.aclose()
        with pytest.raises(RuntimeError, match="helper was closed"):
            await waiting
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [warning for warning in recwarn if "Unclosed" in str(warning.message)]


@pytest.mark.parametrize("turns", range(0, 24, 2))
async def test_a_recorded_call_that_closes_while_it_opens_lets_go_of_its_shard(
    helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path, turns: int
) -> None:
    first = recorded(helper, served, tmp_path, numbered(helper, 3))
    waiting = asyncio.ensure_future(anext(first))
    for _ in range(turns):
        await asyncio.sleep(0.001)
    await first.aclose()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not any(driver._runs for driver in helper._drivers.held)  # type: ignore[attr-defined]
    others = [row for row in numbered(helper, 6) if row["_ng_task_index"] >= 3]
    assert len([pair async for pair in recorded(helper, served, tmp_path, others)]) == 3


async def test_the_last_outcome_comes_when_the_next_call_may_write(
    helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
) -> None:
    rows = numbered(helper, 6)
    for step in (rows[:3], rows[3:]):
        for future in recorded(helper, served, tmp_path, step):
            await future


async def test_calls_that_are_prepared_together_record_one_run(
    helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
) -> None:
    rows = numbered(helper, 4)
    calls = [recorded(helper, served, tmp_path, rows[:2]), recorded(helper, served, tmp_path, rows[2:])]
    named = {row["_ng_run_id"] for call in calls for row in [row async for row, _ in call]}
    assert len(named) == 1


def test_a_reply_that_no_decoder_takes_is_the_failure_of_its_row() -> None:
    body = b'{"reward":1.0,"x":%b}' % (1100 * b"[" + 1100 * b"]")
    line = b'{"agent_ref":{"name":"agent"},"_ng_task_index":0,"_ng_rollout_index":0}'
    header = CompletionHeader(
        "r", 0, 0, int(OutcomeKind.RESULT), len(body), 0, 1.0, None, False, None, False, None, 1
    )  # fmt: skip
    error = plain_result(Delivery(header, line, body), read_identity(line), routes=False)
    assert isinstance(error, RunResponseError)
    assert "nested too deeply" in str(error)


async def test_a_fault_of_one_meaning_is_raised_for_its_row_alone(
    helper: RolloutCollectionHelper, served: ExampleDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tracker:
        count = 0

        def record(self, seconds: float) -> None:
            self.count += 1
            if self.count == 2:
                raise ZeroDivisionError

    completions = helper.run_examples(flat_rows(4), served.head_address, latency_tracker=Tracker())  # type: ignore[arg-type]
    got = await asyncio.gather(*completions, return_exceptions=True)
    assert sum(isinstance(each, ZeroDivisionError) for each in got) == 1
    assert sum(isinstance(each, tuple) for each in got) == 3

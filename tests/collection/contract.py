"""What `run_examples` and `run_outcomes` promise, whoever dispatches: every executor passes the same class."""

import asyncio
import gc
import json
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gym_ray.dispatch.latency import DispatchLatencyTracker
from gym_ray.errors import ConfigError, RoutingError
from gym_ray.example import (
    ExampleDeployment,
    LatencyRange,
    LedgerOptions,
    Profile,
    example_in_thread,
    example_rows,
    profile_of_texts,
)
from gym_ray.helper import RolloutCollectionHelper
from gym_ray.outcomes.failure_record import RolloutFailureRecord
from gym_ray.run_errors import RunResponseError

ARITHMETIC = "arithmetic_environment_server"


def flat_rows(count: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in example_rows("arithmetic").read_text().splitlines()[:count]]


def numbered(helper: RolloutCollectionHelper, count: int, repeats: int = 1) -> list[dict[str, Any]]:
    return helper.preprocess_examples(flat_rows(count), num_repeats=repeats)


def executed(served: ExampleDeployment) -> int:
    return int(served.servers[ARITHMETIC].stats()["executed"])


def in_flight(served: ExampleDeployment) -> int:
    return int(served.servers[ARITHMETIC].stats()["in_flight"])


async def until(happened: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.005)


class CompletionsContract:
    """Subclasses give `helper`."""

    @pytest.fixture
    def served(self) -> Iterator[ExampleDeployment]:
        profile = Profile(latency=LatencyRange(0.03, 0.06))
        with example_in_thread(profile, ledger=LedgerOptions(capacity=10_000)) as deployment:
            yield deployment

    @pytest.fixture
    def slow(self) -> Iterator[ExampleDeployment]:
        with example_in_thread(Profile(latency=LatencyRange(30.0, 30.0))) as deployment:
            yield deployment

    @pytest.fixture
    async def helper(self) -> AsyncIterator[RolloutCollectionHelper]:
        raise NotImplementedError
        yield

    async def test_every_row_comes_back_once_with_its_result(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        rows = numbered(helper, 20, 2)
        got = [pair async for pair in helper.run_examples(rows, served.head_address)]
        assert Counter(row["_ng_task_index"] for row, _ in got) == Counter(dict.fromkeys(range(20), 2))
        assert executed(served) == 40
        for row, result in got:
            assert result["expected_answer"] == row["expected_answer"]

    async def test_a_result_is_exactly_what_the_server_sent(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        (row,) = numbered(helper, 1)
        [(_, plain)] = [pair async for pair in helper.run_examples([row], served.head_address)]
        [(_, stamped)] = [pair async for pair in helper.run_outcomes([row], served.head_address)]
        assert not any(key.startswith("_ng_") for key in plain)
        assert {key: value for key, value in stamped.items() if not key.startswith("_ng_")} | {} == {
            **{key: value for key, value in plain.items() if key != "response"},
            "response": stamped["response"],
            "agent_ref": row["agent_ref"],
            "task_source": row["task_source"],
        }

    async def test_a_tracker_is_told_how_long_rows_took(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        tracker = DispatchLatencyTracker()
        rows = numbered(helper, 3)
        for _ in range(2):
            [_ async for _ in helper.run_examples(rows, served.head_address, latency_tracker=tracker)]
        [_ async for _ in helper.run_outcomes(rows, served.head_address, latency_tracker=tracker, dispatch_budget_s=0)]
        median = tracker.percentile(50)
        assert (len(tracker), tracker.num_drained) == (6, 3)
        assert median is not None
        assert 0.03 <= median < 10

    async def test_it_works_as_awaitables_too(self, helper: RolloutCollectionHelper, served: ExampleDeployment) -> None:
        seen = Counter[int]()
        for future in helper.run_examples(numbered(helper, 10), served.head_address):
            row, _ = await future
            seen[row["_ng_task_index"]] += 1
        assert seen == Counter(range(10))

    async def test_rows_of_the_caller_are_not_changed(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        rows = [{key: value for key, value in row.items() if key != "agent_ref"} for row in flat_rows(3)]
        before = json.dumps(rows)
        got = [pair async for pair in helper.run_examples(rows, served.head_address)]
        assert json.dumps(rows) == before
        assert all(row["agent_ref"] == {"name": "arithmetic_agent"} for row, _ in got)

    async def test_nothing_starts_before_the_first_use(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        eager = helper.run_examples(numbered(helper, 3), served.head_address)
        bounded = helper.run_examples(numbered(helper, 3), served.head_address, max_resident_tasks=2)
        first = next(bounded)
        await asyncio.sleep(0.2)
        assert executed(served) == 0
        next(eager)
        await until(lambda: executed(served) == 3)
        await first
        await until(lambda: executed(served) >= 5)
        await eager.aclose()
        await bounded.aclose()

    async def test_wrong_rows_are_refused_in_the_call(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        rows = flat_rows(3)
        rows[1]["agent_ref"] = {"name": "nobody"}
        with pytest.raises(RoutingError, match="nobody"):
            helper.run_examples(rows, served.head_address)
        with pytest.raises(ConfigError, match="preprocess_examples"):
            helper.run_outcomes(flat_rows(1), served.head_address)
        assert executed(served) == 0

    async def test_a_bounded_iterator_never_has_more_resident(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 12), served.head_address, max_resident_tasks=3)
        claimed = 0
        for future in completions:
            await future
            claimed += 1
            await asyncio.sleep(0.01)
            assert executed(served) <= claimed + 3
        await until(lambda: in_flight(served) == 0)
        assert (claimed, executed(served)) == (12, 12)
        assert served.servers[ARITHMETIC].stats()["peak_in_flight"] <= 3

    async def test_a_consumer_that_sleeps_holds_dispatch_up(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 30), served.head_address, max_resident_tasks=4)
        await next(completions)
        await asyncio.sleep(0.5)
        assert executed(served) == 5
        await completions.aclose()

    async def test_a_semaphore_bounds_what_is_in_flight_in_order(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        semaphore = asyncio.Semaphore(1)
        rows = numbered(helper, 6)
        got = [pair async for pair in helper.run_examples(rows, served.head_address, semaphore)]
        assert len(got) == 6
        assert [task for task, _, _ in served.servers[ARITHMETIC].stats()["executions"]] == list(range(6))
        assert served.servers[ARITHMETIC].stats()["peak_in_flight"] == 1
        assert not semaphore.locked()

    async def test_a_closed_iterator_gives_its_semaphore_back(
        self, helper: RolloutCollectionHelper, slow: ExampleDeployment
    ) -> None:
        semaphore = asyncio.Semaphore(2)
        completions = helper.run_examples(numbered(helper, 5), slow.head_address, semaphore)
        next(completions)
        await until(lambda: in_flight(slow) == 2)
        await completions.aclose()
        await semaphore.acquire()
        await semaphore.acquire()
        assert semaphore.locked()

    async def test_closing_cancels_what_is_in_flight_and_the_server_sees_it(
        self, helper: RolloutCollectionHelper, slow: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 4), slow.head_address)
        waiting = asyncio.ensure_future(next(completions))
        await until(lambda: in_flight(slow) == 4)
        await completions.aclose()
        await until(lambda: in_flight(slow) == 0)
        assert slow.servers[ARITHMETIC].stats()["disconnects"] == 4
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert list(completions) == []
        await completions.aclose()

    async def test_closing_before_use_starts_nothing(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        for bound in (None, 2):
            completions = helper.run_examples(numbered(helper, 3), served.head_address, max_resident_tasks=bound)
            await completions.aclose()
            assert list(completions) == []
            assert await completions.aclose_and_drain() == []
            drained = helper.run_examples(numbered(helper, 3), served.head_address, max_resident_tasks=bound)
            assert await drained.aclose_and_drain() == []
        assert executed(served) == 0

    async def test_draining_transfers_each_outcome_once(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 10), served.head_address)
        row, _ = await next(completions)
        await until(lambda: executed(served) == 10 and in_flight(served) == 0)
        await asyncio.sleep(0.2)
        drained = await completions.aclose_and_drain()
        tasks = [row["_ng_task_index"], *(future.result()[0]["_ng_task_index"] for future in drained)]
        assert sorted(tasks) == list(range(10))
        assert await completions.aclose_and_drain() == []

    async def test_a_closed_bounded_iterator_hands_out_nothing(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 6), served.head_address, max_resident_tasks=3)
        first, late = next(completions), next(completions)
        await first
        await until(lambda: in_flight(served) == 0)
        await asyncio.sleep(0.2)
        await completions.aclose()
        with pytest.raises(asyncio.CancelledError):
            await late

    async def test_breaking_out_leaves_work_running_until_the_owner_closes(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 10), served.head_address)
        async for _ in completions:
            break
        await until(lambda: executed(served) == 10 and in_flight(served) == 0)
        await completions.aclose()

    async def test_a_caller_that_is_cancelled_loses_no_outcome(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 6), served.head_address)
        impatient = asyncio.ensure_future(next(completions))
        await asyncio.sleep(0)
        impatient.cancel()
        got = [row["_ng_task_index"] async for row, _ in completions]
        await until(lambda: executed(served) == 6 and in_flight(served) == 0)
        await asyncio.sleep(0.2)
        drained = await completions.aclose_and_drain()
        assert sorted([*got, *(future.result()[0]["_ng_task_index"] for future in drained)]) == list(range(6))

    async def test_two_iterators_run_at_once(self, helper: RolloutCollectionHelper, served: ExampleDeployment) -> None:
        async def collect(rows: list[dict[str, Any]]) -> list[int]:
            return sorted([row["_ng_task_index"] async for row, _ in helper.run_examples(rows, served.head_address)])

        rows = numbered(helper, 20)
        first, second = await asyncio.gather(collect(rows[:10]), collect(rows[10:]))
        assert (first, second) == (list(range(10)), list(range(10, 20)))

    async def test_many_calls_over_one_warm_helper(self, helper: RolloutCollectionHelper) -> None:
        with example_in_thread(Profile()) as served:
            rows = numbered(helper, 2)
            for _ in range(60):
                got = [row["_ng_task_index"] async for row, _ in helper.run_examples(rows, served.head_address)]
                assert sorted(got) == [0, 1]

    async def test_a_zero_budget_drains_everything(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 5), served.head_address, dispatch_budget_s=0.0)
        results = [result async for _, result in completions]
        assert executed(served) == 0
        assert [set(result) for result in results] == [
            {"_ng_failure_class", "_ng_no_persist", "_ng_dispatch_drained", "error_message"}
        ] * 5

    async def test_no_rows_is_no_work(self, helper: RolloutCollectionHelper, served: ExampleDeployment) -> None:
        assert [pair async for pair in helper.run_examples([], served.head_address)] == []

    async def test_a_failed_run_raises_from_its_awaitable_and_no_other(self, helper: RolloutCollectionHelper) -> None:
        with example_in_thread(profile_of_texts("0", "0", "500=30%", seed=1)) as served:
            rows, good, bad = numbered(helper, 40), 0, 0
            for future in helper.run_examples(rows, served.head_address):
                try:
                    await future
                    good += 1
                except RunResponseError as error:
                    assert error.status == 500
                    bad += 1
        assert good + bad == 40
        assert bad > 0

    async def test_a_routed_failure_is_a_result_with_failure_fields(self, helper: RolloutCollectionHelper) -> None:
        with example_in_thread(profile_of_texts("0", "0", "500=30%,badjson=20%", seed=1)) as served:
            completions = helper.run_examples(numbered(helper, 40), served.head_address, route_failures_to_sidecar=True)
            results = [result async for _, result in completions]
        failures = [result for result in results if "_ng_failure_class" in result]
        assert len(results) == 40
        assert {failure["_ng_failure_class"] for failure in failures} == {"agent_run_error"}
        assert all(key.startswith("_ng_failure_") for failure in failures for key in failure)

    async def test_outcomes_are_values_and_failures_are_typed(self, helper: RolloutCollectionHelper) -> None:
        with example_in_thread(profile_of_texts("0", "0", "500=30%,badjson=20%", seed=1)) as served:
            rows = numbered(helper, 40)
            got = [pair async for pair in helper.run_outcomes(rows, served.head_address, run_id="r1")]
        failures = [result for _, result in got if isinstance(result, RolloutFailureRecord)]
        assert len(got) == 40
        assert failures
        assert {(failure.run_id, failure.source) for failure in failures} == {("r1", "collector")}
        assert all(row["_ng_run_id"] == "r1" for row, _ in got)

    async def test_an_abandoned_failure_says_nothing(
        self, helper: RolloutCollectionHelper, caplog: pytest.LogCaptureFixture
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with example_in_thread(profile_of_texts("0", "0", "500=100%")) as served:
                completions = helper.run_examples(numbered(helper, 5), served.head_address)
                next(completions)
                await until(lambda: executed(served) == 5)
                await asyncio.sleep(0.2)
                assert len(await completions.aclose_and_drain()) == 5
                del completions
                gc.collect()
        assert "never retrieved" not in caplog.text

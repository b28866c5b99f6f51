"""What the blocking calls promise, whoever dispatches."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gym_ray.errors import RoutingError
from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread, profile_of_texts
from gym_ray.helper import RolloutCollectionHelper
from gym_ray.run_errors import RunResponseError
from tests.collection.contract import flat_rows, in_flight, numbered


class BlockingContract:
    """Subclasses give `helper`; its tests have no event loop."""

    @pytest.fixture
    def served(self) -> Iterator[ExampleDeployment]:
        with example_in_thread(Profile(latency=LatencyRange(0.02, 0.05))) as deployment:
            yield deployment

    @pytest.fixture
    def slow(self) -> Iterator[ExampleDeployment]:
        with example_in_thread(Profile(latency=LatencyRange(30.0, 30.0))) as deployment:
            yield deployment

    @pytest.fixture
    def helper(self) -> Iterator[RolloutCollectionHelper]:
        raise NotImplementedError
        yield

    def test_results_come_to_code_without_a_loop(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        rows = numbered(helper, 5, 2)
        for _ in range(2):  # the second time on warm actors
            got = list(helper.run_examples_blocking(rows, served.head_address))
            assert sorted(row["_ng_task_index"] for row, _ in got) == sorted(row["_ng_task_index"] for row in rows)
        outcomes = list(helper.run_outcomes_blocking(rows, served.head_address, max_resident_tasks=2))
        assert all(result["_ng_environment_server"] for _, result in outcomes)

    async def test_it_works_where_a_loop_runs_already(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        """As in the cell of a notebook."""
        assert len(list(helper.run_examples_blocking(numbered(helper, 3), served.head_address))) == 3

    def test_wrong_rows_are_refused_in_the_call(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        with pytest.raises(RoutingError):
            helper.run_examples_blocking([{**flat_rows(1)[0], "agent_ref": {"name": "nobody"}}], served.head_address)

    def test_leaving_the_loop_cancels_what_is_in_flight_and_close_ends_the_thread(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        pairs = helper.run_examples_blocking(numbered(helper, 100), served.head_address)
        next(pairs)
        pairs.close()
        deadline = time.monotonic() + 10
        while in_flight(served):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        helper.close()
        helper.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "gym_ray-calls"]

    def test_an_iterator_whose_helper_is_closed_says_so(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        pairs = helper.run_examples_blocking(numbered(helper, 20), served.head_address)
        next(pairs)
        helper.close()
        with pytest.raises(RuntimeError, match="helper behind this iterator is closed"):
            next(pairs)

    def test_a_failed_run_is_raised_and_the_others_follow(self, helper: RolloutCollectionHelper) -> None:
        with example_in_thread(profile_of_texts("0", "0", "500=30%", seed=1)) as served:
            pairs, good, bad = helper.run_examples_blocking(numbered(helper, 40), served.head_address), 0, 0
            for _ in range(40):
                try:
                    next(pairs)
                    good += 1
                except RunResponseError:
                    bad += 1
            assert next(pairs, None) is None
        assert bad
        assert good + bad == 40

    async def test_it_closes_where_a_loop_runs_with_work_under_way(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        next(helper.run_examples_blocking(numbered(helper, 20), served.head_address, max_resident_tasks=1))
        helper.close()
        assert "gym_ray-calls" not in {thread.name for thread in threading.enumerate()}

    def test_threads_share_a_loop_and_are_told_when_it_closes(
        self, helper: RolloutCollectionHelper, slow: ExampleDeployment
    ) -> None:
        told: list[BaseException] = []

        def work() -> None:
            try:
                next(helper.run_examples_blocking(numbered(helper, 3), slow.head_address))
            except RuntimeError as error:
                told.append(error)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + 20
        while in_flight(slow) < 12:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert sum(thread.name == "gym_ray-calls" for thread in threading.enumerate()) == 1
        helper.close()
        for worker in workers:
            worker.join(20)
        assert len(told) == 4

    def test_a_collector_that_runs_in_the_loops_thread_ends_an_iterator_without_waiting(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        cycle: dict[str, Any] = {}
        pairs = helper.run_examples_blocking(numbered(helper, 20), served.head_address, max_resident_tasks=1)
        next(pairs)
        cycle["itself"], cycle["pairs"] = cycle, pairs
        assert helper._blocking is not None
        helper._blocking[0]._loop.call_soon_threadsafe(gc.collect)
        gc.disable()
        try:
            del cycle, pairs
            helper._blocking[0]._loop.call_soon_threadsafe(gc.collect)
            assert len(list(helper.run_examples_blocking(numbered(helper, 2), served.head_address))) == 2
        finally:
            gc.enable()

    def test_a_script_that_leaves_an_iterator_behind_ends(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        script = (
            "import sys\n"
            "from gym_ray import RolloutCollectionHelper\n"
            "from tests.collection.contract import numbered\n"
            "helper = RolloutCollectionHelper(executor='local')\n"
            "pairs = helper.run_examples_blocking(numbered(helper, 8), sys.argv[1], max_resident_tasks=2)\n"
            "print(len(next(pairs)))\n"
        )
        command = [sys.executable, "-c", script, served.head_address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr

    def test_completions_of_one_loop_are_refused_in_another(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        completions = helper.run_examples(numbered(helper, 3), served.head_address)

        async def all_of_them() -> int:
            return len([pair async for pair in completions])

        async def first() -> None:
            await anext(completions)
            await helper.aclose()

        asyncio.run(first())
        with pytest.raises(RuntimeError, match="belong to another event loop"):
            asyncio.run(all_of_them())

"""What the blocking calls promise, whoever dispatches."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from gym_ray.errors import RoutingError
from gym_ray.example import ExampleDeployment, LatencyRange, Profile, example_in_thread
from gym_ray.helper import RolloutCollectionHelper
from tests.collection.contract import flat_rows, in_flight, numbered


class BlockingContract:
    """Subclasses give `helper`; its tests have no event loop."""

    @pytest.fixture
    def served(self) -> Iterator[ExampleDeployment]:
        with example_in_thread(Profile(latency=LatencyRange(0.02, 0.05))) as deployment:
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
        pairs.close()  # type: ignore[attr-defined]
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

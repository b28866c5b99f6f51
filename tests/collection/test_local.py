"""The contract, dispatched in this process."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gym_ray.example import example_in_thread
from gym_ray.helper import RolloutCollectionHelper
from tests.collection.blocking import BlockingContract
from tests.collection.contract import CompletionsContract, numbered
from tests.collection.recording import RecordedExamplesContract


class TestLocal(CompletionsContract):
    @pytest.fixture
    async def helper(self) -> AsyncIterator[RolloutCollectionHelper]:
        async with RolloutCollectionHelper(executor="local") as helper:
            yield helper


class TestLocalRecording(RecordedExamplesContract):
    @pytest.fixture
    async def helper(self) -> AsyncIterator[RolloutCollectionHelper]:
        async with RolloutCollectionHelper(executor="local") as helper:
            yield helper


class TestLocalBlocking(BlockingContract):
    @pytest.fixture
    def helper(self) -> Iterator[RolloutCollectionHelper]:
        helper = RolloutCollectionHelper(executor="local")
        yield helper
        helper.close()


def test_a_helper_belongs_to_one_event_loop_until_it_is_closed() -> None:
    helper = RolloutCollectionHelper(executor="local")

    async def step(head: str, *, closes: bool) -> int:
        try:
            return len([pair async for pair in helper.run_examples(numbered(helper, 3), head)])
        finally:
            if closes:
                await helper.aclose()

    with example_in_thread() as served:
        assert asyncio.run(step(served.head_address, closes=True)) == 3
        assert asyncio.run(step(served.head_address, closes=False)) == 3
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(step(served.head_address, closes=False))

"""The contract of completions, dispatched by Ray actors."""

from collections.abc import AsyncIterator, Iterator

import pytest

from gym_ray.helper import RolloutCollectionHelper
from tests.collection.blocking import BlockingContract
from tests.collection.contract import CompletionsContract
from tests.collection.recording import RecordedExamplesContract


@pytest.mark.usefixtures("ray_cluster")
class TestRay(CompletionsContract):
    @pytest.fixture
    async def helper(self) -> AsyncIterator[RolloutCollectionHelper]:
        async with RolloutCollectionHelper(executor="ray") as helper:
            yield helper


@pytest.mark.usefixtures("ray_cluster")
class TestRayRecording(RecordedExamplesContract):
    @pytest.fixture
    async def helper(self) -> AsyncIterator[RolloutCollectionHelper]:
        async with RolloutCollectionHelper(executor="ray") as helper:
            yield helper


@pytest.mark.usefixtures("ray_cluster")
class TestRayBlocking(BlockingContract):
    @pytest.fixture
    def helper(self) -> Iterator[RolloutCollectionHelper]:
        helper = RolloutCollectionHelper(executor="ray")
        yield helper
        helper.close()

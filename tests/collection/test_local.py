"""The contract, dispatched in this process."""

from collections.abc import AsyncIterator

import pytest

from gym_ray.helper import RolloutCollectionHelper
from tests.collection.contract import CompletionsContract
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

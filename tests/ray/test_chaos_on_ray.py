"""A few schedules of `python -m tests.chaos --executor ray`, which carries out as many as you like."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.schedule import run_schedule


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gc-"))  # short: Ray puts sockets below it, whose paths end at 107 bytes
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize(
    ("seed", "kinds", "replays"),
    [(1, ("shard", "driver", "stop"), True), (2, ("shard", "driver", "caller"), False), (3, ("node",), True)],
)
def test_a_run_on_ray_that_is_disturbed_still_adds_up(
    folder: Path, seed: int, kinds: tuple[str, ...], replays: bool
) -> None:
    happened = run_schedule(
        seed, kinds, events=3, executor="ray", replays=replays, record_format="jsonl", folder=folder
    )
    assert happened

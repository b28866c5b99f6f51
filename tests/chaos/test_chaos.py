"""A few schedules of `python -m tests.chaos`, which carries out as many as you like."""

from pathlib import Path

import pytest

from tests.chaos.schedule import LOCAL_KINDS, run_schedule


@pytest.mark.parametrize(
    ("seed", "replays", "record_format"), [(7, True, "jsonl"), (8, False, "jsonl"), (9, True, "parquet")]
)
def test_a_run_that_is_disturbed_still_adds_up(tmp_path: Path, seed: int, replays: bool, record_format: str) -> None:
    happened = run_schedule(
        seed, LOCAL_KINDS, events=4, executor="local", replays=replays, record_format=record_format, folder=tmp_path
    )
    assert happened

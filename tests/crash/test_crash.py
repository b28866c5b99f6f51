"""A run that is killed at a few random moments; `tests.crash.harness` does it as often as you like."""

from pathlib import Path

import pytest

from tests.crash.harness import run_trial


@pytest.mark.parametrize(("replays", "record_format"), [(True, "jsonl"), (False, "jsonl"), (True, "parquet")])
def test_a_killed_run_loses_nothing_and_runs_nothing_twice(tmp_path: Path, replays: bool, record_format: str) -> None:
    trial = run_trial(4, 7 if replays else 8, replays=replays, record_format=record_format, folder=tmp_path)
    assert trial.kills

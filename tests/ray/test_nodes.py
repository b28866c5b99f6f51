"""Nodes that die, leave, come late, and shards that are added: on a cluster of several nodes the run still adds up."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gn-"))  # short: Ray puts sockets below it, whose paths end at 107 bytes
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run(home: Path, event: str) -> tuple[dict[str, Any], str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ray.nodes_program", str(home), event],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("event", ["killed", "removed"])
def test_a_lost_node_loses_no_rollout(home: Path, event: str) -> None:
    ended, log = run(home, event)
    assert ended["results"] == ended["planned"] == 480
    assert ended["is_sound"]
    assert ended["most_for_an_attempt"] == 1
    assert "is lost with" in log


def test_a_node_that_is_drained_is_left_before_it_goes(home: Path) -> None:
    ended, log = run(home, "drained")
    assert ended["results"] == ended["planned"] == ended["executions"] == 480
    assert ended["is_sound"]
    assert "is drained: its work moves to a new shard" in log


def test_shards_can_be_added_and_taken_away(home: Path) -> None:
    ended, _ = run(home, "scaled")
    assert ended["results"] == ended["planned"] == ended["executions"] == 480
    assert ended["is_sound"]
    assert 6 in ended["shards"]


def test_a_late_node_is_used(home: Path) -> None:
    ended, log = run(home, "late")
    assert ended["results"] == ended["planned"] == ended["executions"] == 480
    assert "3 of 6 shards are there; the others join them when they come" in log
    assert ended["shards"][-1] == 6

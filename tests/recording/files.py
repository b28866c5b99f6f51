"""Small folders of record files, for tests."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from hypothesis import settings

from gym_ray import keys
from gym_ray.paths import RunPaths

on_disk = settings(deadline=None, max_examples=40)
"""Of property tests that touch files: an fsync may take a tenth of a second."""


def run_paths(folder: Path) -> RunPaths:
    return RunPaths(folder, "rollouts")


def record(task: int, rollout: int = 0, attempt: int = 0, **fields: Any) -> bytes:
    """A record line."""
    stamps = {keys.TASK_INDEX: task, keys.ROLLOUT_INDEX: rollout}
    if attempt:
        stamps[keys.ATTEMPT_INDEX] = attempt
    return orjson.dumps({"reward": 1.0, **stamps, **fields}) + b"\n"


def write_plan(paths: RunPaths, *shards: Iterable[bytes]) -> None:
    """The materialized inputs of a run, one iterable of lines for each shard."""
    for shard, lines in enumerate(shards):
        paths.shard(shard).materialized.write_bytes(b"".join(lines))

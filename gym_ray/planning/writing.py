"""Plans rows into the materialized inputs of a run, one file for each shard.

Streams: a plan of any length needs a few tens of bytes of memory for each rollout. Files appear under their names only
when the whole plan is valid, and all of them; otherwise nothing is left behind.
"""

import os
import secrets
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from gym_ray.deployment.merged import Deployment
from gym_ray.errors import RecordingError
from gym_ray.paths import RunPaths
from gym_ray.planning.balance import ShardBalance
from gym_ray.planning.planner import Planner, PlanSummary
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.source_row import SourceRow

BUFFER_BYTES = 32 * 2**20
"""Memory for lines that are not written yet, shared by all shards."""
MAX_BUFFER_BYTES = 2**20
"""For one shard: a write this long costs as much for a byte as a longer one."""


def write_plan(
    rows: Iterable[SourceRow], shaping: Shaping, deployment: Deployment, paths: RunPaths, shards: int
) -> PlanSummary:
    """Write `paths.shard(k).materialized` for every shard `k` and say what is in them.

    Each line is one rollout; within a file lines are in start order. All rollouts of a task are in one file, and the
    files differ by at most one task's rollouts. The same rows, shaping and deployment give the same bytes.

    Raises:
        InputError, RoutingError, ConfigError: the plan is not valid; every problem is listed, nothing is written.
        RecordingError: the files cannot be written.
    """
    planner, balance = Planner(shaping, deployment), ShardBalance(shards)
    loads = array("Q", bytes(8 * shards))
    with _draft([paths.shard(shard).materialized for shard in range(shards)]) as draft:
        for row in islice(rows, shaping.limit or None):
            for rollout in planner.plan(row):
                owner = balance.add(rollout.task.slot, 1)
                loads[owner] += 1
                draft.put(owner, rollout.line)
        summary = planner.summarize(tuple(loads))
        draft.publish()
    return summary


class _Draft:
    """The files of a plan under temporary names, in the folder of their final ones. Open only while a buffer is
    written, so that the number of shards does not need as many file descriptors."""

    def __init__(self, targets: list[Path]) -> None:
        token = secrets.token_hex(4)
        self._targets = targets
        self._files = [target.with_name(f".{target.name}.{token}.tmp") for target in targets]
        self._buffers = [bytearray() for _ in targets]
        self._room = min(MAX_BUFFER_BYTES, BUFFER_BYTES // max(len(targets), 1))

    def put(self, shard: int, line: bytes) -> None:
        """Append one line to the file of a shard."""
        buffer = self._buffers[shard]
        buffer += line
        buffer += b"\n"
        if len(buffer) > self._room:
            self._write(shard)

    def publish(self) -> None:
        """Make all files durable, then give them their names."""
        for shard, file in enumerate(self._files):
            self._write(shard)
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        for file, target in zip(self._files, self._targets, strict=True):
            file.replace(target)

    def discard(self) -> None:
        """Remove what has not got its name."""
        for file in self._files:
            file.unlink(missing_ok=True)

    def _write(self, shard: int) -> None:
        with self._files[shard].open("ab") as stream:
            stream.write(self._buffers[shard])
        self._buffers[shard].clear()


@contextmanager
def _draft(targets: list[Path]) -> Iterator[_Draft]:
    try:
        for folder in {target.parent for target in targets}:
            folder.mkdir(parents=True, exist_ok=True)
        draft = _Draft(targets)
        try:
            yield draft
        finally:
            draft.discard()
    except OSError as error:
        raise RecordingError(
            f"{error.filename or targets[0].parent}: the plan cannot be written: {error.strerror}"
        ) from error

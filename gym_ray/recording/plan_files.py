"""The plan of a run, read from its materialized inputs: the files are the queue, memory holds only where lines are.

Rollout numbers are the start order: the shards take turns, line by line. A million rollouts take about 30 MB.
"""

import os
from array import array
from collections.abc import Callable
from typing import Self

import msgspec

from gym_ray.errors import InputError
from gym_ray.identity import RowIdentity, read_identity
from gym_ray.paths import RunPaths


class PlanFiles:
    """Random access to the materialized rows of a run by rollout number; `close` it."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._offsets, self._lengths = array("Q"), array("I")
        self._owners, self._servers = array("H"), array("H")
        self._tasks, self._rollouts = array("q"), array("q")

    @classmethod
    def open(cls, paths: RunPaths, shards: int, server_of: Callable[[RowIdentity], int]) -> Self:
        """Read every shard's file once.

        Raises:
            InputError: a line is not a materialized row; the message names file and line.
        """
        plan = cls()
        readers = []
        try:
            for shard in range(shards):
                path = paths.shard(shard).materialized
                plan._files.append(os.open(path, os.O_RDONLY))
                readers.append((shard, path, path.open("rb"), [0]))
            while readers:
                readers = [reader for reader in readers if plan._read_line(*reader, server_of)]
        except BaseException:
            plan.close()
            raise
        return plan

    def _read_line(
        self, shard: int, path: object, stream: object, offset: list[int], server_of: Callable[[RowIdentity], int]
    ) -> bool:
        line: bytes = stream.readline()  # type: ignore[attr-defined]
        if not line:
            stream.close()  # type: ignore[attr-defined]
            return False
        try:
            identity = read_identity(line)
        except msgspec.MsgspecError as error:
            raise InputError(f"{path}, byte {offset[0]}: not a materialized row: {error}") from None
        self._offsets.append(offset[0])
        self._lengths.append(len(line))
        self._owners.append(shard)
        self._servers.append(server_of(identity))
        self._tasks.append(-1 if identity.task_index is None else identity.task_index)
        self._rollouts.append(-1 if identity.rollout_index is None else identity.rollout_index)
        offset[0] += len(line)
        return True

    def __len__(self) -> int:
        return len(self._offsets)

    def line(self, number: int) -> bytes:
        """The materialized row, newline included."""
        return os.pread(self._files[self._owners[number]], self._lengths[number], self._offsets[number])

    def owner(self, number: int) -> int:
        """The shard whose files take the record."""
        return self._owners[number]

    def server(self, number: int) -> int:
        """The position of its environment server."""
        return self._servers[number]

    def key(self, number: int) -> tuple[int, int]:
        """Its task and rollout index."""
        return self._tasks[number], self._rollouts[number]

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.pop())

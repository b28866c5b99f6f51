"""The plan of a run, read from its materialized inputs: the files are the queue, memory holds only where lines are.

Rollout numbers are the start order: the shards take turns, line by line. A million rollouts take 34 MB.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from gym_ray import keys
from gym_ray.errors import InputError
from gym_ray.identity import RowIdentity, read_identity
from gym_ray.paths import RunPaths

_BUFFER_BYTES = 1 << 17
"""Of each shard's file while the plan is read: larger reads are not faster, and there may be hundreds of shards."""


class PlanFiles:
    """Random access to the materialized rows of a run by rollout number; `close` it."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._files: list[int] = []
        self._offsets, self._lengths = array("Q"), array("I")
        self._owners, self._servers = array("H"), array("H")
        self._tasks, self._rollouts = array("q"), array("q")
        self._agents, self._agent_names = array("H"), dict[str | None, int]()
        self._stamps, self._stamp_names = array("H"), dict[str | None, int]()

    @classmethod
    def open(cls, paths: RunPaths, shards: int, server_of: Callable[[RowIdentity], int]) -> Self:
        """Read every shard's file once; `server_of` gives the position of a row's environment server.

        Raises:
            InputError: a line is not a materialized row; the message names file and line.
            FileNotFoundError: a shard has no file.
        """
        plan = cls()
        try:
            for shard in range(shards):
                path = paths.shard(shard).materialized
                plan._files.append(os.open(path, os.O_RDONLY))
                plan._paths.append(path)
            waiting = [(shard, plan._rows(shard)) for shard in range(shards)]
            while waiting:
                waiting = [turn for turn in waiting if plan._add_next(*turn, server_of)]
        except BaseException:
            plan.close()
            raise
        return plan

    def __len__(self) -> int:
        return len(self._offsets)

    def line(self, number: int) -> bytes:
        """The materialized row, newline included.

        Raises:
            InputError: the file has become shorter since it was opened.
        """
        owner, length = self._owners[number], self._lengths[number]
        line = os.pread(self._files[owner], length, self._offsets[number])
        if len(line) != length:
            raise InputError(
                f"{self._paths[owner]}: expected {length} bytes at byte {self._offsets[number]}, found {len(line)}: "
                "something has changed the file during the run; move the run aside and start it anew"
            )
        return line

    def owner(self, number: int) -> int:
        """The shard whose files take the record."""
        return self._owners[number]

    def server(self, number: int) -> int:
        """The position of its environment server."""
        return self._servers[number]

    def key(self, number: int) -> tuple[int, int]:
        """Its task and rollout index."""
        return self._tasks[number], self._rollouts[number]

    def agent(self, number: int) -> str | None:
        """The agent that its row names."""
        return next(name for name, place in self._agent_names.items() if place == self._agents[number])

    def server_stamp(self, number: int) -> str | None:
        """The environment server that its row is bound to."""
        return next(name for name, place in self._stamp_names.items() if place == self._stamps[number])

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        while self._files:
            os.close(self._files.pop())

    def _rows(self, shard: int) -> Iterator[tuple[int, int, RowIdentity]]:
        """Offset, length and identity of every line of a shard."""
        offset = 0
        with os.fdopen(self._files[shard], "rb", _BUFFER_BYTES, closefd=False) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    identity = read_identity(line)
                except msgspec.MsgspecError as error:
                    raise InputError(
                        f"{self._paths[shard]}:{number}: expected a materialized row, found damage: {error}"
                    ) from None
                if identity.task_index is None or identity.rollout_index is None:
                    raise InputError(
                        f"{self._paths[shard]}:{number}: expected a materialized row, "
                        f"found no {keys.TASK_INDEX} or no {keys.ROLLOUT_INDEX}"
                    )
                yield offset, len(line), identity
                offset += len(line)

    def _add_next(
        self, shard: int, rows: Iterator[tuple[int, int, RowIdentity]], server_of: Callable[[RowIdentity], int]
    ) -> bool:
        """Number the next row of a shard; False when it has none left."""
        row = next(rows, None)
        if row is None:
            return False
        offset, length, identity = row
        assert identity.task_index is not None
        assert identity.rollout_index is not None
        self._offsets.append(offset)
        self._lengths.append(length)
        self._owners.append(shard)
        self._servers.append(server_of(identity))
        self._agents.append(self._agent_names.setdefault(identity.agent_name, len(self._agent_names)))
        self._stamps.append(self._stamp_names.setdefault(identity.environment_server, len(self._stamp_names)))
        self._tasks.append(identity.task_index)
        self._rollouts.append(identity.rollout_index)
        return True

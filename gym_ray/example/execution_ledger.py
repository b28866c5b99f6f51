"""Which attempts a server has executed, in order: what a test compares with what the runner believes."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from gym_ray.example.attempt import AttemptIdentity


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """What is kept of each server's executions."""

    capacity: int = 0
    """How many of the latest are kept in memory; 0 keeps none."""
    path: Path | None = None
    """A file that gets one JSON line for each; the servers of a deployment share it."""


NO_LEDGER = LedgerOptions()
"""Executions are counted and not kept."""


class ExecutionLedger:
    """The executions of one server. Close it, or use it as a context manager."""

    def __init__(self, server: str, options: LedgerOptions) -> None:
        self._server = server
        self._latest: deque[AttemptIdentity] = deque(maxlen=options.capacity)
        # One unbuffered append for each line: it survives a kill of this process, and costs two microseconds, which is
        # less than handing it to a thread.
        self._file = None if options.path is None else options.path.open("ab", buffering=0)

    def note(self, identity: AttemptIdentity) -> None:
        """Adds an execution that begins now."""
        self._latest.append(identity)
        if self._file is not None:
            fields = {"server": self._server, "task": identity.task, "rollout": identity.rollout}
            self._file.write(orjson.dumps({**fields, "attempt": identity.attempt}) + b"\n")

    def executions(self) -> list[tuple[int | str, int, int]]:
        """The latest executions as (task, rollout, attempt), oldest first."""
        return [(each.task, each.rollout, each.attempt) for each in self._latest]

    def close(self) -> None:
        """Closes the file; the ledger in memory stays readable."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

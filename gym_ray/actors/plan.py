"""What a driver needs of a plan, and the plan that lives in memory because nobody asked for files."""

from array import array
from collections.abc import Callable, Iterable
from typing import Protocol

from gym_ray import keys
from gym_ray.dispatch.ledger import MAX_ATTEMPTS
from gym_ray.errors import InputError
from gym_ray.identity import RowIdentity, read_identity


class Plan(Protocol):
    """Rollouts `0 .. len - 1` in start order."""

    def __len__(self) -> int: ...

    def line(self, number: int) -> bytes:
        """The materialized row."""

    def owner(self, number: int) -> int:
        """The shard whose files take the record."""

    def server(self, number: int) -> int:
        """The position of its environment server."""

    def key(self, number: int) -> tuple[int, int]:
        """Its task and rollout index, -1 where the row has none."""

    def agent(self, number: int) -> str | None:
        """The agent that its row names."""

    def close(self) -> None:
        """Let go of files."""


class MemoryPlan:
    """Rows that a caller handed over; nothing is written."""

    def __init__(self, server_of: Callable[[RowIdentity], int]) -> None:
        self._server_of = server_of
        self._lines: list[bytes] = []
        self._servers = array("I")
        self._attempts = array("H")
        self._has_id = bytearray()

    def add(self, lines: Iterable[bytes]) -> None:
        """Append materialized rows.

        Raises:
            InputError: a row asks for an attempt that cannot be numbered.
        """
        for line in lines:
            identity = read_identity(line)
            if identity.attempt_index >= MAX_ATTEMPTS:
                raise InputError(
                    f"task {identity.task_index}, rollout {identity.rollout_index}: {keys.ATTEMPT_INDEX} is "
                    f"{identity.attempt_index:.6g}, expected less than {MAX_ATTEMPTS}"
                )
            self._servers.append(self._server_of(identity))
            self._attempts.append(identity.attempt_index)
            self._has_id.append(identity.own_id is not None)
            self._lines.append(line)

    def attempt(self, number: int) -> int:
        """The attempt number that the row asks for."""
        return self._attempts[number]

    def has_id(self, number: int) -> bool:
        """True if the row says which rollout it is."""
        return bool(self._has_id[number])

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> bytes:
        return self._lines[number]

    def owner(self, number: int) -> int:
        return 0

    def server(self, number: int) -> int:
        return self._servers[number]

    def key(self, number: int) -> tuple[int, int]:
        identity = read_identity(self._lines[number])
        task, rollout = identity.task_index, identity.rollout_index
        return -1 if task is None else task, -1 if rollout is None else rollout

    def agent(self, number: int) -> str | None:
        return read_identity(self._lines[number]).agent_name

    def close(self) -> None:
        self._lines.clear()

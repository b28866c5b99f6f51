"""`<stem>_run_status.json`: how a run stands, for whoever looks at the folder while it goes.

Each write replaces the file whole; how often is the caller's business. Source: protocol §7.4.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_json_atomically

logger = logging.getLogger("gym_ray.recording")

SCHEMA_VERSION = 1


class RunState(StrEnum):
    """What became of a run."""

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    DISABLED = "disabled"
    """The counts cannot be relied on."""


class AgentStatus(msgspec.Struct, frozen=True):
    """The part of one agent."""

    expected: int
    completed: int
    failed: int


class AgentCounts:
    """Counts the rollouts of each agent; those whose rows name none are in no part."""

    def __init__(self, planned: Iterable[str | None]) -> None:
        self._expected = Counter(planned)
        self._expected.pop(None, None)
        self._completed, self._failed = Counter[str | None](), Counter[str | None]()

    def add(self, agent: str | None, *, is_result: bool) -> None:
        """Note how a rollout ended."""
        (self._completed if is_result else self._failed)[agent] += 1

    def by_agent(self) -> dict[str, AgentStatus]:
        """The parts, by the names of their agents."""
        return {
            name: AgentStatus(expected, self._completed[name], self._failed[name])
            for name, expected in self._expected.items()
            if name is not None
        }


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, in rollouts."""

    state: RunState
    updated_at: str
    """UTC, `2026-01-05T10:11:12Z`."""
    run_id: str
    output: str
    """The name of the results file."""
    expected: int
    completed: int
    failed: int
    omitted: int
    remaining: int
    failures_by_kind: dict[str, int] = {}
    by_agent: dict[str, AgentStatus] = {}
    aggregation: dict[str, Any] | None = None
    """`{"aggregated": 2, "unaggregated": [NAME]}`, in environment servers; None before."""
    shards: int = 0
    """Shard actors that take work."""
    schema_version: int = SCHEMA_VERSION


def write_status(paths: RunPaths, status: RunStatus) -> None:
    """Replace the status of a run.

    Raises:
        RecordingError: the file system refuses.
    """
    write_json_atomically(paths.run_status, msgspec.to_builtins(status))


def last_status(paths: RunPaths) -> RunStatus | None:
    """The status of a run; None if there is none that can be read, for it only repeats what the records say."""
    try:
        return read_status(paths)
    except RunFolderError as error:
        logger.warning("%s: it is not used", error)
        return None


def read_status(paths: RunPaths) -> RunStatus | None:
    """The status of a run; None if it has written none.

    Raises:
        RunFolderError: the file is no status, or of a version that this program does not know.
    """
    path = paths.run_status
    try:
        status = msgspec.json.decode(path.read_bytes(), type=RunStatus)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise RunFolderError(f"{path}: expected the status of a run, found damage: {error}") from None
    if status.schema_version != SCHEMA_VERSION:
        raise RunFolderError(f"{path}: expected schema_version {SCHEMA_VERSION}, found {status.schema_version}")
    return status

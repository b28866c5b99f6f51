"""How a run stands, seen from its folder: running, finished, or dead, which its own status file cannot say."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.found import FoundRun, find_run
from gym_ray.recording.history import History
from gym_ray.recording.plan_files import PlanFiles
from gym_ray.recording.run_files import record_files
from gym_ray.recording.run_lock import holder_of
from gym_ray.recording.status import AgentCounts, RunState, RunStatus, last_status


class Standing(StrEnum):
    """What can be said of a run from outside."""

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """It says that it runs, and nobody does: its driver was killed."""
    UNKNOWN = "unknown"
    """Another collector's run, or one that was killed before it said anything."""


@dataclass(frozen=True, slots=True)
class RunStanding:
    """A run at one moment."""

    paths: RunPaths
    standing: Standing
    status: RunStatus | None
    """What the run last said; counted from the files where it could not."""
    holder: str | None
    """Who writes to it."""

    @property
    def equation(self) -> str:
        """Where every planned rollout is."""
        said = self.status
        if said is None:
            return "nothing is known"
        return (
            f"planned {said.expected} = results {said.completed} + failures {said.failed} + omitted {said.omitted} "
            f"+ owed {said.remaining}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The standing as JSON values."""
        said = {} if self.status is None else msgspec.to_builtins(self.status)
        return {**said, "state": str(self.standing), "directory": str(self.paths.directory), "holder": self.holder}


def standing_of(paths: RunPaths) -> RunStanding:
    """How a run stands. A run that was killed is counted from its files, which takes a pass over them.

    Raises:
        RunFolderError: there is no run with this output.
        InputError: a record file of a dead run is damaged.
    """
    found = find_run(paths)
    if found is None:
        raise RunFolderError(f"{paths.directory}: there is no run named {paths.stem!r}")
    status, holder = last_status(found.paths), holder_of(found.paths)
    if holder is not None:
        return RunStanding(found.paths, Standing.RUNNING, status, holder)
    if status is not None and status.state is not RunState.RUNNING:
        return RunStanding(found.paths, _ENDED.get(status.state, Standing.UNKNOWN), status, None)
    standing = Standing.UNKNOWN if status is None else Standing.INTERRUPTED
    if not found.has_plan:
        return RunStanding(found.paths, standing, status, None)
    return RunStanding(found.paths, standing, counted_status(found, RunState.RUNNING), None)


_ENDED = {
    RunState.COMPLETE: Standing.COMPLETE,
    RunState.INCOMPLETE: Standing.INCOMPLETE,
    RunState.FAILED: Standing.FAILED,
}


def counted_status(found: FoundRun, state: RunState) -> RunStatus:
    """The status of a run as its files show it.

    Raises:
        InputError: a record file is damaged.
    """
    plan = PlanFiles.open(found.paths, found.shards, lambda _: 0)
    try:
        history = History.read(map(plan.key, range(len(plan))), record_files(found.paths), passes_over_cuts=True)
        names = [plan.agent(number) or plan.server_stamp(number) for number in range(len(plan))]
        agents = AgentCounts(names)
        for number in range(len(plan)):
            if history.has_result(number) or history.has_failure(number):
                agents.add(names[number], is_result=history.has_result(number))
    finally:
        plan.close()
    planned = range(len(history))
    failed = [number for number in planned if history.has_failure(number)]
    completed = sum(map(history.has_result, planned))
    said = last_status(found.paths)
    return RunStatus(
        state=state,
        updated_at="" if said is None else said.updated_at,
        run_id=found.manifest.run_id if found.manifest is not None else "",
        output=found.paths.merged.name,
        expected=len(planned),
        completed=completed,
        failed=len(failed),
        omitted=0,
        remaining=len(planned) - completed - len(failed),
        failures_by_kind=dict(Counter(map(history.failure_class, failed))),
        by_agent=agents.by_agent(),
    )

"""What a run holds while it goes: its plan, its record files and the lock on its folder. Touches the disk."""

import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from gym_ray.actors.plan import MemoryPlan, Plan
from gym_ray.actors.spec import RunSpec
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.errors import RoutingError, RunFolderError
from gym_ray.identity import RowIdentity
from gym_ray.recording.attempts import AttemptLog, Ended
from gym_ray.recording.control import take_control
from gym_ray.recording.folder_token import has_token
from gym_ray.recording.history import History
from gym_ray.recording.journal import Record, Recorder
from gym_ray.recording.manifest import write_manifests
from gym_ray.recording.plan_files import PlanFiles
from gym_ray.recording.run_files import record_files
from gym_ray.recording.run_lock import RunLock
from gym_ray.recording.status import RunStatus, last_status

logger = logging.getLogger("gym_ray.run")


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """What takes the records of a run with a folder, and the lock that guards them."""

    recorder: Recorder
    attempts: AttemptLog
    lock: RunLock

    def append(self, records: Sequence[tuple[int, bool, Record]], ended: Sequence[Ended]) -> None:
        """Write records given as (owner shard, is a result, line), then note that their attempts have ended.

        Raises:
            RecordingError, WriterSupersededError: see `Recorder.append`.
        """
        self.recorder.append(records)
        self.attempts.ended(ended)
        self.recorder.seal(grown_only=True)  # what the log says goes into the part

    def close(self) -> None:
        """Close the files and let the next run in; a second call does nothing."""
        try:
            self.recorder.close()
        finally:
            self.attempts.close()
            self.lock.release()


@dataclass(frozen=True, slots=True)
class Held:
    """A plan; for a run with a folder its files, and what earlier invocations left in them."""

    plan: Plan
    files: RecordFiles | None = None
    history: History | None = None
    last_status: RunStatus | None = None
    """How the last invocation ended, if it could still say so."""

    def close(self) -> None:
        """Close the files and let the next run in; a second call does nothing."""
        if self.files is not None:
            self.files.close()
        self.plan.close()


def open_run(spec: RunSpec, servers: tuple[EnvironmentServer, ...], lines: Iterable[bytes] | None) -> Held:
    """Open the files of a run, or take its rows into memory.

    Raises:
        RoutingError: a row names no server that the driver knows.
        RunFolderError: the folder is not the caller's, or another run holds it.
        InputError, RecordingError: the files cannot be used.
    """
    server_of = _server_lookup(spec, servers)
    if spec.paths is None:
        rows = MemoryPlan(server_of)
        rows.add(lines or ())
        return Held(rows)
    if spec.folder_token is not None and not has_token(spec.paths, spec.folder_token):
        raise RunFolderError(
            f"the driver on {socket.gethostname()} does not see the plan in {spec.paths.directory}: "
            "put --output on storage that every node shares"
        )
    with ExitStack() as undo:
        lock = RunLock(spec.paths, spec.run_id)
        undo.callback(lock.release)
        take_control(spec.paths)  # what was asked of an earlier run is not meant for this one
        plan = PlanFiles.open(spec.paths, spec.record_shards, server_of)
        undo.callback(plan.close)
        recorder = Recorder.open(
            spec.paths, spec.record_shards, seals=spec.record_format == "parquet", seal_bytes=spec.part_bytes
        )
        undo.callback(recorder.close)
        history = _history(spec, plan) if spec.resume is not None else None
        status = last_status(spec.paths) if spec.resume is not None else None
        write_manifests(
            spec.paths,
            run_id=spec.run_id,
            shards=spec.record_shards,
            created_at=f"{datetime.now(UTC):%FT%TZ}",
            identity=spec.identity,
            max_rollout_attempts=spec.max_attempts,
        )
        files = RecordFiles(recorder, AttemptLog(spec.paths.attempts), lock)
        undo.pop_all()
    return Held(plan, files, history, status)


def _history(spec: RunSpec, plan: Plan) -> History:
    assert spec.paths is not None
    history = History.read(map(plan.key, range(len(plan))), record_files(spec.paths), spec.paths.attempts)
    if history.planned_twice:
        raise RunFolderError(
            f"{spec.paths.directory}: {history.planned_twice} rollouts are planned more than once, so that nobody "
            "knows which of them a record belongs to: pass --fresh to move the run aside"
        )
    if history.strangers:
        raise RunFolderError(
            f"{spec.paths.directory}: {history.strangers} records of rollouts that the plan does not have: "
            "the records belong to another plan; pass --fresh to move them aside"
        )
    if history.lost_results:
        logger.warning(
            "%d results that were recorded once are in no file: files were removed, or a disk has lost them; their "
            "rollouts are run again",
            len(history.lost_results),
        )
    if history.duplicates:
        logger.warning("%d results are there more than once; the highest attempt counts", history.duplicates)
    return history


def _server_lookup(spec: RunSpec, servers: tuple[EnvironmentServer, ...]) -> Callable[[RowIdentity], int]:
    positions = {server.name: position for position, server in enumerate(servers)}

    def server_of(identity: RowIdentity) -> int:
        if identity.environment_server is not None:
            position = positions.get(identity.environment_server)
        else:
            position = spec.agent_servers.get(identity.agent_name or "")
        if position is None:
            raise RoutingError(
                f"task {identity.task_index}, rollout {identity.rollout_index}: no environment server for "
                f"server {identity.environment_server!r}, agent {identity.agent_name!r}"
            )
        return position

    return server_of

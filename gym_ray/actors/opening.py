"""What a run holds while it goes: its plan, its record files and the lock on its folder. Touches the disk."""

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from gym_ray.actors.plan import MemoryPlan, Plan
from gym_ray.actors.spec import RunSpec
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.errors import RoutingError, RunFolderError
from gym_ray.identity import RowIdentity
from gym_ray.recording.folder_token import has_token
from gym_ray.recording.journal import Recorder
from gym_ray.recording.manifest import write_manifests
from gym_ray.recording.plan_files import PlanFiles
from gym_ray.recording.run_lock import RunLock


@dataclass(frozen=True, slots=True)
class Held:
    """A plan, and for a run with a folder the files that take its records and the lock that guards them."""

    plan: Plan
    recorder: Recorder | None = None
    lock: RunLock | None = None

    def close(self) -> None:
        """Close the files and let the next run in; a second call does nothing."""
        if self.recorder is not None:
            self.recorder.close()
        if self.lock is not None:
            self.lock.release()
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
        plan = MemoryPlan(server_of)
        plan.add(lines or ())
        return Held(plan)
    if spec.folder_token is not None and not has_token(spec.paths, spec.folder_token):
        raise RunFolderError(
            f"the driver on {socket.gethostname()} does not see the plan in {spec.paths.directory}: "
            "put --output on storage that every node shares"
        )
    lock = RunLock(spec.paths, spec.run_id)
    try:
        files = PlanFiles.open(spec.paths, spec.record_shards, server_of)
        created_at = f"{datetime.now(UTC):%FT%TZ}"
        write_manifests(spec.paths, run_id=spec.run_id, shards=spec.record_shards, created_at=created_at)
        return Held(files, Recorder.open(spec.paths, spec.record_shards), lock)
    except BaseException:
        lock.release()
        raise


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

"""Calls of `run_examples` that record: rows that name their run, and the shard that takes them."""

from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from gym_ray import keys
from gym_ray.actors.spec import Resume, RunSpec
from gym_ray.deployment.fingerprint import configuration_digests
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ConfigError
from gym_ray.identity import read_identity
from gym_ray.outcomes.failure_record import is_episode_id
from gym_ray.planning.given import GivenRow
from gym_ray.recording.manifest import Identity
from gym_ray.recording.recorded_shard import plan_shard, recorded_run_id, shard_paths
from gym_ray.rows.splicing import encode


def check_recording(directory: str | Path | None, shard: int | str | None, *, record_omitted_rollouts: bool) -> None:
    """Refuse arguments of which one is useless without the other.

    Raises:
        ConfigError: names what is missing.
    """
    if (directory is None) != (shard is None):
        missing = "record_shard" if shard is None else "record_output_dir"
        raise ConfigError(f"record_output_dir and record_shard belong together: {missing} is missing")
    if record_omitted_rollouts and directory is None:
        raise ConfigError("record_omitted_rollouts needs record_output_dir and record_shard")


def named_for_run(given: GivenRow, run_id: str) -> GivenRow:
    """A copy whose rollout id is its own id with the id of the run before it; a row without an id stays as it is.

    Raises:
        ConfigError: its id cannot be used.
    """
    own_id = read_identity(given.line).own_id
    if own_id is None:
        return given
    prefix = f"{run_id}-"
    name = own_id if own_id.startswith(prefix) else prefix + own_id
    if not is_episode_id(name):
        raise ConfigError(f"_ng_rollout_id: {own_id!r} cannot be used: it must not end in an attempt suffix")
    row = {**given.row, keys.RUN_ID: run_id, keys.ROLLOUT_ID: name}
    return GivenRow(row, encode(row))


def recorded(
    rows: list[GivenRow],
    spec: RunSpec,
    directory: str | Path,
    shard: int | str,
    deployment: Deployment,
    *,
    records_omitted: bool,
    routes: bool,
) -> tuple[list[GivenRow], RunSpec, tuple[tuple[int, int], ...]]:
    """The rows named for the run of a shard, whose plan they are now in; the spec of the call; their places.

    Raises:
        ConfigError, RunFolderError, RecordingError: see `plan_shard`.
    """
    paths = shard_paths(directory, shard)
    run_id = recorded_run_id(paths) or token_hex(4)
    named = [named_for_run(given, run_id) for given in rows]
    planned = plan_shard(paths, [given.line for given in named]).planned
    servers = {str(given.row[keys.ENVIRONMENT_SERVER]) for given in named if keys.ENVIRONMENT_SERVER in given.row}
    agents = {identity.agent_name for given in named if (identity := read_identity(given.line)).agent_name is not None}
    configuration = configuration_digests(deployment, servers, {name for name in agents if name is not None})
    return (
        named,
        replace(
            spec,
            run_id=run_id,
            paths=paths,
            resume=Resume(),
            identity=Identity(configuration=configuration),
            is_plain=False,
            merge=False,
            records_omitted=records_omitted,
            marks_failures_unrouted=not routes,
        ),
        planned,
    )

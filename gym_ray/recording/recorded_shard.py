"""A shard that a caller of `run_examples` has recorded: its plan on disk, by which a later command can continue it.

Source: protocol §7.1 (layout), §7.5 (nothing is recorded twice), §7.7.3 (the plan is the shard's own input).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gym_ray import keys
from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.identity import read_identity
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.found import find_run
from gym_ray.recording.history import History
from gym_ray.recording.run_files import record_files
from gym_ray.recording.run_lock import RunLock
from gym_ray.rows.splicing import splice

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = ("_failures", "_materialized_inputs")
_MAX_NAMED = 3

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecordedShard:
    """The files of one shard, with the rows of this call in its plan."""

    paths: RunPaths
    planned: tuple[tuple[int, int], ...]
    """For each row of this call: its number in the plan, and the attempt that it asks for."""


def shard_paths(directory: str | Path, label: int | str) -> RunPaths:
    """The names of the files of `record_shard` in `record_output_dir`.

    Raises:
        ConfigError: the label cannot be part of a file name that readers of shards accept.
    """
    text = str(label)
    if _LABEL.fullmatch(text) is None or text.endswith(_RESERVED):
        raise ConfigError(
            f"record_shard: expected letters, digits, '.', '_' and '-', not ending in {' or '.join(_RESERVED)}, "
            f"found {text!r}"
        )
    return RunPaths(Path(directory).expanduser().absolute(), f"rollouts-{text}", is_single=True)


def recorded_run_id(paths: RunPaths) -> str | None:
    """The run that a shard belongs to already; None if there is no such shard.

    Raises:
        RunFolderError: its manifest or its plan cannot be used.
    """
    found = find_run(paths)
    if found is not None and found.manifest is not None:
        return found.manifest.run_id
    plan = paths.shard(0).materialized
    if not plan.exists():
        return None
    with plan.open("rb") as lines:  # planned by a call that has not begun
        first = lines.readline()
    try:
        return str(json.loads(first)[keys.RUN_ID]) if first else None
    except (ValueError, TypeError, KeyError):
        raise RunFolderError(f"{plan}: line 1 names no run ({keys.RUN_ID}): choose another record_shard") from None


def plan_shard(paths: RunPaths, lines: Sequence[bytes]) -> RecordedShard:
    """Put rows into the plan of a shard, behind those that it has, and write it. Attempt numbers are no part of it.

    Raises:
        ConfigError: a row has no task and rollout index, or two rows have the same.
        RunFolderError: a row differs from the one planned, or has a result already; nothing is written then.
        RecordingError: the file system refuses.
    """
    attempts = [read_identity(line).attempt_index for line in lines]
    new = _keyed([splice(line.rstrip(b"\n"), {keys.ATTEMPT_INDEX: None}) + b"\n" for line in lines])
    paths.directory.mkdir(parents=True, exist_ok=True)
    lock = RunLock(paths, "that records")
    try:
        path = paths.shard(0).materialized
        held = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        planned = _keyed(held)
        _refuse_changed(paths, new, planned)
        _refuse_recorded(paths, new, planned)
        added = [line for key, line in new.items() if key not in planned]
        if added or not path.exists():
            write_atomically(path, [*held, *added])
    finally:
        lock.release()
    positions = {key: number for number, key in enumerate([*planned, *(key for key in new if key not in planned)])}
    return RecordedShard(paths, tuple((positions[key], attempt) for key, attempt in zip(new, attempts, strict=True)))


def _keyed(lines: Sequence[bytes]) -> dict[Key, bytes]:
    keyed: dict[Key, bytes] = {}
    for position, line in enumerate(lines):
        identity = read_identity(line)
        if identity.task_index is None or identity.rollout_index is None:
            raise ConfigError(
                f"rows[{position}]: recording needs _ng_task_index and _ng_rollout_index: use preprocess_examples"
            )
        key = identity.task_index, identity.rollout_index
        if key in keyed:
            raise ConfigError(f"rows[{position}]: task {key[0]}, rollout {key[1]} is there twice: record each once")
        keyed[key] = line
    return keyed


def _refuse_changed(paths: RunPaths, new: dict[Key, bytes], planned: dict[Key, bytes]) -> None:
    changed = [key for key, line in new.items() if planned.get(key, line) != line]
    if changed:
        raise RunFolderError(
            f"{paths.shard(0).materialized}: holds other rows for {_named(changed)}: choose another record_shard"
        )


def _refuse_recorded(paths: RunPaths, new: dict[Key, bytes], planned: dict[Key, bytes]) -> None:
    history = History.read(planned, record_files(paths))
    done = [key for number, key in enumerate(planned) if key in new and history.has_result(number)]
    if done:
        raise RunFolderError(
            f"{paths.shard(0).results}: has results of {_named(done)} already, and a rollout is recorded once: "
            "leave these rows out, or choose another record_shard"
        )


def _named(found: list[Key]) -> str:
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return ", ".join(f"task {task} rollout {rollout}" for task, rollout in found[:_MAX_NAMED]) + more

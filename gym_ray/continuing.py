"""May the run in a folder be continued with these settings? Compares plans and digests, and adds repeats to a plan."""

import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import msgspec

from gym_ray.config import SHAPING_SETTINGS, RolloutCollectionConfig
from gym_ray.deployment.fingerprint import configuration_digests
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import InputError, ResumeRefusedError
from gym_ray.identity import read_identity
from gym_ray.planning.planner import PlanSummary
from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.found import FoundRun
from gym_ray.recording.manifest import Digest, Identity

logger = logging.getLogger("gym_ray.run")

_MAX_NAMED = 8


def identity_of(config: RolloutCollectionConfig, deployment: Deployment, summary: PlanSummary) -> Identity:
    """The identity of a run with these settings and this plan."""
    settings = config.model_dump(mode="json", include=set(SHAPING_SETTINGS))
    servers = sorted(summary.rollouts_by_server)
    agents = sorted(agent for agent in summary.rollouts_by_agent if agent in deployment.agents)
    return Identity.of_settings(settings, configuration_digests(deployment, servers, agents))


def identity_as_before(found: FoundRun, deployment: Deployment) -> Identity:
    """The identity of a run whose plan is taken as it is: the settings of its manifest, the deployment of now."""
    if found.manifest is None:
        return Identity()
    before = found.manifest.identity
    names = {dotted.partition(".")[0] for dotted in before.configuration}
    return Identity(settings=before.settings, configuration=configuration_digests(deployment, names))


def check_plan(found: FoundRun, drafts: list[Path], identity: Identity) -> None:
    """Accept only the rollouts that the folder holds already; their order and their shards do not matter.

    Raises:
        ResumeRefusedError: it is another plan; names the settings that differ, and the first rollout.
    """
    difference = compare_plans(found, drafts)
    if difference.is_none:
        return
    changed = [] if found.manifest is None else _differing(found.manifest.identity.settings, identity.settings)
    cause = f"settings differ ({_named(changed)})" if changed else "the input rows, prompts or skills differ"
    is_larger = difference.changed is None and not difference.missing
    hint = ": `gym-ray extend` adds repeats to a run" if is_larger and changed == ["num_repeats"] else ""
    raise ResumeRefusedError(
        f"{found.paths.directory}: the run {found.paths.stem!r} has another plan: {cause}; {difference}: use the "
        f"settings that it was made with, another --output, or --fresh to move it aside{hint}"
    )


def extend_plan(found: FoundRun, drafts: list[Path]) -> int:
    """Add to the plan in the folder the repeats that a new plan has beyond it; returns how many.

    A task's new rollouts go to the shard that has it; what was planned keeps its place. Each file is replaced whole;
    after a crash between two of them, extending again does the rest.

    Raises:
        ResumeRefusedError: the new plan changes or lacks a rollout, or has another task. Nothing is changed.
        RecordingError: the file system refuses.
    """
    difference = compare_plans(found, drafts)
    strangers = [key for key in difference.added if key[0] not in difference.owners]
    if difference.changed is not None or difference.missing or strangers:
        about = f"task {strangers[0][0]} is new" if strangers else str(difference)
        raise ResumeRefusedError(
            f"{found.paths.directory}: extending adds repeats and leaves all else as it is, but {about}: use the input "
            "and the settings that the run was made with, and a larger num_repeats"
        )
    by_shard: dict[int, list[Place]] = {}
    for (task, _), place in difference.added.items():
        by_shard.setdefault(difference.owners[task], []).append(place)
    for shard, places in by_shard.items():
        path = found.paths.shard(shard).materialized
        write_atomically(path, chain(_blocks(path), _lines_at(drafts, places)))
    return len(difference.added)


Key = tuple[int, int]
Place = tuple[int, int, int]
"""A line of a draft: number of the file, offset, length."""


@dataclass(slots=True)
class PlanDifference:
    """What a new plan makes other than the one in a folder."""

    changed: str | None = None
    """The first rollout that is not as it was, for a person."""
    missing: int = 0
    """Rollouts that the new plan lacks."""
    added: dict[Key, Place] = field(default_factory=dict)
    """Rollouts that only the new plan has."""
    owners: dict[int, int] = field(default_factory=dict)
    """Task -> shard, in the folder."""

    @property
    def is_none(self) -> bool:
        return self.changed is None and not self.missing and not self.added

    def __str__(self) -> str:
        if self.changed is not None:
            return self.changed
        return f"{self.missing} rollouts would be missing, {len(self.added)} would be new"


def compare_plans(found: FoundRun, drafts: list[Path]) -> PlanDifference:
    """Compare rollout by rollout, unless the files are the same anyway. About 150 bytes for each rollout."""
    held = [found.paths.shard(shard).materialized for shard in range(found.shards)]
    if [Digest.of_file(path) for path in held] == [Digest.of_file(path) for path in drafts]:
        return PlanDifference()
    difference, known = PlanDifference(), dict[Key, int]()
    for shard, path in enumerate(held):
        for key, line, _ in _keyed_lines(path):
            known[key] = hash(line)
            difference.owners[key[0]] = shard
    for number, path in enumerate(drafts):
        for key, line, offset in _keyed_lines(path):
            before = known.pop(key, None)
            if before is None:
                difference.added[key] = (number, offset, len(line))
            elif before != hash(line) and difference.changed is None:
                difference.changed = f"task {key[0]}, rollout {key[1]}: {_changed_keys(held, key, line)}"
    difference.missing = len(known)
    return difference


def _keyed_lines(path: Path) -> Iterator[tuple[Key, bytes, int]]:
    """(task, rollout), line and offset of every row of a plan."""
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                identity = read_identity(line)
            except msgspec.MsgspecError as error:
                raise InputError(f"{path}:{number}: expected a materialized row, found damage: {error}") from None
            yield (identity.task_index or 0, identity.rollout_index or 0), line, offset
            offset += len(line)


def _changed_keys(held: list[Path], key: Key, line: bytes) -> str:
    before = next(old for path in held for other, old, _ in _keyed_lines(path) if other == key)
    old, new = json.loads(before), json.loads(line)
    return _named(sorted(each for each in old.keys() | new.keys() if old.get(each) != new.get(each))) + " differ"


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb", 0) as stream:
        while block := stream.read(1 << 20):
            yield block


def _lines_at(drafts: list[Path], places: Iterable[Place]) -> Iterator[bytes]:
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb", 0)) for path in drafts]
        for number, offset, length in places:
            yield os.pread(files[number].fileno(), length, offset)


def check_configuration(found: FoundRun, identity: Identity) -> None:
    """Accept only a deployment whose agents, servers and models are set up as they were.

    Raises:
        ResumeRefusedError: names the dotted keys that differ.
    """
    if found.manifest is None or not found.manifest.identity.configuration:
        logger.warning(
            "%s has no manifest: whether deployment and rows are as they were cannot be checked", found.paths.directory
        )
        return
    if changed := _differing(found.manifest.identity.configuration, identity.configuration):
        raise ResumeRefusedError(
            f"{found.paths.shard(0).manifest}: the deployment is set up differently than when the run began: "
            f"{_named(changed)}: continue it with the same set-up, or choose another --output"
        )


def _differing(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more

"""May the run in an output folder be continued with these settings? Compares plans and digests; touches no record."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gym_ray import keys
from gym_ray.config import SHAPING_SETTINGS, RolloutCollectionConfig
from gym_ray.deployment.fingerprint import configuration_digests
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ResumeRefusedError
from gym_ray.planning.planner import PlanSummary
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


def check_plan(found: FoundRun, drafts: list[Path], identity: Identity) -> None:
    """Accept only the plan that the folder holds already.

    Raises:
        ResumeRefusedError: it is another one; names the settings that differ, and the first row.
    """
    for shard, draft in enumerate(drafts):
        path = found.paths.shard(shard).materialized
        if Digest.of_file(path) == Digest.of_file(draft):
            continue
        manifest = found.manifest
        changed = [] if manifest is None else _differing(manifest.identity.settings, identity.settings)
        cause = f"settings differ ({_named(changed)})" if changed else "the input rows, prompts or skills differ"
        hint = ": to add repeats to a run, use `gym-ray extend`" if changed == ["num_repeats"] else ""
        raise ResumeRefusedError(
            f"{path}: the run in this folder has another plan: {cause}; {_first_difference(path, draft)}: "
            f"use the settings that it was made with, another --output, or --fresh to move it aside{hint}"
        )


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


def _first_difference(held: Path, planned: Path) -> str:
    """Where two plans part, for a person."""
    with held.open("rb") as old, planned.open("rb") as new:
        for number, (before, now) in enumerate(_side_by_side(old, new), 1):
            if before == now:
                continue
            if not before:
                return f"it ends at line {number - 1}, the new plan goes on"
            if not now:
                return f"line {number} is not in the new plan"
            return f"line {number} ({_differing_keys(before, now)})"
    return "their ends differ"


def _side_by_side(old: Any, new: Any) -> Iterator[tuple[bytes, bytes]]:
    while True:
        before, now = old.readline(), new.readline()
        if not before and not now:
            return
        yield before, now


def _differing_keys(before: bytes, now: bytes) -> str:
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:
        return "it is damaged"
    if (old.get(keys.TASK_INDEX), old.get(keys.ROLLOUT_INDEX)) != (
        new.get(keys.TASK_INDEX),
        new.get(keys.ROLLOUT_INDEX),
    ):
        return f"task {old.get(keys.TASK_INDEX)} there, task {new.get(keys.TASK_INDEX)} now"
    return _named(sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))) + " differ"

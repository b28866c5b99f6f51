"""What a run would do, worked out in full and shown without sending or writing any of it."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from gym_ray.config import RolloutCollectionConfig
from gym_ray.deployment.merged import load_deployment
from gym_ray.deployment.secrets import mask_secrets
from gym_ray.dispatch.leasing import split_cap
from gym_ray.environment.requests import run_body
from gym_ray.errors import ConfigError
from gym_ray.identity import read_identity
from gym_ray.paths import RunPaths
from gym_ray.planning.planner import PlanSummary
from gym_ray.planning.settings import load_shaping
from gym_ray.planning.writing import write_plan
from gym_ray.rows.reading import read_rows

MAX_SHOWN_TEXT = 200
"""Longer strings of a body are cut: a preview is read by people."""


@dataclass(frozen=True, slots=True)
class RunPreview:
    """A valid plan and how it would be dispatched."""

    deployment: str
    """Where the config was read from."""
    plan: PlanSummary
    cap: int
    cap_by_shard: tuple[int, ...]
    first_bodies: Mapping[str, Any]
    """Environment server -> the first body that it would get; credentials masked, long texts cut."""

    def to_dict(self) -> dict[str, Any]:
        """The preview as JSON values."""
        return asdict(self)


def preview(config: RolloutCollectionConfig) -> RunPreview:
    """Plan the rows of a config as a run would; sends no `/run` and leaves no file.

    Raises:
        ConfigError, DeploymentUnreachableError, InputError, RoutingError: the plan is not valid; all of it is listed.
    """
    if config.input_jsonl_fpath is None:
        raise ConfigError("input_jsonl_fpath: no rows to plan: name a file of rows (--input)")
    deployment = load_deployment(head=config.head, file=config.deployment)
    with tempfile.TemporaryDirectory(prefix="gym-ray-plan-") as folder:
        paths = RunPaths.of_output(f"{folder}/plan.jsonl")
        rows = read_rows(config.input_jsonl_fpath)
        summary = write_plan(rows, load_shaping(config), deployment, paths, config.shards)
        bodies: dict[str, Any] = {}
        for shard in range(config.shards):
            with paths.shard(shard).materialized.open("rb") as lines:
                for line in lines:
                    identity = read_identity(line)
                    server = identity.environment_server or deployment.server_for_agent(identity.agent_name or "").name
                    if server not in bodies:
                        bodies[server] = _shown(msgspec.json.decode(run_body(line, identity, 0)))
                    if len(bodies) == len(summary.rollouts_by_server):
                        break
    return RunPreview(
        deployment=deployment.source,
        plan=summary,
        cap=config.cap,
        cap_by_shard=tuple(split_cap(config.cap, config.shards)),
        first_bodies=mask_secrets(bodies),
    )


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    if isinstance(value, str) and len(value) > MAX_SHOWN_TEXT:
        return f"{value[:MAX_SHOWN_TEXT]}… ({len(value)} characters)"
    return value

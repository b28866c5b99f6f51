"""Plans rows in memory, for tests."""

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from gym_ray.config import RolloutCollectionConfig
from gym_ray.deployment.lookup import Deployment
from gym_ray.planning.in_memory import plan_rows
from gym_ray.planning.planner import PlanSummary
from gym_ray.planning.settings import load_shaping
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.memory import rows_of
from gym_ray.rows.reading import split_lines
from gym_ray.rows.source_row import SourceRow
from tests.deployment.configs import agent, environment_server, resources_server

Row = dict[str, Any]

PARAMS: Row = {"responses_create_params": {"input": []}}

WORLD: Row = {
    # Agent a is one of two for the resources server `games`, agent `solo` the only one for `puzzles`
    "a": agent("games"),
    "a_environment": environment_server("a", "games"),
    "b": agent("games"),
    "b_environment": environment_server("b", "games"),
    "games": resources_server(),
    "solo": agent("puzzles", implementation="thinker"),
    "solo_environment": environment_server("solo", "puzzles", implementation="single_agent_turn"),
    "puzzles": resources_server(),
}
"""A deployment with everything at its place."""


def row(agent: str | None = None, source: str | None = None, **fields: Any) -> Row:
    """A flat row."""
    found: Row = {**PARAMS, **fields}
    if agent is not None:
        found["agent_ref"] = {"name": agent}
    if source is not None:
        found["task_source"] = source
    return found


def task(taskset: str | None, task_id: str, **fields: Any) -> Row:
    """A materialized row."""
    return {"task_id": {"taskset": taskset, "task_id": task_id}, "task_input": {"x": 1}, **fields}


def deployment(config: Mapping[str, Any] = WORLD) -> Deployment:
    return Deployment.of_config(config, environ={})


def shaping(**settings: Any) -> Shaping:
    """The shaping of a run with these settings."""
    return load_shaping(RolloutCollectionConfig(**settings), {})


def plan(rows: Iterable[Row], world: Deployment | None = None, **settings: Any) -> list[Row]:
    """The materialized rows in start order."""
    return planned(rows, world, **settings)[0]


def summary(rows: Iterable[Row], world: Deployment | None = None, **settings: Any) -> PlanSummary:
    return planned(rows, world, **settings)[1]


def planned(rows: Iterable[Row], world: Deployment | None = None, **settings: Any) -> tuple[list[Row], PlanSummary]:
    lines, found = plan_rows(rows_of(list(rows)), shaping(**settings), world or deployment())
    return [json.loads(line) for line in lines], found


def lines_of(text: bytes, name: str = "rows.jsonl") -> list[SourceRow]:
    """The rows of a file with this content."""
    return list(split_lines(io.BytesIO(text), name))


def indices(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Task and rollout index of each row."""
    return [(each["_ng_task_index"], each["_ng_rollout_index"]) for each in rows]


def agents(rows: Iterable[Row]) -> list[str | None]:
    return [each["agent_ref"]["name"] if "agent_ref" in each else None for each in rows]

"""Rows that a program dispatches itself: routed, repeated and stamped by the same rules as those of a run's file.

The public functions that training loops call before `run_examples`. Nothing here reads a deployment that it is not
given, starts anything, or needs Ray.
"""

import json
import logging
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from gym_ray import keys
from gym_ray.config import RolloutCollectionConfig
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ConfigError, RoutingError
from gym_ray.planning.facts import read_facts
from gym_ray.planning.planner import Planner
from gym_ray.planning.problems import Problem, Problems
from gym_ray.planning.settings import load_shaping
from gym_ray.planning.sources import agent_of_source
from gym_ray.rows.memory import SOURCE, rows_of
from gym_ray.rows.source_row import SourceRow

logger = logging.getLogger("gym_ray.planning")

Row = dict[str, Any]
Rows = TypeVar("Rows", bound=Sequence[MutableMapping[str, Any]])


def preprocess_examples(
    examples: Iterable[Mapping[str, Any]],
    *,
    agent_map: Mapping[str, str] | None = None,
    fan_out: Mapping[str, Sequence[str]] | None = None,
    num_repeats: int | Mapping[str, int] | None = 1,
    num_repeats_add_seed: bool = False,
    global_config_dict: Mapping[str, Any] | None = None,
    task_ids: Sequence[str | int] | None = None,
) -> list[Row]:
    """Rows with the run-level routing and repetition applied: new, independent copies with their identity stamps.

    Call it before handing rows to `run_examples`, which takes them as they are. `examples` are not changed.

    Args:
        agent_map: agent or task source -> agent; `_default` is the fallback.
        fan_out: agent or task source -> agents that all run the row.
        num_repeats: rollouts of each task; a map by agent or source may hold `_default`.
        num_repeats_add_seed: set a seed equal to the rollout index in `metadata.extra_body`.
        global_config_dict: the merged config of the deployment. With it, rows that name only a `task_source` get its
            agent here; without it that is left to `run_examples`.
        task_ids: keep only these tasks, by the id stored in each row, each once before repetition.

    Raises:
        InputError, RoutingError, ConfigError: rows or arguments are wrong; every problem is listed.
        pydantic.ValidationError: an argument breaks a rule that the setting of its name has.
    """
    deployment = None if global_config_dict is None else Deployment.of_config(global_config_dict)
    config = RolloutCollectionConfig(
        agent_map=None if agent_map is None else dict(agent_map),
        fan_out=None if fan_out is None else {basis: list(agents) for basis, agents in fan_out.items()},
        num_repeats=dict(num_repeats) if isinstance(num_repeats, Mapping) else num_repeats,
        num_repeats_add_seed=num_repeats_add_seed,
        task_ids=None if task_ids is None else list(task_ids),
        environment_server_routes={} if deployment is None else dict(deployment.environment_server_routes),
    )
    planner = Planner(load_shaping(config), None, keeps_attempts=True)
    rows = [json.loads(rollout.line) for row in rows_of(examples) for rollout in planner.plan(row)]
    for warning in planner.summarize(()).warnings:
        logger.warning("%s", warning)
    if deployment is not None:
        _resolve(rows, deployment)
    return rows


def resolve_task_sources(examples: Rows, global_config_dict: Mapping[str, Any]) -> Rows:
    """Stamp an `agent_ref` on every row that has only a `task_source`, in place; returns `examples`.

    Rows that name an agent, or carry an environment server already, are left as they are. Nothing is stamped unless
    every source leads to an agent.

    Raises:
        RoutingError: some do not; the message lists all of them with their rows.
    """
    _resolve(examples, Deployment.of_config(global_config_dict))
    return examples


def _resolve(rows: Sequence[MutableMapping[str, Any]], deployment: Deployment) -> None:
    problems, agents = Problems(), dict[str, str]()
    without_source = 0
    stamps: list[tuple[MutableMapping[str, Any], str]] = []
    for number, row in enumerate(rows):
        try:
            facts = read_facts(row)
        except ValueError as error:
            problems.add(Problem.STAMP, str(error), _place(number))
            continue
        without_source += facts.agent is not None and facts.source is None
        if facts.agent is not None or facts.source is None or facts.server is not None:
            continue
        try:
            agent = agents.get(facts.source) or agents.setdefault(
                facts.source, agent_of_source(deployment, facts.source)
            )
        except (RoutingError, ConfigError) as error:
            problems.add(Problem.TASK_SOURCE, str(error), _place(number))
            continue
        stamps.append((row, agent))
    problems.raise_if_any()
    for row, agent in stamps:
        row[keys.AGENT_REF] = {keys.NAME: agent}
    if without_source:
        logger.warning("%d rows name an agent but no task_source, which NeMo Gym deprecates", without_source)


def _place(number: int) -> SourceRow:
    return SourceRow(b"", SOURCE, number, number, is_line=False)

"""Statistics over all scored rollouts, and over those of each task.

Source: protocol §9.3 (the five statistics), §9.5 (the shape of a group).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from gym_ray import keys
from gym_ray.example.metrics import statistic
from gym_ray.example.metrics.rollout import MeasuredRollout, column, column_names

_PLACEHOLDER_SAMPLE = {keys.AGENT_REF: {keys.NAME: "agent"}}
"""Servers do not have the task's row; clients know not to read this name."""


def describe(scored: Sequence[MeasuredRollout], names: Iterable[str]) -> dict[str, Any]:
    """`<statistic>/<field>` for every named field that has a value, grouped by statistic."""
    columns = {name: values for name in names if (values := column(scored, name))}
    described: dict[str, Any] = {}
    described |= {f"mean/{name}": statistic.mean(values) for name, values in columns.items()}
    described |= {f"max/{name}": max(values) for name, values in columns.items()}
    described |= {f"min/{name}": min(values) for name, values in columns.items()}
    described |= {f"median/{name}": statistic.median(values) for name, values in columns.items()}
    # A lone rollout has the deviation 0, but a lone value among several rollouts has none: NeMo Gym does so too.
    described |= {
        f"std/{name}": statistic.sample_deviation(values)
        for name, values in columns.items()
        if len(values) > 1 or len(scored) == 1
    }
    return described


def group_level_metrics(scored: Sequence[MeasuredRollout]) -> list[dict[str, Any]]:
    """One object for each task, ascending; `scored` ascends by task and rollout."""
    names = column_names(scored)
    return [_group(task, list(members), names) for task, members in groupby(scored, key=lambda rollout: rollout.task)]


def _group(task: int, members: list[MeasuredRollout], names: Sequence[str]) -> dict[str, Any]:
    return {
        keys.TASK_INDEX: task,
        **describe(members, names),
        "sample": _PLACEHOLDER_SAMPLE,
        "num_rollouts": len(members),
        "expected_num_rollouts": len(members),  # a server sees only what was sent to it
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": [_rollout_info(member) for member in members],
    }


def _rollout_info(rollout: MeasuredRollout) -> dict[str, Any]:
    return {
        "rollout_id": f"{rollout.task}:{rollout.rollout}",
        keys.TASK_INDEX: rollout.task,
        keys.ROLLOUT_INDEX: rollout.rollout,
        **({keys.REWARD: rollout.reward} if rollout.has_reward else {}),
        **rollout.usage,
        **{name: value for name, value in rollout.own.items() if name != keys.REWARD},
    }

"""Assembles the five parts of the reply to `/aggregate_metrics`.

Source: protocol §3.2 (the reply), §9.1 (masks), §9.3-9.4 (order of the keys).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gym_ray import keys
from gym_ray.example.metrics.groups import describe, group_level_metrics
from gym_ray.example.metrics.pass_at_k import pass_at_k
from gym_ray.example.metrics.perf import perf_summary
from gym_ray.example.metrics.repeats import across_repeats, repeat_level_metrics
from gym_ray.example.metrics.rollout import MeasuredRollout, column_names, measured_rollouts


def aggregate_metrics(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The reply for the records of one run; cost is n log n for each metric column.

    Raises:
        ValueError: two records have the same task and rollout, or an index is not a whole number.
    """
    rollouts = measured_rollouts(records)
    scored = [rollout for rollout in rollouts if not rollout.masked]
    coverage = _coverage(rollouts, scored) if len(scored) < len(rollouts) else {}
    repeats = repeat_level_metrics(scored)
    overall = describe(scored, column_names(scored))
    agent_metrics: dict[str, Any] = {**overall, **across_repeats(repeats), **coverage}
    if scored:
        num_repeats = len({rollout.rollout for rollout in rollouts})
        agent_metrics |= pass_at_k(scored, num_repeats)
        agent_metrics["num_repeats"] = num_repeats
    means = {key: value for key, value in overall.items() if key.startswith("mean/")}
    return {
        keys.GROUP_LEVEL_METRICS: group_level_metrics(scored),
        keys.AGENT_METRICS: agent_metrics,
        keys.KEY_METRICS: {**means, **coverage},
        keys.PERF_SUMMARY: perf_summary(rollouts),
        keys.REPEAT_LEVEL_METRICS: repeats,
    }


def _coverage(rollouts: Sequence[MeasuredRollout], scored: Sequence[MeasuredRollout]) -> dict[str, int]:
    measured_tasks = {rollout.task for rollout in scored}
    return {
        "coverage/measured_rollouts": len(scored),
        "coverage/masked_rollouts": len(rollouts) - len(scored),
        "coverage/measured_tasks": len(measured_tasks),
        "coverage/fully_masked_tasks": len({rollout.task for rollout in rollouts} - measured_tasks),
    }

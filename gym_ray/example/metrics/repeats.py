"""Statistics of each repeat, and of the repeats' means.

A repeat is all scored rollouts with one rollout index: one pass over the tasks.

Source: protocol §9.6 (a repeat), §9.3 (across repeats, primary metrics).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gym_ray import keys
from gym_ray.example.metrics import statistic
from gym_ray.example.metrics.rollout import MeasuredRollout, column, column_names
from gym_ray.example.metrics.statistic import Number

_MEAN = "mean/"
_NOT_PRIMARY = (
    *(f"/{name}" for name in ("max", "min", "median", "p5", "p25", "p75", "p95", keys.ATTEMPT_INDEX)),
    *("/ci_low_95", "/ci_high_95", "/ci_lower", "/ci_upper", "_ci_lower", "_ci_upper", "_ci95_lower", "_ci95_upper"),
    *("/std_dev_across_runs", "/std_err_across_runs", "/avg_sample_std_dev"),
)
"""Endings of fields that are statistics already; a statistic over those would mean nothing."""


def repeat_level_metrics(scored: Sequence[MeasuredRollout]) -> list[dict[str, Any]]:
    """One object for each rollout index, ascending; empty unless there are several."""
    tasks = {rollout.task for rollout in scored}
    by_index: defaultdict[int, list[MeasuredRollout]] = defaultdict(list)
    for rollout in scored:
        by_index[rollout.rollout].append(rollout)
    if len(by_index) < 2:
        return []
    return [_repeat(index, by_index[index], len(tasks)) for index in sorted(by_index)]


def across_repeats(repeats: Sequence[dict[str, Any]]) -> dict[str, float]:
    """`<statistic>_across_repeats/mean/<field>`, each repeat's mean being one observation."""
    means: defaultdict[str, list[Number]] = defaultdict(list)
    for repeat in repeats:
        for key, value in repeat.items():
            if key.startswith(_MEAN) and not key.endswith(_NOT_PRIMARY):
                means[key].append(value)
    spread: dict[str, float] = {}
    for key, values in means.items():
        spread[f"mean_across_repeats/{key}"] = statistic.mean(values)
        spread[f"median_across_repeats/{key}"] = statistic.median(values)
        spread[f"std_across_repeats/{key}"] = statistic.sample_deviation(values)
        spread[f"min_across_repeats/{key}"] = min(values)
        spread[f"max_across_repeats/{key}"] = max(values)
        spread[f"se_across_repeats/{key}"] = statistic.standard_error(values)
        if (bounds := statistic.confidence_bounds(values)) is not None:
            spread[f"ci_low_95_across_repeats/{key}"], spread[f"ci_high_95_across_repeats/{key}"] = bounds
    return spread


def _repeat(index: int, members: list[MeasuredRollout], tasks: int) -> dict[str, Any]:
    repeat: dict[str, Any] = {
        keys.ROLLOUT_INDEX: index,
        "sample_count": len(members),
        "missing_count": tasks - len(members),
    }
    for name in sorted(column_names(members)):
        values = column(members, name)
        repeat[f"mean/{name}"] = statistic.mean(values)
        repeat[f"median/{name}"] = statistic.median(values)
        repeat[f"std/{name}"] = statistic.sample_deviation(values)
        repeat[f"sem/{name}"] = statistic.standard_error(values)
        repeat[f"min/{name}"] = min(values)
        repeat[f"max/{name}"] = max(values)
        repeat[f"p25/{name}"] = statistic.percentile(values, 25)
        repeat[f"p75/{name}"] = statistic.percentile(values, 75)
        if (bounds := statistic.confidence_bounds(values)) is not None:
            repeat[f"ci_low_95/{name}"], repeat[f"ci_high_95/{name}"] = bounds
    return repeat

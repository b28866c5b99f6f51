"""The summary of what rollouts cost: tokens, turns, latency. Masked rollouts cost too, so they are in it.

Source: protocol §9.7.
"""

from collections.abc import Sequence
from typing import Any

from gym_ray.example.metrics import statistic
from gym_ray.example.metrics.rollout import MeasuredRollout, numbers_of
from gym_ray.example.metrics.statistic import Number

_TOKEN_FIELDS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")


def perf_summary(rollouts: Sequence[MeasuredRollout]) -> dict[str, Any] | None:
    """The summary, or None if no rollout reports performance."""
    reports = [numbers_of(rollout.perf) for rollout in rollouts if rollout.perf is not None]
    if not reports:
        return None
    token_reports = sum(report.get("token_observability_coverage", 0) > 0 for report in reports)
    summary: dict[str, Any] = {
        "overall_observability_coverage": len(reports) / len(rollouts),
        "token_observability_coverage": token_reports / len(rollouts),
    }
    for field in _TOKEN_FIELDS:
        if values := _values(reports, field):
            summary[f"mean_{field}"] = statistic.mean(values)
            summary[f"median_{field}"] = statistic.median(values)
            summary[f"total_{field}"] = sum(values)
    if turns := _values(reports, "num_turns"):
        summary["mean_num_turns"] = statistic.mean(turns)
        summary["median_num_turns"] = statistic.median(turns)
        summary["std_num_turns"] = statistic.population_deviation(turns)
        summary["min_num_turns"] = min(turns)
        summary["p90_num_turns"] = statistic.percentile(turns, 90)
        summary["max_num_turns"] = max(turns)
    if ratios := _tokens_per_turn(reports):
        summary["mean_tokens_per_turn"] = statistic.mean(ratios)
        summary["median_tokens_per_turn"] = statistic.median(ratios)
    if latencies := _values(reports, "total_latency_ms"):
        for percent in (50, 90, 99):
            summary[f"total_latency_p{percent}_ms"] = statistic.percentile(latencies, percent)
        summary["total_latency_mean_ms"] = statistic.mean(latencies)
    return summary


def _values(reports: Sequence[dict[str, Number]], field: str) -> list[Number]:
    return [report[field] for report in reports if field in report]


def _tokens_per_turn(reports: Sequence[dict[str, Number]]) -> list[Number]:
    return [
        report["completion_tokens"] / report["num_turns"]
        for report in reports
        if "completion_tokens" in report and report.get("num_turns", 0) > 0
    ]

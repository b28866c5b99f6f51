"""`ng_perf`: turns, tool calls and tokens of one attempt, of the calls that its invocations own. Pure.

Source: protocol §8.7.
"""

from typing import Any

from gym_ray.enrichment.joining import CallIndex
from gym_ray.enrichment.schema import Trajectory

_TOKENS = {
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "cached_tokens",
    "completion_tokens": "completion_tokens",
    "reasoning_tokens": "reasoning_tokens",
}


def perf_of(trajectory: Trajectory, latency_ms: float | None) -> dict[str, Any] | None:
    """The performance of an attempt; None if its trajectory has no invocation."""
    if not trajectory.invocations:
        return None
    index = CallIndex(
        {
            "model_call_id": call.model_call_id,
            "model_ref": call.response_metadata.model_ref.model_dump() if call.response_metadata.model_ref else None,
            "response_id": call.response_metadata.response_id,
        }
        for call in trajectory.model_calls
    )
    owned: dict[int, str] = {}
    for invocation in trajectory.invocations:
        for reference in invocation.model_calls:
            found = index.matches(reference)
            if len(found) == 1:
                owned.setdefault(found[0], invocation.invocation_id)
    turns = 0
    for invocation in trajectory.invocations:
        own_turns = sum(turn.invocation_id == invocation.invocation_id for turn in trajectory.turns)
        own_calls = sum(owner == invocation.invocation_id for owner in owned.values())
        turns += own_turns or own_calls or 1
    ids = {invocation.invocation_id for invocation in trajectory.invocations}
    perf: dict[str, Any] = {
        "num_turns": turns,
        "num_tool_calls": sum(tool.invocation_id in ids for tool in trajectory.tool_calls),
        "token_observability_coverage": min(1.0, len(owned) / turns),
    }
    for name, source in _TOKENS.items():
        counts = [getattr(trajectory.model_calls[position].token_stats, source) for position in owned]
        if present := [count for count in counts if count is not None]:
            perf[name] = sum(present)
    if latency_ms is not None:
        perf["total_latency_ms"] = latency_ms
    return perf

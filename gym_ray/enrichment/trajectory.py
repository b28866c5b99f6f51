"""Builds `ng_trajectory` of what a server sent, what its agent observed and what model servers captured. Pure.

Source: protocol §8.5.3.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from gym_ray.enrichment.capture import Call
from gym_ray.enrichment.joining import CallIndex, reference_to, unique_gaps
from gym_ray.enrichment.schema import (
    Gap,
    Invocation,
    ModelCall,
    ModelReference,
    Observations,
    ResponseMetadata,
    TokenStats,
    ToolCall,
    Trajectory,
    Turn,
)

_TASK_IDS = ("task_id", "problem_id", "instance_id")
_METADATA = tuple(ResponseMetadata.model_fields)


def task_name(row: Mapping[str, Any], task_index: int | None) -> str:
    """What the trajectory calls the task of a row."""
    named = next((row[key] for key in _TASK_IDS if row.get(key) is not None), None)
    if isinstance(named, Mapping):
        named = named.get("task_id")
    return str(task_index if named is None else named)


def build_trajectory(
    *,
    task_id: str,
    rollout_id: str,
    produced: Any = None,
    observed: Any = None,
    calls: list[Call] | None = None,
    capture_gaps: list[Any] | None = None,
    resolved: Any = None,
) -> Trajectory:
    """The trajectory of one attempt.

    Args:
        produced: what the server sent as `ng_trajectory`; None if it sent none.
        observed: `ng_agent_observations`, joined with the calls.
        calls: the captured calls with their bodies.
        resolved: of the result; it goes on the last turn that is derived here.
    """
    base, gaps = _base(task_id, rollout_id, produced)
    gaps += _observe(base, observed)
    base.turns.sort(key=lambda turn: (turn.timestamp, turn.invocation_id, turn.turn_no))
    for call in calls or ():
        _merge_call(base, call)
    for gap in capture_gaps or ():
        try:
            gaps.append(Gap.model_validate(gap))
        except ValidationError:
            gaps.append(Gap(code="model_call_capture_gap_invalid"))
    if produced is None:
        base.turns += _derived_turns(base, calls or [])
        if base.turns and isinstance(resolved, bool):
            base.turns[-1].resolved = resolved
        if not base.turns:
            gaps.append(Gap(code="turns_unavailable"))
    if not base.model_calls:
        gaps.append(Gap(code="model_calls_unavailable"))
    if not any(invocation.conversation for invocation in base.invocations):
        gaps.append(Gap(code="conversation_unavailable"))
    base.gaps = unique_gaps([*base.gaps, *gaps])
    return Trajectory.model_validate(base.model_dump())


def _base(task_id: str, rollout_id: str, produced: Any) -> tuple[Trajectory, list[Gap]]:
    empty = Trajectory(task_id=task_id, rollout_id=rollout_id)
    if produced is None:
        return empty, []
    try:
        base = Trajectory.model_validate(produced)
    except ValidationError:
        return empty, [Gap(code="producer_trajectory_invalid")]
    names = (("task_id", task_id), ("rollout_id", rollout_id))
    differing = [name for name, value in names if getattr(base, name) != value]
    stamped = [turn.model_copy(update={"task_id": task_id, "rollout_id": rollout_id}) for turn in base.turns]
    if any(turn != mine for turn, mine in zip(base.turns, stamped, strict=True)) and not differing:
        differing = [name for name, value in names if any(getattr(turn, name) != value for turn in base.turns)]
    base = base.model_copy(update={"task_id": task_id, "rollout_id": rollout_id, "turns": stamped})
    gap = Gap(code="producer_trajectory_identity_mismatch", detail=",".join(differing))
    return base, [gap] if differing else []


def _observe(base: Trajectory, observed: Any) -> list[Gap]:
    """Take over what an agent observed."""
    if observed is None:
        return []
    try:
        bundle = Observations.model_validate(observed)
    except ValidationError:
        return [Gap(code="agent_observations_invalid")]
    known = {invocation.invocation_id for invocation in base.invocations}
    for record in bundle.invocations:
        if record.invocation_id not in known:
            base.invocations.append(Invocation.model_validate(record.model_dump()))
    tools = {(tool.invocation_id, tool.tool_call_id): tool for tool in base.tool_calls}
    for observed_tool in bundle.tool_calls:
        key = observed_tool.invocation_id, observed_tool.tool_call_id
        news = {name: value for name, value in observed_tool.model_dump().items() if value is not None}
        held = tools.get(key)
        if held is None:
            held = tools[key] = ToolCall(invocation_id=key[0], tool_call_id=key[1])
            base.tool_calls.append(held)
        if news.get("status") == "unknown" and held.status != "unknown":
            del news["status"]
        for name, value in news.items():
            setattr(held, name, value)
    outputs = dict(_tool_outputs(base))
    for tool in base.tool_calls:
        if tool.output is None:
            tool.output = outputs.get((tool.invocation_id, tool.tool_call_id))
    return list(bundle.gaps)


def _tool_outputs(base: Trajectory) -> Iterator[tuple[tuple[str, str], Any]]:
    for invocation in base.invocations:
        for item in invocation.conversation:
            if isinstance(item, Mapping) and item.get("type") == "function_call_output":
                yield (invocation.invocation_id, str(item.get("call_id"))), item.get("output")


def _merge_call(base: Trajectory, call: Call) -> None:
    """Update a call that is known by its id, else append it."""
    made = _model_call(call)
    held = next((each for each in base.model_calls if _is_same(each, made)), None)
    if held is None:
        base.model_calls.append(made)
        return
    for name in ("started_at", "completed_at", "duration_ms", "request", "response"):
        if (value := getattr(made, name)) is not None:
            setattr(held, name, value)
    for part in ("response_metadata", "token_stats"):
        news = {name: value for name, value in getattr(made, part).model_dump().items() if value is not None}
        mine = getattr(held, part)
        setattr(held, part, type(mine).model_validate({**mine.model_dump(), **news}))


def _is_same(held: ModelCall, made: ModelCall) -> bool:
    return held.model_call_id is not None and held.model_call_id == made.model_call_id


def _model_call(call: Call) -> ModelCall:
    ref = call.get("model_ref")
    known: dict[str, Any] = {name: call.get(name) for name in _METADATA}
    known["model_ref"] = ModelReference.model_validate(ref) if isinstance(ref, Mapping) else None
    return ModelCall(
        model_call_id=call.get("model_call_id"),
        started_at=call.get("started_at"),
        completed_at=call.get("completed_at"),
        duration_ms=call.get("latency_total_ms"),
        request=_body(call, "request"),
        response=_body(call, "response"),
        response_metadata=ResponseMetadata(**known),
        token_stats=TokenStats(
            prompt_tokens=call.get("tokens_in"),
            completion_tokens=call.get("tokens_out"),
            reasoning_tokens=call.get("tokens_reasoning"),
            total_tokens=call.get("tokens_total"),
            cached_tokens=call.get("cached_tokens"),
        ),
    )


def _body(call: Call, name: str) -> Any:
    value = call.get(name)
    return call.get(f"{name}_raw") if value is None else value


def _derived_turns(base: Trajectory, calls: list[Call]) -> Iterator[Turn]:
    """One turn for each captured call that has a response and that an invocation refers to."""
    index = CallIndex(calls)
    owner: dict[int, str] = {}
    for invocation in base.invocations:
        for reference in invocation.model_calls:
            for position in index.matches(reference)[:1]:
                owner.setdefault(position, invocation.invocation_id)
    numbers: dict[str, int] = {}
    steps: dict[str, int] = {}
    for position, call in enumerate(calls):
        response = call.get("response")
        owner_id = owner.get(position)
        if owner_id is None or not isinstance(response, Mapping):
            continue
        numbers[owner_id] = numbers.get(owner_id, 0) + 1
        answer, reasoning = _answer(response, call)
        yield Turn(
            invocation_id=owner_id,
            task_id=base.task_id,
            rollout_id=base.rollout_id,
            turn_no=numbers[owner_id],
            timestamp=call.get("started_at") or call.get("completed_at") or 0.0,
            question=_question(call.get("request")),
            answer=answer,
            reasoning_content=reasoning,
            step_count=steps.get(owner_id, 0),
            model_calls=[reference_to(call)],
        )
        steps[owner_id] = steps.get(owner_id, 0) + len(call.get("tool_calls") or ())


def _question(request: Any) -> Any:
    if not isinstance(request, Mapping):
        return None
    asked = request.get("input")
    if asked is None:
        return request.get("messages")
    if not isinstance(asked, list):
        return asked
    return [
        {**item, "type": "message"} if isinstance(item, Mapping) and "role" in item and "type" not in item else item
        for item in asked
    ]


def _answer(response: Mapping[str, Any], call: Call) -> tuple[Any, Any]:
    """What a model answered, and what it thought on the way."""
    output = response.get("output")
    if isinstance(output, list):
        thoughts = [item for item in output if isinstance(item, Mapping) and item.get("type") == "reasoning"]
        rest = [item for item in output if item not in thoughts]
        return rest or None, thoughts or None
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0].get("message"), call.get("reasoning_content")
    content = response.get("content")
    if isinstance(content, list):
        rest = [item for item in content if not (isinstance(item, Mapping) and item.get("type") == "thinking")]
        return rest or None, call.get("reasoning_content")
    return None, call.get("reasoning_content")

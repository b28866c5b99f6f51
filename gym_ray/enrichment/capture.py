"""Captured model calls as they stand in a record: `ng_model_call_capture`. Pure. Source: protocol §8.3, §8.4."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gym_ray.enrichment.usage import first, read_tokens

Call = dict[str, Any]

PAYLOADS = ("request", "response", "request_raw", "response_raw")
"""The bodies of a call; they are most of its bytes."""

_NO_RECORDS = "model_call_capture_no_records"
_UNREADABLE_RECORDS = "model_call_capture_records_unreadable"
_INCOMPLETE = "model_call_capture_incomplete"
UNREADABLE = "model_call_capture_unreadable"


def read_capture(key: str, lines: Iterable[bytes] | None, *, is_incomplete: bool) -> dict[str, Any]:
    """The capture of one attempt, bodies included.

    Args:
        key: the capture key of the attempt.
        lines: of its file; None if there is no file.
        is_incomplete: the marker says that calls are missing.
    """
    calls: list[Call] = []
    damaged, position = 0, 0
    for line in lines or ():
        if not line.strip():
            continue
        raw = _parsed(line)
        if raw is None:
            damaged += 1
        else:
            calls.append(_call(raw, position))
        position += 1
    gaps: list[dict[str, Any]] = []
    if position == 0 and not is_incomplete:
        gaps.append({"code": _NO_RECORDS})
    if damaged:
        gaps.append({"code": _UNREADABLE_RECORDS, "detail": f"count={damaged}"})
    if is_incomplete:
        gaps.append({"code": _INCOMPLETE})
    return capture_of(key, calls, gaps)


def capture_of(key: str, calls: list[Call], gaps: list[dict[str, Any]]) -> dict[str, Any]:
    """`ng_model_call_capture` of these calls."""
    capture = {"rollout_id": key, "metrics": _metrics(calls), "calls": calls}
    return {**capture, "gaps": gaps} if gaps else capture


def without_payloads(calls: Iterable[Call]) -> list[Call]:
    """The calls without their bodies."""
    return [{name: value for name, value in call.items() if name not in PAYLOADS} for call in calls]


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def _metrics(calls: list[Call]) -> dict[str, Any]:
    names = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")
    return {**{name: _sum(call[name] for call in calls) for name in names}, "num_calls": len(calls)}


def _sum(values: Iterable[Any]) -> Any:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _call(raw: Mapping[str, Any], position: int) -> Call:
    request, response = _object(raw.get("request")), _object(raw.get("response"))
    tokens = read_tokens(response)
    return {
        "model_call_id": raw.get("model_call_id"),
        "response_id": _text(response.get("id")),
        "client_session_id": raw.get("client_session_id"),
        "call_index": position,
        "model_ref": raw.get("model_ref"),
        "model": first(_text(response.get("model")), _text(request.get("model"))),
        "dialect": raw.get("dialect"),
        "status_code": raw.get("status_code"),
        "response_status": _text(response.get("status")),
        "finish_reason": _finish_reason(response),
        "upstream_attempted": raw.get("upstream_attempted"),
        "response_source": raw.get("response_source"),
        "upstream_status_code": raw.get("upstream_status_code"),
        "local_response_reason": raw.get("local_response_reason"),
        "started_at": _number(raw.get("started_at")),
        "completed_at": _number(raw.get("completed_at")),
        "tokens_in": tokens.sent,
        "tokens_out": tokens.received,
        "tokens_reasoning": tokens.reasoning,
        "tokens_total": tokens.total,
        **{name: raw.get(name) for name in PAYLOADS},
        "tool_calls": list(_tool_calls(response)),
        "reasoning_content": _reasoning(response),
        "cache_hit": None if tokens.cached is None else tokens.cached > 0,
        "cached_tokens": tokens.cached,
        "cache_creation_tokens": tokens.cache_creation,
        "error_category": raw.get("error_category"),
        "latency_total_ms": _number(raw.get("latency_ms")),
        "latency_ttft_ms": _number(raw.get("latency_ttft_ms")),
    }


def _finish_reason(response: Mapping[str, Any]) -> str | None:
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    details = _object(response.get("incomplete_details"))
    reasons = (response.get("stop_reason"), _object(choice).get("finish_reason"), details.get("reason"))
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _tool_calls(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of Responses output, chat messages, and Anthropic content."""
    for item in _objects(response.get("output")):
        if item.get("type") == "function_call":
            yield _tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))
    for choice in _objects(response.get("choices")):
        for item in _objects(_object(choice.get("message")).get("tool_calls")):
            function = _object(item.get("function"))
            yield _tool_call(item.get("id"), function.get("name"), function.get("arguments"))
    for item in _objects(response.get("content")):
        if item.get("type") == "tool_use":
            yield _tool_call(item.get("id"), item.get("name"), item.get("input"))


def _tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else {"_raw": arguments}
    return {"call_id": call_id, "name": name, "arguments": arguments if isinstance(arguments, dict) else {}}


def _reasoning(response: Mapping[str, Any]) -> str | None:
    texts: list[str] = []
    for item in _objects(response.get("output")):
        if item.get("type") == "reasoning":
            texts += [part["text"] for part in _objects(item.get("summary")) if isinstance(part.get("text"), str)]
    for choice in _objects(response.get("choices")):
        message = _object(choice.get("message"))
        text = first(_text(message.get("reasoning_content")), _text(message.get("reasoning")))
        texts += [text] if text is not None else []
    for item in _objects(response.get("content")):
        if item.get("type") == "thinking" and isinstance(item.get("thinking"), str):
            texts.append(item["thinking"])
    return "\n".join(texts) if texts else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None

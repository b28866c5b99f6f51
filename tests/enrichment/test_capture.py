"""Captured model calls: every dialect, every kind of damage."""

import json
from pathlib import Path
from typing import Any

import pytest

from gym_ray.enrichment.capture import read_capture, without_payloads
from gym_ray.enrichment.capture_files import CaptureFile, delete_capture_files, read_capture_file
from gym_ray.enrichment.usage import Tokens, read_tokens

RESPONSES = {
    "model_call_id": "c1", "dialect": "responses", "model_ref": {"type": "responses_api_models", "name": "policy"},
    "started_at": 10.0, "completed_at": 12.5, "latency_ms": 2500.0, "latency_ttft_ms": 40.0, "status_code": 200,
    "request": {"model": "asked", "input": []},
    "response": {
        "id": "r1", "model": "policy-1", "status": "completed", "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {"type": "reasoning", "summary": [{"text": "hm"}, {"text": "so"}]},
            {"type": "function_call", "call_id": "t1", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "t2", "name": "odd", "arguments": "{not json"},
        ],
        "usage": {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}},
    },
}  # fmt: skip
CHAT = {
    "model_call_id": "c2", "dialect": "chat", "latency_ms": 500,
    "request": {"model": "asked", "messages": []},
    "response": {
        "id": 7,
        "choices": [{"finish_reason": "stop", "message": {
            "reasoning": "why", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 8,
                  "prompt_tokens_details": {"cached_tokens": 2}},
    },
}  # fmt: skip
MESSAGES = {
    "model_call_id": "c3", "dialect": "messages",
    "response": {
        "stop_reason": "tool_use", "content": [{"type": "thinking", "thinking": "deep"},
                                               {"type": "tool_use", "id": "u", "name": "g", "input": {"q": 1}}],
        "usage": {"input_tokens": 5, "output_tokens": 6, "cache_read_input_tokens": 3,
                  "cache_creation_input_tokens": 1},
    },
}  # fmt: skip


def lines(*calls: dict[str, Any]) -> list[bytes]:
    return [json.dumps(call).encode() for call in calls]


def test_a_call_is_read_off_its_line_whatever_its_dialect() -> None:
    capture = read_capture("1-0", lines(RESPONSES, CHAT, MESSAGES), is_incomplete=False)
    first, second, third = capture["calls"]
    assert "gaps" not in capture
    assert (first["response_id"], first["model"], first["response_status"]) == ("r1", "policy-1", "completed")
    assert (first["finish_reason"], first["reasoning_content"]) == ("max_output_tokens", "hm\nso")
    assert first["tool_calls"] == [
        {"call_id": "t1", "name": "add", "arguments": {"a": 1}},
        {"call_id": "t2", "name": "odd", "arguments": {"_raw": "{not json"}},
    ]
    assert (first["tokens_in"], first["tokens_out"], first["tokens_total"], first["tokens_reasoning"]) == (10, 5, 15, 2)
    assert (first["cache_hit"], first["latency_total_ms"]) == (None, 2500.0)
    assert (second["response_id"], second["model"], second["finish_reason"]) == (None, "asked", "stop")
    assert (second["tokens_total"], second["cached_tokens"], second["cache_hit"]) == (8, 2, True)
    assert (second["reasoning_content"], second["tool_calls"][0]["call_id"]) == ("why", "x")
    assert (third["tokens_in"], third["tokens_total"], third["cached_tokens"], third["cache_creation_tokens"]) == (
        9, 15, 3, 1,
    )  # fmt: skip
    assert (third["finish_reason"], third["reasoning_content"]) == ("tool_use", "deep")
    assert third["tool_calls"] == [{"call_id": "u", "name": "g", "arguments": {"q": 1}}]
    assert capture["metrics"] == {
        "tokens_in": 22, "tokens_out": 15, "tokens_reasoning": 2, "tokens_total": 38, "cached_tokens": 5,
        "latency_total_ms": 3000.0, "num_calls": 3,
    }  # fmt: skip
    assert [list(call)[:4] for call in without_payloads(capture["calls"])] == [
        ["model_call_id", "response_id", "client_session_id", "call_index"]
    ] * 3
    assert not any("request" in call or "response_raw" in call for call in without_payloads(capture["calls"]))


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input_tokens": True, "output_tokens": -1}, Tokens()),
        ({"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}, Tokens(cached=0, cache_creation=0)),
        ({"cache_read_input_tokens": 4}, Tokens(sent=4, cached=4)),
        ({"reasoning_output_tokens": 3, "cached_input_tokens": 0}, Tokens(reasoning=3, cached=0)),
        ([], Tokens()),
    ],
)
def test_only_counts_count(usage: Any, tokens: Tokens) -> None:
    assert read_tokens({"usage": usage}) == tokens
    assert read_tokens("text") == Tokens()


@pytest.mark.parametrize(
    ("given", "is_incomplete", "gaps"),
    [
        (None, False, [{"code": "model_call_capture_no_records"}]),
        ([], False, [{"code": "model_call_capture_no_records"}]),
        ([b"", b"  "], True, [{"code": "model_call_capture_incomplete"}]),
        ([b"{cut", b"[1]"], False, [{"code": "model_call_capture_records_unreadable", "detail": "count=2"}]),
    ],
)
def test_what_is_missing_is_a_gap(given: list[bytes] | None, is_incomplete: bool, gaps: list[Any]) -> None:
    capture = read_capture("k", given, is_incomplete=is_incomplete)
    assert capture["gaps"] == gaps
    assert capture["calls"] == []
    assert capture["metrics"]["tokens_in"] is None


def test_a_damaged_line_takes_up_its_position() -> None:
    capture = read_capture("k", [b"{", *lines(CHAT), b"", *lines(RESPONSES)], is_incomplete=False)
    assert [call["call_index"] for call in capture["calls"]] == [1, 2]


def test_files_are_found_by_key_and_removed_together(tmp_path: Path) -> None:
    file, marker = tmp_path / "1-0-a2.capture.jsonl", tmp_path / "1-0-a2.capture.incomplete"
    assert read_capture_file(tmp_path, "1-0-a2") == CaptureFile(None, False)
    file.write_bytes(b'{"a":1}\n{"b":2}\n')
    marker.touch()
    assert read_capture_file(tmp_path, "1-0-a2") == CaptureFile([b'{"a":1}', b'{"b":2}'], True)
    delete_capture_files(tmp_path, "1-0-a2")
    delete_capture_files(tmp_path, "1-0-a2")
    assert list(tmp_path.iterdir()) == []
    file.mkdir()
    assert read_capture_file(tmp_path, "1-0-a2").is_unreadable
    for key in ("../etc", "a/b", "..", ""):
        with pytest.raises(ValueError, match="capture key"):
            read_capture_file(tmp_path, key)

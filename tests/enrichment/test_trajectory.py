"""Trajectories and performance, of what servers sent, agents observed and model servers captured."""

import json
from typing import Any

import pytest

from gym_ray.enrichment.capture import read_capture
from gym_ray.enrichment.capture_files import CaptureFile
from gym_ray.enrichment.enrich import enriched
from gym_ray.enrichment.joining import join
from gym_ray.enrichment.perf import perf_of
from gym_ray.enrichment.schema import Observations, Trajectory
from gym_ray.enrichment.trajectory import build_trajectory, task_name
from gym_ray.identity import read_identity
from tests.enrichment.test_capture import CHAT, RESPONSES, lines

REF = {"type": "responses_api_models", "name": "policy"}


def invocation(name: str = "root", *calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "agent_invocation", "invocation_id": name, "model_calls": list(calls), **fields}


def observed(*records: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"source": "agent", "records": list(records), **fields}


def calls(*raw: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_capture("1-0", lines(*raw), is_incomplete=False)["calls"]
    return found


def codes(gaps: Any) -> list[str]:
    return [gap.code for gap in gaps]


def test_references_find_their_calls_and_sessions_own_the_rest() -> None:
    captured = calls(RESPONSES, {**CHAT, "client_session_id": "sub"}, {"model_call_id": "c9"})
    bundle = Observations.model_validate(
        observed(
            invocation("root", {"model_ref": REF, "response_id": "r1"}, {"model_call_id": "gone"}),
            invocation("sub", {"model_call_id": "c1"}, parent_invocation_id="root"),
        )
    )
    joined = join(bundle, captured, "1-0")
    assert [(gap.code, gap.invocation_id, gap.detail) for gap in joined.gaps] == [
        ("model_call_reference_unmatched", "root", "model_call_id=gone"),
        ("model_call_reference_conflict", "sub", "model_call_id=c1"),
        ("model_call_ownership_unavailable", None, "capture:1-0:call_index=2"),
    ]
    assert [each.model_call_id for each in joined.invocations[1].model_calls] == ["c1", "c2"]
    twice = join(
        Observations.model_validate(observed(invocation("root", {"model_call_id": "c1"}))),
        calls(RESPONSES, RESPONSES),
        "k",
    )
    assert codes(twice.gaps)[0] == "model_call_reference_ambiguous"


def test_turns_are_derived_of_captured_calls_that_an_invocation_owns() -> None:
    captured = calls(RESPONSES, {**CHAT, "started_at": 20.0}, {"model_call_id": "lone", "response": {"output": []}})
    bundle = observed(
        invocation("root", {"model_call_id": "c1"}, {"model_call_id": "c2"}, conversation=[{"role": "user"}])
    )
    trajectory = build_trajectory(task_id="t", rollout_id="1-0", observed=bundle, calls=captured, resolved=True)
    first, second = trajectory.turns
    assert (first.turn_no, first.timestamp, first.step_count, first.resolved) == (1, 10.0, 0, None)
    assert [item["type"] for item in first.answer] == ["function_call", "function_call"]
    assert [item["type"] for item in first.reasoning_content] == ["reasoning"]
    assert (second.turn_no, second.step_count, second.resolved, second.reasoning_content) == (2, 2, True, "why")
    assert second.answer["tool_calls"]
    assert len(trajectory.model_calls) == 3
    assert trajectory.gaps == []
    perf = perf_of(trajectory, 12.5)
    assert perf == {
        "num_turns": 2, "num_tool_calls": 0, "token_observability_coverage": 1.0, "prompt_tokens": 13,
        "cached_prompt_tokens": 2, "completion_tokens": 9, "reasoning_tokens": 2, "total_latency_ms": 12.5,
    }  # fmt: skip


def test_a_trajectory_of_the_server_is_the_base_and_is_stamped_anew() -> None:
    produced = {
        "schema_version": "1.0", "task_id": "other", "rollout_id": "9-9", "invocations": [invocation("root")],
        "turns": [{"invocation_id": "root", "task_id": "other", "rollout_id": "9-9", "turn_no": 1, "timestamp": 1.0}],
        "model_calls": [{"model_call_id": "c1", "response_metadata": {"dialect": "responses"}}],
    }  # fmt: skip
    trajectory = build_trajectory(task_id="t", rollout_id="1-0", produced=produced, calls=calls(RESPONSES))
    assert trajectory.gaps[0].model_dump() == {
        "code": "producer_trajectory_identity_mismatch", "invocation_id": None, "detail": "task_id,rollout_id",
    }  # fmt: skip
    assert (trajectory.turns[0].task_id, trajectory.turns[0].rollout_id) == ("t", "1-0")
    assert len(trajectory.turns) == 1, "no turn is derived beside those of the server"
    (call,) = trajectory.model_calls
    assert (call.response_metadata.response_id, call.token_stats.prompt_tokens, call.duration_ms) == ("r1", 10, 2500.0)
    broken = build_trajectory(task_id="t", rollout_id="1-0", produced={"turns": "?"})
    assert codes(broken.gaps) == [
        "producer_trajectory_invalid", "model_calls_unavailable", "conversation_unavailable",
    ]  # fmt: skip


def test_observed_tools_are_merged_and_get_their_outputs() -> None:
    tool = {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t1", "tool_name": "add", "status": "unknown"}
    produced = {"task_id": "t", "rollout_id": "k", "tool_calls": [{**tool, "status": "completed", "tool_name": None}]}
    talk = [{"type": "function_call_output", "call_id": "t1", "output": "3"}]
    bundle = observed(invocation("root", conversation=talk), tool, gaps=[{"code": "own_gap"}])
    trajectory = build_trajectory(task_id="t", rollout_id="k", produced=produced, observed=bundle)
    (merged,) = trajectory.tool_calls
    assert (merged.status, merged.tool_name, merged.output) == ("completed", "add", "3")
    assert codes(trajectory.gaps) == ["own_gap", "model_calls_unavailable"]
    invalid = build_trajectory(task_id="t", rollout_id="k", observed={"records": 3})
    assert codes(invalid.gaps)[0] == "agent_observations_invalid"
    assert "turns_unavailable" in codes(invalid.gaps)


def test_without_invocations_there_is_no_performance() -> None:
    trajectory = Trajectory(task_id="t", rollout_id="k")
    assert perf_of(trajectory, 1.0) is None
    alone = build_trajectory(task_id="t", rollout_id="k", observed=observed(invocation("root")))
    assert perf_of(alone, None) == {"num_turns": 1, "num_tool_calls": 0, "token_observability_coverage": 0.0}


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"task_id": None, "problem_id": 7}, "7"),
        ({"task_id": {"taskset": "a", "task_id": "b"}}, "b"),
        ({"instance_id": "i"}, "i"),
        ({}, "3"),
    ],
)
def test_a_task_is_called_by_its_own_id(row: dict[str, Any], name: str) -> None:
    assert task_name(row, 3) == name


LINE = b'{"_ng_task_index":1,"_ng_rollout_index":0}\n'


def enrich(record: dict[str, Any], captured: CaptureFile | None, payloads: Any = "move") -> dict[str, Any]:
    text = json.dumps(record).encode() + b"\n"
    made: dict[str, Any] = json.loads(enriched(text, LINE, read_identity(LINE), "1-0", captured, 5.0, payloads))
    return made


def test_bodies_go_where_they_are_wanted() -> None:
    captured = CaptureFile(lines(RESPONSES), False)
    record = {"reward": 1.0, "ng_agent_observations": observed(invocation("root", {"model_call_id": "c1"}))}
    moved, kept, dropped = (enrich(record, captured, payloads) for payloads in ("move", "keep", "drop"))
    assert "request" not in moved["ng_model_call_capture"]["calls"][0]
    assert moved["ng_trajectory"]["model_calls"][0]["response"]["id"] == "r1"
    assert kept["ng_model_call_capture"]["calls"][0]["response"]["id"] == "r1"
    assert "response" not in dropped["ng_model_call_capture"]["calls"][0]
    assert dropped["ng_trajectory"]["model_calls"][0]["response"] is None
    assert moved["ng_perf"]["total_latency_ms"] == 5.0
    assert list(moved)[-3:] == ["ng_model_call_capture", "ng_trajectory", "ng_perf"]
    gap = [{"code": "multimodal_history_redacted"}]
    redacted = enrich({"ng_agent_observations": observed(gaps=gap)}, captured, "keep")
    assert "response" not in redacted["ng_model_call_capture"]["calls"][0]


def test_without_capture_only_what_an_agent_observed_is_built() -> None:
    assert enrich({"reward": 1.0}, None) == {"reward": 1.0}
    made = enrich({"ng_agent_observations": observed(invocation("root"))}, None)
    assert made["ng_trajectory"]["rollout_id"] == "1-0"
    assert "ng_perf" not in made
    assert "ng_model_call_capture" not in made


def test_what_cannot_be_joined_or_projected_is_a_gap_and_loses_no_record() -> None:
    made = enrich({"ng_agent_observations": {"records": 1}, "reward": 0.5}, CaptureFile(lines(RESPONSES), False))
    assert made["reward"] == 0.5
    assert made["ng_model_call_capture"]["gaps"] == [{"code": "agent_observation_join_failed"}]
    bad = CaptureFile(lines({**RESPONSES, "model_ref": {"type": "odd"}}), False)
    made = enrich({"reward": 0.5, "ng_trajectory": {"odd": 1}}, bad)
    assert made["reward"] == 0.5
    assert "ng_trajectory" not in made
    assert made["ng_model_call_capture"]["gaps"][-1]["code"] == "trajectory_projection_failed"
    assert made["ng_model_call_capture"]["calls"][0]["request"], "the bodies stay where they are then"
    unreadable = enrich({"reward": 1.0}, CaptureFile(None, False, is_unreadable=True))
    assert unreadable["ng_model_call_capture"]["gaps"][0] == {"code": "model_call_capture_unreadable"}

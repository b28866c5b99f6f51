"""Bodies of `/run` are read, or refused with the place and the reason."""

from typing import Any

import orjson
import pytest

from gym_ray.example.arithmetic import ARITHMETIC
from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.calculator_tools import CALCULATOR_TOOLS
from gym_ray.example.requests import InvalidRequest, RunRequest, read_records, read_run_request

_PROMPT = {"input": [{"role": "user", "content": "Hello"}]}
_TASK_ID = {"taskset": "calculator_tools:example", "task_id": "c-1"}


def _episode(task_input: object = None, **changes: Any) -> dict[str, Any]:
    task = {
        "task_id": _TASK_ID,
        "task_input": task_input or {"responses_create_params": _PROMPT, "registers": {"a": 1}},
    }
    return {"episode_id": {"rollout_id": "12-1", "attempt": 2}, "task": task, **changes}


def _read(body: object) -> RunRequest:
    return read_run_request(orjson.dumps(body), CALCULATOR_TOOLS)


def _problem(body: bytes) -> dict[str, Any]:
    with pytest.raises(InvalidRequest) as invalid:
        read_run_request(body, CALCULATOR_TOOLS)
    assert len(invalid.value.detail) == 1
    return invalid.value.detail[0]


def test_an_episode_request_gives_the_attempt_and_what_to_echo() -> None:
    request = _read(_episode())
    assert request.identity == AttemptIdentity(12, 1, 2)
    assert request.echo == {"episode_id": {"rollout_id": "12-1", "attempt": 2}, "task_id": _TASK_ID}
    assert request.prompt == _PROMPT
    assert request.task["registers"] == {"a": 1}


def test_task_fields_may_stand_inside_task_data_or_beside_it() -> None:
    beside = {"responses_create_params": _PROMPT, "registers": {"a": 1}}
    inside = {"responses_create_params": _PROMPT, "task_data": {"registers": {"a": 1}}}
    assert _read(_episode(beside)).task == _read(_episode(inside)).task
    both = {**beside, "task_data": {"registers": {"a": 2}}}
    problem = _problem(orjson.dumps(_episode(both)))
    assert problem["loc"] == ["body", "task", "task_input"]
    assert "different values" in problem["msg"]


@pytest.mark.parametrize(
    ("body", "kind", "place"),
    [
        (b"", "missing", ["body"]),
        (b"{bad", "json_invalid", ["body", 1]),
        (b"[1]", "dict_type", ["body"]),
        (orjson.dumps(_episode(extra=1)), "extra_forbidden", ["body", "extra"]),
        (
            orjson.dumps(_episode(episode_id={"rollout_id": "1-1", "attempt": True})),
            "int_type",
            ["body", "episode_id", "attempt"],
        ),
        (
            orjson.dumps(_episode(episode_id={"rollout_id": "1-1", "attempt": -1})),
            "greater_than_equal",
            ["body", "episode_id", "attempt"],
        ),
        (
            orjson.dumps(_episode(episode_id={"rollout_id": "1-1-a2", "attempt": 2})),
            "value_error",
            ["body", "episode_id", "rollout_id"],
        ),
        (
            orjson.dumps(_episode(episode_id={"rollout_id": "-1", "attempt": 2})),
            "value_error",
            ["body", "episode_id", "rollout_id"],
        ),
        (orjson.dumps({"episode_id": {"rollout_id": "1-1", "attempt": 0}}), "missing", ["body", "task"]),
        (
            orjson.dumps(_episode({"registers": {"a": 1}})),
            "missing",
            ["body", "task", "task_input", "responses_create_params"],
        ),
        (
            orjson.dumps(_episode({"responses_create_params": _PROMPT, "task_data": [1]})),
            "dict_type",
            ["body", "task", "task_input", "task_data"],
        ),
    ],
)
def test_a_body_of_another_shape_is_refused_with_its_place(body: bytes, kind: str, place: list[str | int]) -> None:
    problem = _problem(body)
    assert (problem["type"], problem["loc"]) == (kind, place)
    assert {"type", "loc", "msg", "input"} <= set(problem)


def test_a_flat_row_is_no_request_where_only_episodes_are_played() -> None:
    with pytest.raises(InvalidRequest):
        _read({"responses_create_params": _PROMPT})


def test_an_environment_that_takes_rows_takes_episodes_too() -> None:
    row = {"responses_create_params": _PROMPT, "_ng_task_index": 4, "_ng_rollout_index": 1, "_ng_attempt_index": 2}
    assert read_run_request(orjson.dumps(row), ARITHMETIC).identity == AttemptIdentity(4, 1, 2)
    assert read_run_request(orjson.dumps(row), ARITHMETIC).echo is None
    assert read_run_request(orjson.dumps(_episode()), ARITHMETIC).echo is not None


@pytest.mark.parametrize(
    "stamp",
    [
        {"agent_ref": {"name": "chess_agent"}},
        {"task_source": "chess"},
        {"task_source": ""},
        {"_ng_attempt_index": -1},
        {"_ng_attempt_index": True},
        {"_ng_task_index": "4"},
    ],
)
def test_a_row_for_somebody_else_is_a_fault(stamp: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_run_request(orjson.dumps({"responses_create_params": _PROMPT, **stamp}), ARITHMETIC)


def test_records_are_a_list_of_objects() -> None:
    assert read_records(b'{"verify_responses":[{"reward":1}]}') == [{"reward": 1}]
    for body in (b"{}", b'{"verify_responses":"x"}', b'{"verify_responses":[1]}'):
        with pytest.raises(InvalidRequest):
            read_records(body)

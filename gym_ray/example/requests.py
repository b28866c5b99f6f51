"""Reads the body of `/run` and `/aggregate_metrics`, and says what is wrong with it.

Source: protocol §2.1 (flat rows), §2.2 (episode requests), §2.6 (how errors are reported).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gym_ray import keys
from gym_ray.example.attempt import AttemptIdentity, identity_of_episode
from gym_ray.example.environment import EnvironmentFacts, JsonObject
from gym_ray.identity import ends_in_attempt_suffix, is_rollout_id

_TASK_DATA = "task_data"


class InvalidRequest(Exception):
    """The request is answered with 422 and these details."""

    def __init__(self, detail: list[JsonObject]) -> None:
        super().__init__(f"{len(detail)} problems with the request body")
        self.detail = detail

    @classmethod
    def of_validation(cls, error: ValidationError, *place: str) -> "InvalidRequest":
        """The same problems, located below `place` in the body."""
        found = error.errors(include_url=False, include_context=False)
        return cls([{**problem, "loc": ["body", *place, *problem["loc"]]} for problem in found])


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One attempt that a client asks for."""

    identity: AttemptIdentity
    prompt: JsonObject
    """`responses_create_params`."""
    task: JsonObject
    """The fields that belong to the environment, perhaps among others."""
    task_place: tuple[str, ...]
    """Where they are in the body."""
    echo: JsonObject | None
    """What the reply to an episode request repeats; None for a flat row."""


def _rollout_id(text: str) -> str:
    if not is_rollout_id(text):
        raise ValueError("expected letters, digits, '.', '_' and '-', beginning with a letter or digit")
    if ends_in_attempt_suffix(text):
        raise ValueError("the ending -a<N> is reserved for attempts: name the rollout, and give the attempt beside it")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _EpisodeId(_Strict):
    rollout_id: Annotated[str, AfterValidator(_rollout_id)]
    attempt: int = Field(ge=0)


class _TaskId(_Strict):
    taskset: str
    task_id: str


class _Task(_Strict):
    task_id: _TaskId
    task_input: dict[str, Any]


class _EpisodeRequest(_Strict):
    episode_id: _EpisodeId
    task: _Task


class _Prompt(BaseModel):
    input: str | list[dict[str, Any]]


class _Prompted(BaseModel):
    responses_create_params: _Prompt


class _AggregationRequest(BaseModel):
    verify_responses: list[dict[str, Any]]


def read_run_request(body: bytes, facts: EnvironmentFacts) -> RunRequest:
    """The request in a body of `/run`.

    Raises:
        InvalidRequest: the body has another shape.
        ValueError: a flat row names another server, or its stamps are no stamps.
    """
    fields = _object(body)
    if facts.takes_rows and not (keys.EPISODE_ID in fields and keys.TASK in fields):
        return _row_request(fields, facts)
    return _episode_request(fields)


def read_records(body: bytes) -> list[JsonObject]:
    """The records in a body of `/aggregate_metrics`.

    Raises:
        InvalidRequest: the body has another shape.
    """
    fields = _object(body)
    try:
        _AggregationRequest.model_validate(fields)
    except ValidationError as error:
        raise InvalidRequest.of_validation(error) from None
    records: list[JsonObject] = fields[keys.VERIFY_RESPONSES]
    return records


def _object(body: bytes) -> JsonObject:
    if not body:
        raise InvalidRequest([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ["body", error.pos], "msg": "JSON decode error", "input": {}}
        raise InvalidRequest([{**problem, "ctx": {"error": error.msg}}]) from None
    if not isinstance(fields, dict):
        problem = {"type": "dict_type", "loc": ["body"], "msg": "Input should be a valid dictionary", "input": fields}
        raise InvalidRequest([problem])
    return fields


def _row_request(row: JsonObject, facts: EnvironmentFacts) -> RunRequest:
    _check_prompt(row)
    source = row.get(keys.TASK_SOURCE)
    if source is not None and source not in {facts.resources_server, facts.agent, facts.server}:
        raise ValueError(f"task_source: expected {facts.resources_server!r}, found {source!r}")
    agent = row.get(keys.AGENT_REF)
    name = agent.get(keys.NAME) if isinstance(agent, Mapping) else agent
    if name is not None and name != facts.agent:
        raise ValueError(f"agent_ref: expected the agent {facts.agent!r}, found {name!r}")
    identity = AttemptIdentity(
        _stamp(row, keys.TASK_INDEX), _stamp(row, keys.ROLLOUT_INDEX), _stamp(row, keys.ATTEMPT_INDEX)
    )
    return RunRequest(identity, row[keys.RESPONSES_CREATE_PARAMS], row, (), echo=None)


def _episode_request(fields: JsonObject) -> RunRequest:
    try:
        request = _EpisodeRequest.model_validate(fields)
    except ValidationError as error:
        raise InvalidRequest.of_validation(error) from None
    place = (keys.TASK, keys.TASK_INPUT)
    task_input = request.task.task_input
    _check_prompt(task_input, *place)
    return RunRequest(
        identity=identity_of_episode(request.episode_id.rollout_id, request.episode_id.attempt),
        prompt=task_input[keys.RESPONSES_CREATE_PARAMS],
        task=_task_fields(task_input, *place),
        task_place=place,
        echo={keys.EPISODE_ID: fields[keys.EPISODE_ID], keys.TASK_ID: fields[keys.TASK][keys.TASK_ID]},
    )


def _task_fields(task_input: JsonObject, *place: str) -> JsonObject:
    """The environment's fields, which may stand in `task_data`, beside it, or in both if they agree."""
    outside = {name: value for name, value in task_input.items() if name != _TASK_DATA}
    inside = task_input.get(_TASK_DATA) or {}
    if not isinstance(inside, dict):
        raise _problem("dict_type", "Input should be a valid dictionary", inside, *place, _TASK_DATA)
    if clashes := sorted(name for name in inside.keys() & outside.keys() if inside[name] != outside[name]):
        text = f"Value error, different values inside and outside task_data: {', '.join(clashes)}"
        raise _problem("value_error", text, None, *place)
    return {**outside, **inside}


def _check_prompt(fields: JsonObject, *place: str) -> None:
    try:
        _Prompted.model_validate(fields)
    except ValidationError as error:
        raise InvalidRequest.of_validation(error, *place) from None


def _stamp(row: JsonObject, key: str) -> int:
    stamp = row.get(key, 0)
    if not isinstance(stamp, int) or isinstance(stamp, bool) or stamp < 0:
        raise ValueError(f"{key}: expected a whole number from 0, found {stamp!r}")
    return stamp


def _problem(kind: str, text: str, found: object, *place: str) -> InvalidRequest:
    return InvalidRequest([{"type": kind, "loc": ["body", *place], "msg": text, "input": found}])

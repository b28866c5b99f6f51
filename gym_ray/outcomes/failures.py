"""The fields of a failure row: the legacy keys, and the typed record beside them.

Source: protocol §2.5 (failed episodes), §6.6 (legacy keys), §7.5 (typed record).
"""

from collections.abc import Mapping

import msgspec

from gym_ray import keys
from gym_ray.outcomes.attempt import Attempt
from gym_ray.outcomes.envelope import Json, read_value
from gym_ray.outcomes.failure_record import (
    FAILURE_KINDS,
    STAGES,
    EpisodeId,
    Failure,
    RolloutFailureRecord,
    Source,
    Stage,
    is_episode_id,
    is_failure_kind,
)
from gym_ray.outcomes.reply import Answered, Delivery, Reply
from gym_ray.outcomes.text import excerpt, public

_REASONS = (
    keys.FAILURE_REASON,
    keys.FAILURE_MESSAGE,
    keys.ERROR_MESSAGE,
    keys.ERROR,
    keys.FAILURE_JUDGE_ERROR,
)
"""Where servers say why a classified failure happened, the plainest first."""
_HTTP_STATUSES = range(100, 600)


def observed_fields(
    this: Attempt,
    failure_class: str,
    kind: str,
    exception_type: str,
    message: str,
    delivery: Delivery,
    reply: Reply | None,
) -> dict[str, Json]:
    """The fields of a failure that the runner saw."""
    message = public(message) or exception_type
    status = None if reply is None else reply.status
    row = {
        keys.FAILURE_CLASS: failure_class,
        keys.FAILURE_TYPE: exception_type,
        keys.FAILURE_MESSAGE: message,
        keys.FAILURE_HTTP_STATUS: status,
        keys.FAILURE_RESPONSE_BODY: excerpt(reply.body) if isinstance(reply, Answered) else None,
        keys.FAILURE_SENDS: 0 if reply is None else reply.sends,
        keys.FAILURE_TRIES: 0 if reply is None else reply.tries,
    }
    fields: dict[str, Json] = {key: msgspec.json.encode(value) for key, value in row.items()}
    failure = Failure(failure_reason=message, terminal=False, failure_kind=kind)
    return fields | _typed_record(this, "collector", delivery, failure, status, exception_type)


def reported_record(this: Attempt, failure: Failure, status: int) -> dict[str, bytes]:
    """The typed record of a failure that an environment reported in an answer, under its key."""
    return _typed_record(this, "environment", Delivery.DELIVERED, failure, status, None)


def classified_failure(fields: Mapping[str, Json], failure_class: str, terminal: bool) -> Failure:
    """What a reply with a failure class says about it, in the form of the typed record."""
    kind = _text(fields.get(keys.FAILURE_KIND))
    if kind is None or not is_failure_kind(kind):
        kind = failure_class if failure_class in FAILURE_KINDS else None
    reasons = (_text(fields.get(key)) for key in _REASONS)
    return Failure(
        failure_reason=next(filter(None, reasons), failure_class),
        terminal=terminal,
        failure_kind=kind,
        stage=_stage(fields.get(keys.FAILURE_STAGE)),
    )


def episode_failure(report: Mapping[str, Json]) -> Failure:
    """The failure object of an episode reply; what does not fit is left out, since its report is a failure anyway."""
    kind = _text(report.get(keys.FAILURE_KIND))
    return Failure(
        failure_reason=_text(report.get(keys.FAILURE_REASON)) or "the environment gave no reason",
        terminal=keys.TERMINAL in report and read_value(report[keys.TERMINAL]) is True,
        failure_kind=kind if kind is not None and is_failure_kind(kind) else None,
        stage=_stage(report.get(keys.STAGE)),
    )


def episode_fields(report: Mapping[str, Json], failure: Failure) -> dict[str, Json]:
    """The legacy keys of a failed episode; stage and partial response as the server wrote them."""
    fields: dict[str, Json] = {
        keys.FAILURE_CLASS: msgspec.json.encode(keys.ENVIRONMENT_SERVER_FAILED),
        keys.FAILURE_TERMINAL: msgspec.json.encode(failure.terminal),
        keys.FAILURE_MESSAGE: msgspec.json.encode(failure.failure_reason),
    }
    for own, key in ((keys.STAGE, keys.FAILURE_STAGE), (keys.PARTIAL_RESPONSE, keys.FAILURE_PARTIAL_RESPONSE)):
        if own in report and bytes(report[own]) != b"null":
            fields[key] = report[own]
    return fields


def name_class(raw: Json) -> str | None:
    """The failure class as text, bounded; None for null. Servers that send no string send their JSON."""
    if bytes(memoryview(raw)[:4]) == b"null":
        return None
    return _text(raw)


def _stage(raw: Json | None) -> Stage | None:
    return STAGES.get(_text(raw) or "")


def _text(raw: Json | None) -> str | None:
    """A string, or the JSON of another value; None for null and for nothing."""
    if raw is None:
        return None
    value = read_value(raw)
    if value is None:
        return None
    return public(value if isinstance(value, str) else bytes(raw).decode())


def _typed_record(
    this: Attempt,
    source: Source,
    delivery: Delivery,
    failure: Failure,
    status: int | None,
    exception_type: str | None,
) -> dict[str, bytes]:
    """The typed record under its key, or nothing if the row has no id that may stand in one."""
    own_id = this.identity.own_id
    if own_id is None or not is_episode_id(own_id):
        return {}
    record = RolloutFailureRecord(
        episode_id=EpisodeId(rollout_id=own_id, attempt=this.number),
        run_id=this.run_id,
        source=source,
        delivery=delivery,
        failure=failure,
        http_status=status if status in _HTTP_STATUSES else None,
        exception_type=exception_type,
    )
    return {keys.FAILURE_RECORD: record.to_json()}

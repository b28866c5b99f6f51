"""What the caller of `run_examples` and `run_outcomes` gets for an outcome: a reply, a record, a failure, an exception.

Source: protocol §6.7, §6.8.
"""

import json
from typing import Any

import msgspec

from gym_ray import keys
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.deliveries import Delivery
from gym_ray.identity import RowIdentity, read_identity
from gym_ray.outcomes.evidence import is_reported
from gym_ray.outcomes.failure_record import EpisodeId, Failure, RolloutFailureRecord
from gym_ray.outcomes.judge import judge
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.outcomes.reply import Answered
from gym_ray.outcomes.reply import Delivery as DeliveryEvidence
from gym_ray.run_errors import error_of


def plain_result(delivery: Delivery, identity: RowIdentity, *, routes: bool) -> Any:
    """The reply as it is; a failed `/run` is a failure row if it `routes`, else an exception."""
    if delivery.header.kind == OutcomeKind.WITHHELD:
        return json.loads(delivery.record)
    if delivery.header.kind == OutcomeKind.RESULT:
        try:
            return strictly_decoded(delivery.record)
        except (ValueError, RecursionError):  # nested deeper than a decoder goes
            reply = Answered(200, delivery.record, "")
            record = judge(identity, delivery.header.attempt, _NOBODY, reply, delivery.header.run).record
    else:
        record = delivery.record
    row = json.loads(record)
    if not routes:
        return error_of(row, "/run")
    return {key: value for key, value in row.items() if key.startswith(keys.FAILURE_PREFIX)}


def enriched_result(delivery: Delivery, run_id: str, *, routes: bool) -> Any:
    """The record of a result; a failed `/run` is its typed record if it `routes`, else an exception."""
    if delivery.header.kind == OutcomeKind.FAILURE and not routes:
        if is_reported(delivery.record):
            return json.loads(delivery.record)  # the call did not fail: the environment answered that the rollout did
        return error_of(json.loads(delivery.record), "/run")
    return typed_result(delivery, run_id)


def typed_result(delivery: Delivery, run_id: str) -> Any:
    """The record of a result, or the typed record of a failure."""
    kind = delivery.header.kind
    if kind in (OutcomeKind.RESULT, OutcomeKind.WITHHELD):
        return strictly_decoded(delivery.record)
    if kind == OutcomeKind.OMITTED:  # the server wants no record of it: it was interrupted
        own_id = read_identity(delivery.line).own_id or ""
        return RolloutFailureRecord(
            episode_id=EpisodeId(rollout_id=own_id, attempt=delivery.header.attempt),
            run_id=run_id,
            source="environment",
            delivery=DeliveryEvidence.DELIVERED,
            failure=Failure(
                failure_reason="the server asked for no record", terminal=False, failure_kind=keys.KILL_SHAPED
            ),
        )
    record = RolloutFailureRecord.model_validate(json.loads(delivery.record)[keys.FAILURE_RECORD])
    return record.model_copy(update={"run_id": run_id})


def strictly_decoded(body: bytes) -> Any:
    """The JSON value of a reply; a bare NaN is refused, numbers of any size are not."""
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return json.loads(body, parse_constant=_refuse_constant)


def _refuse_constant(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


_NOBODY = EnvironmentServer("", "", "")
"""Stands for the server in a failure row whose stamps are not shown."""

"""The typed record accepts what the protocol allows and nothing else."""

import json
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from gym_ray.outcomes.failure_record import FAILURE_KINDS, RolloutFailureRecord, is_failure_kind

FAILURE = {"failure_reason": "server disconnected", "terminal": False, "failure_kind": "transport_peer_drop"}
RECORD: dict[str, Any] = {
    "schema_version": 1,
    "episode_id": {"rollout_id": "r9f2c1-12-1", "attempt": 0},
    "run_id": "r9f2c1",
    "source": "collector",
    "delivery": "possibly_delivered",
    "failure": FAILURE,
    "http_status": None,
    "exception_type": "ServerDisconnectedError",
}


def read(value: dict[str, Any]) -> RolloutFailureRecord:
    from_json = RolloutFailureRecord.model_validate_json(json.dumps(value))
    assert RolloutFailureRecord.model_validate(value) == from_json
    return from_json


def test_a_record_is_written_as_it_was_read() -> None:
    assert json.loads(read(RECORD).to_json()) == RECORD
    assert b"\n" not in read(RECORD).to_json()
    staged = RECORD | {"failure": FAILURE | {"stage": "agent"}, "http_status": 504}
    assert json.loads(read(staged).to_json()) == staged


def test_a_missing_version_is_the_first_and_missing_facts_are_null() -> None:
    kept = ("episode_id", "run_id", "source", "delivery", "failure")
    record = read({key: RECORD[key] for key in kept})
    assert (record.schema_version, record.http_status, record.exception_type) == (1, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": "1"},
        {"schema_version": None},
        {"more": 1},
        {"run_id": ""},
        {"run_id": None},
        {"source": "server"},
        {"source": "environment"},
        {"source": "environment", "delivery": "not_sent"},
        {"delivery": "unknown"},
        {"http_status": 99},
        {"http_status": 600},
        {"http_status": True},
        {"http_status": "500"},
        {"exception_type": "x" * 2001},
        {"exception_type": 5},
        {"episode_id": {"rollout_id": "a-a2", "attempt": 0}},
        {"episode_id": {"rollout_id": "a b", "attempt": 0}},
        {"episode_id": {"rollout_id": "", "attempt": 0}},
        {"episode_id": {"rollout_id": "a", "attempt": -1}},
        {"episode_id": {"rollout_id": "a", "attempt": True}},
        {"episode_id": {"rollout_id": "a", "attempt": 1.0}},
        {"episode_id": {"rollout_id": "a"}},
        {"episode_id": {"rollout_id": "a", "attempt": 0, "more": 1}},
        {"failure": FAILURE | {"failure_reason": "x" * 2001}},
        {"failure": FAILURE | {"failure_reason": None}},
        {"failure": FAILURE | {"terminal": 1}},
        {"failure": FAILURE | {"terminal": "false"}},
        {"failure": FAILURE | {"failure_kind": "No Name"}},
        {"failure": FAILURE | {"failure_kind": "a:b:c"}},
        {"failure": FAILURE | {"stage": "teatime"}},
        {"failure": FAILURE | {"reward": 0.0}},
        {"failure": {"failure_reason": "x"}},
        {"failure": {"terminal": True}},
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RolloutFailureRecord.model_validate(RECORD | change)
    with pytest.raises(ValidationError):
        RolloutFailureRecord.model_validate_json(json.dumps(RECORD | change))


@pytest.mark.parametrize("kind", [*sorted(FAILURE_KINDS), "odd", "mine:odd_1"])
def test_every_name_is_a_kind_registered_or_not(kind: str) -> None:
    assert is_failure_kind(kind)
    assert read(RECORD | {"failure": FAILURE | {"failure_kind": kind}}).failure.failure_kind == kind


def test_an_environment_reports_what_was_delivered() -> None:
    assert read(RECORD | {"source": "environment", "delivery": "delivered"}).source == "environment"


def test_a_record_does_not_change() -> None:
    with pytest.raises(ValidationError):
        read(RECORD).run_id = "other"  # type: ignore[misc]


def test_a_record_crosses_processes_and_may_stand_in_a_set() -> None:
    record = read(RECORD)
    assert pickle.loads(pickle.dumps(record)) == record
    assert len({record, read(RECORD)}) == 1

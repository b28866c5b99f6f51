"""A rollout, its server and what came back, for tests of `judge`."""

import json
from typing import Any

from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.identity import RowIdentity, read_identity
from gym_ray.outcomes.judge import judge
from gym_ray.outcomes.outcome import Outcome
from gym_ray.outcomes.reply import Answered, Delivery, Unanswered

SERVER = EnvironmentServer("maze_env", "legacy_agent", "http://h:1")
URL = "http://h:1/run"
RUN = "run7"
TASK_ID = {"taskset": "maze:eval", "task_id": "m-1"}


def flat(**more: Any) -> RowIdentity:
    row = {"_ng_task_index": 12, "_ng_rollout_index": 1, "agent_ref": {"name": "maze_agent"}, "task_source": "maze"}
    return read_identity(json.dumps(row | more).encode())


def materialized(**more: Any) -> RowIdentity:
    return flat(task_id=TASK_ID, task_input={}, **more)


FLAT, MATERIALIZED = flat(), materialized()
STAMPS = {
    "_ng_task_index": 12,
    "_ng_rollout_index": 1,
    "agent_ref": {"name": "maze_agent"},
    "task_source": "maze",
    "_ng_environment_server": "maze_env",
    "_ng_result_type": "legacy_agent",
}


def of_body(
    body: bytes, identity: RowIdentity = FLAT, *, attempt: int = 0, status: int = 200, sends: int = 1, tries: int = 1
) -> Outcome:
    return judge(identity, attempt, SERVER, Answered(status, body, URL, sends, tries), RUN)


def of(reply: Any, identity: RowIdentity = FLAT, *, attempt: int = 0) -> Outcome:
    return of_body(json.dumps(reply).encode(), identity, attempt=attempt)


def of_silence(kind: str = "transport_unreachable", *, identity: RowIdentity = FLAT, **more: Any) -> Outcome:
    facts: dict[str, Any] = {"delivery": Delivery.NOT_SENT, "exception_type": "ClientConnectorError", "message": "no"}
    return judge(identity, 0, SERVER, Unanswered(failure_kind=kind, url=URL, **(facts | more)), RUN)


def of_episode(*, attempt: int = 0, identity: RowIdentity = MATERIALIZED, **parts: Any) -> Outcome:
    reply = {"episode_id": {"rollout_id": "12-1", "attempt": attempt}, "task_id": TASK_ID, **parts}
    return of(reply, identity, attempt=attempt)


def record(outcome: Outcome) -> dict[str, Any]:
    """The record as any strict reader sees it: one line, one object."""
    assert outcome.record.endswith(b"\n")
    assert outcome.record.count(b"\n") == 1
    assert b"\r" not in outcome.record  # readers with universal newlines end a line there
    value = json.loads(outcome.record, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


def refuse(literal: str) -> None:
    """For `parse_constant`: NaN and Infinity are not JSON."""
    raise AssertionError(f"{literal} in a record")

"""Reply -> outcome: what one attempt means, and the line that is kept of it.

Rules (protocol §2.3-2.6, §6.6, §7.3, §7.5):
    no whole reply                         failure, class agent_request_failed
    status 429, 502, 503, 504              failure, class agent_request_failed: the server did not run it
    any other status but 2xx               failure, class agent_run_error: it ran and broke
    2xx, body not a JSON object            failure, class agent_run_error
    `_ng_no_persist` true                  omitted
    `_ng_failure_class` not null           failure, the reply's own fields are kept
    reward not a finite number             failure, class agent_run_error (absent is fine: unscored)
    echo of another rollout or attempt     failure, class agent_run_error (stale)
    episode reply with a failure           failure, class environment_server_failed
    anything else                          result
"""

import math
from collections.abc import Mapping
from functools import lru_cache

import msgspec
import orjson

from gym_ray import keys
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.identity import ABSENT, RowIdentity
from gym_ray.outcomes.envelope import BadBody, one_line, read_envelope, rebuild, splice
from gym_ray.outcomes.outcome import Outcome, OutcomeKind
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered

MAX_TEXT = 2_000
NOT_RUN = frozenset({429, 502, 503, 504})
_ECHO_KEYS = (keys.TASK_INDEX, keys.ROLLOUT_INDEX, keys.ATTEMPT_INDEX)
_ECHOES = frozenset(_ECHO_KEYS)
_RESERVED = frozenset({keys.TRAJECTORY, keys.MODEL_CALL_CAPTURE, keys.PERF})

Fields = Mapping[str, bytes | msgspec.Raw]


class _Unusable(ValueError):
    """A reply with the right syntax and the wrong content."""


def judge(identity: RowIdentity, attempt: int, server: EnvironmentServer, reply: Reply, run_id: str) -> Outcome:
    """The outcome of one attempt; never raises for what a server sent."""
    if isinstance(reply, Unanswered):
        return _unanswered(identity, attempt, server, reply, run_id)
    if not 200 <= reply.status < 300:
        failure_class = keys.AGENT_REQUEST_FAILED if reply.status in NOT_RUN else keys.AGENT_RUN_ERROR
        message = f"{reply.status}, url={reply.url!r}"
        return _failed(identity, attempt, server, run_id, failure_class, "HTTPError", message, reply=reply)
    try:
        body = one_line(reply.body)
        fields = read_envelope(body)
        if identity.is_materialized:
            return _episode(identity, attempt, server, fields)
        _check_echo(identity, attempt, fields)
        return _settled(identity, attempt, server, body, fields)
    except (BadBody, _Unusable) as error:
        kind = "InvalidRolloutResult" if isinstance(error, _Unusable) else "BadBody"
        return _failed(identity, attempt, server, run_id, keys.AGENT_RUN_ERROR, kind, str(error), reply=reply)


def lost(
    identity: RowIdentity, attempt: int, server: EnvironmentServer, reason: str, delivery: Delivery, run_id: str
) -> Outcome:
    """The outcome of an attempt whose shard died before it could say anything."""
    reply = Unanswered(delivery, keys.TRANSPORT_PEER_DROP, "ShardLost", reason[:MAX_TEXT], server.base_url)
    return _unanswered(identity, attempt, server, reply, run_id)


def internal_fault(
    identity: RowIdentity, attempt: int, server: EnvironmentServer, error: BaseException, run_id: str
) -> Outcome:
    """The outcome of an attempt in which gym_ray itself went wrong."""
    message = str(error) or repr(error)
    return _failed(identity, attempt, server, run_id, keys.AGENT_RUN_ERROR, type(error).__name__, message)


def stamps_of(identity: RowIdentity, attempt: int, server: EnvironmentServer) -> dict[str, bytes]:
    """The identity stamps of a record as JSON values (protocol §8.6 step 2)."""
    stamps: dict[str, bytes] = {}
    if identity.task_index is not None:
        stamps[keys.TASK_INDEX] = b"%d" % identity.task_index
    if identity.rollout_index is not None:
        stamps[keys.ROLLOUT_INDEX] = b"%d" % identity.rollout_index
    for key, raw in (
        (keys.AGENT_REF, identity.agent_ref),
        (keys.TASK_SOURCE, identity.task_source),
        (keys.SKILLS_REF, identity.skills_ref),
    ):
        if raw is not ABSENT:
            stamps[key] = bytes(raw)
    if attempt > 0:
        stamps[keys.ATTEMPT_INDEX] = b"%d" % attempt
    if identity.explicit_id is not None:
        stamps[keys.ROLLOUT_ID] = orjson.dumps(identity.explicit_id)
    stamps[keys.ENVIRONMENT_SERVER] = _quoted(server.name)
    stamps[keys.RESULT_TYPE] = _quoted(server.result_type)
    return stamps


@lru_cache(1024)
def _quoted(text: str) -> bytes:
    return orjson.dumps(text)


def _settled(
    identity: RowIdentity, attempt: int, server: EnvironmentServer, body: bytes | None, fields: Fields
) -> Outcome:
    """The outcome of a reply object; `body` is the same object as bytes, if it may be spliced."""
    if _truth(fields.get(keys.NO_PERSIST)):
        return Outcome(OutcomeKind.OMITTED, b"", failure_class=_text(fields.get(keys.FAILURE_CLASS)))
    failure_class = _text(fields.get(keys.FAILURE_CLASS))
    reward = None if failure_class is not None and keys.REWARD not in fields else _reward(fields)
    stamps = stamps_of(identity, attempt, server)
    if body is None or not stamps.keys().isdisjoint(fields):
        record, reply_bytes = rebuild(fields, stamps), 0
    else:
        record, reply_bytes = splice(body, stamps, is_empty=not fields), len(body) - 1
    if failure_class is not None:
        return Outcome(
            OutcomeKind.FAILURE,
            record,
            failure_class=failure_class,
            terminal=_truth(fields.get(keys.FAILURE_TERMINAL)),
            reply_bytes=reply_bytes,
        )
    masked = _truth(fields.get(keys.MASK_SAMPLE))
    return Outcome(OutcomeKind.RESULT, record, reward=reward, masked=masked, reply_bytes=reply_bytes)


def _episode(identity: RowIdentity, attempt: int, server: EnvironmentServer, fields: Fields) -> Outcome:
    """The outcome of an episode reply: its result or failure, projected as protocol §2.5 says."""
    episode = _value(fields.get(keys.EPISODE_ID))
    asked = {keys.EPISODE_ROLLOUT_ID: identity.own_id, keys.EPISODE_ATTEMPT: attempt}
    if episode != asked:
        raise _Unusable(f"the reply is for episode {episode!r}, asked was {asked!r}")
    if _value(fields.get(keys.TASK_ID)) != _value(identity.task_id):
        raise _Unusable("the reply is for another task_id")
    result, failure = fields.get(keys.RESULT), fields.get(keys.FAILURE)
    if _is_null(result) == _is_null(failure):
        raise _Unusable("an episode reply holds exactly one of result and failure")
    task_id = bytes(identity.task_id)
    if result is not None and not _is_null(result):
        inner = read_envelope(one_line(bytes(result)))
        if reserved := sorted(key for key in inner if key.startswith(keys.NG_PREFIX) or key in _RESERVED):
            raise _Unusable(f"the result uses keys that are reserved for the collector: {', '.join(reserved)}")
        return _settled(identity, attempt, server, None, {**inner, keys.NG_TASK_ID: task_id})
    report = _value(failure)
    if not isinstance(report, dict):
        raise _Unusable("the failure of an episode reply is not an object")
    terminal = report.get(keys.TERMINAL) is True
    row = {
        keys.FAILURE_CLASS: keys.ENVIRONMENT_SERVER_FAILED,
        keys.FAILURE_TERMINAL: terminal,
        keys.FAILURE_MESSAGE: _bounded(str(report.get(keys.FAILURE_REASON, ""))),
        keys.FAILURE_KIND: report.get(keys.FAILURE_KIND),
        keys.FAILURE_STAGE: report.get(keys.STAGE),
        keys.FAILURE_PARTIAL_RESPONSE: report.get(keys.PARTIAL_RESPONSE),
    }
    kept = {key: msgspec.json.encode(value) for key, value in row.items() if value is not None}
    line = rebuild({keys.NG_TASK_ID: task_id, **kept}, stamps_of(identity, attempt, server))
    return Outcome(OutcomeKind.FAILURE, line, failure_class=keys.ENVIRONMENT_SERVER_FAILED, terminal=terminal)


def _unanswered(
    identity: RowIdentity, attempt: int, server: EnvironmentServer, reply: Unanswered, run_id: str
) -> Outcome:
    failure_class = keys.AGENT_REQUEST_FAILED if reply.status is None else keys.AGENT_RUN_ERROR
    return _failed(
        identity, attempt, server, run_id, failure_class, reply.exception_type, reply.message,
        status=reply.status, kind=reply.failure_kind, delivery=reply.delivery, sends=reply.sends,
    )  # fmt: skip


def _failed(
    identity: RowIdentity,
    attempt: int,
    server: EnvironmentServer,
    run_id: str,
    failure_class: str,
    exception_type: str,
    message: str,
    *,
    reply: Answered | None = None,
    status: int | None = None,
    kind: str | None = None,
    delivery: Delivery = Delivery.DELIVERED,
    sends: int = 0,
) -> Outcome:
    """A failure that the runner observed, with the legacy keys and the typed record (protocol §6.6, §7.5)."""
    text = None
    if reply is not None:
        status, sends = reply.status, reply.sends
        text = _bounded(reply.body[: 4 * MAX_TEXT + 4].decode("utf-8", "replace")) if reply.body else None
        if status in NOT_RUN:
            delivery = Delivery.POSSIBLY_DELIVERED
    typed = {
        "schema_version": 1,
        "episode_id": {"rollout_id": identity.own_id or "unknown", "attempt": attempt},
        "run_id": run_id,
        "source": "collector",
        "delivery": str(delivery),
        "failure": {"failure_reason": _bounded(message), "terminal": False, "failure_kind": kind or failure_class},
        "http_status": status,
        "exception_type": exception_type,
    }
    row = {
        keys.FAILURE_CLASS: failure_class,
        keys.FAILURE_TYPE: exception_type,
        keys.FAILURE_MESSAGE: _bounded(message),
        keys.FAILURE_HTTP_STATUS: status,
        keys.FAILURE_RESPONSE_BODY: text,
        keys.FAILURE_SENDS: sends,
        keys.FAILURE_RECORD: typed,
    }
    fields = {key: msgspec.json.encode(value) for key, value in row.items()}
    line = rebuild(fields, stamps_of(identity, attempt, server))
    return Outcome(OutcomeKind.FAILURE, line, failure_class=failure_class)


def _check_echo(identity: RowIdentity, attempt: int, fields: Fields) -> None:
    if _ECHOES.isdisjoint(fields):
        return
    expected = (identity.task_index, identity.rollout_index, attempt)
    for key, own in zip(_ECHO_KEYS, expected, strict=True):
        if key in fields and (echo := _value(fields[key])) != own:
            raise _Unusable(f"the reply is stale: its {key} is {echo!r}, asked was {own!r}")


def _reward(fields: Fields) -> float | None:
    raw = fields.get(keys.REWARD)
    if raw is None:
        return None
    value = _value(raw)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Unusable(f"reward must be a finite number, found {bytes(raw)[:80].decode('utf-8', 'replace')}")
    return float(value)


def _value(raw: bytes | msgspec.Raw | None) -> object:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return bytes(raw)


def _is_null(raw: bytes | msgspec.Raw | None) -> bool:
    return raw is None or bytes(memoryview(raw)[:4]) == b"null"


def _truth(raw: bytes | msgspec.Raw | None) -> bool:
    return raw is not None and bool(_value(raw))


def _text(raw: bytes | msgspec.Raw | None) -> str | None:
    value = _value(raw)
    return None if value is None else str(value)


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"

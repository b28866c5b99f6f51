"""Reply -> outcome: what one attempt means, and the line that is kept of it.

The first rule that fits decides (protocol §2.3-2.6, §6.6, §7.3, §7.5):

    no whole reply                         failure, class agent_request_failed; agent_run_error after a status that runs
    status 429, 502, 503, 504              failure, class agent_request_failed: the server did not run it
    any other status but 2xx               failure, class agent_run_error: it ran and broke
    2xx, body not a JSON object            failure, class agent_run_error
    echo of another rollout or attempt     failure, class agent_run_error (stale); null is no echo
    `_ng_no_persist` true                  omitted
    `_ng_failure_class` not null           failure, the reply's own fields are kept, whatever its reward
    reward not a finite number             failure, class agent_run_error (absent is fine: unscored). Null is none:
                                           servers whose encoder has no NaN write null instead
    anything else                          result

An episode reply must name the episode and the task that were asked for and hold either a result, which is then judged
by the last two rules and must not use keys of the collector, or a failure: class environment_server_failed. Only a
reply with a failure class may come instead of one.

What a server writes is kept as it writes it. Where it echoes an identity stamp, equal values stay and others are
overridden; a request that was sent more than once leaves its count in the record.
"""

import math
from collections.abc import Mapping

import msgspec

from gym_ray import keys
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.identity import ABSENT, RowIdentity
from gym_ray.outcomes.attempt import Attempt
from gym_ray.outcomes.envelope import (
    Envelope,
    Episode,
    Json,
    NotAnObjectError,
    NotJSONError,
    extend,
    one_line,
    read_envelope,
    read_episode,
    read_tokens,
    read_value,
    rebuild,
)
from gym_ray.outcomes.failures import (
    classified_failure,
    episode_failure,
    episode_fields,
    name_class,
    observed_fields,
    reported_record,
)
from gym_ray.outcomes.outcome import Outcome, OutcomeKind
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered
from gym_ray.rows.splicing import members

INTERRUPTIONS = frozenset({keys.CANCELLED, keys.KILL_SHAPED})
"""Classes and kinds of failures that say nothing about the rollout itself."""
NOT_RUN = frozenset({429, 502, 503, 504})
_HTTP_ERROR = "ClientResponseError"
"""As NeMo Gym itself calls a status that is no success."""
_RESERVED = frozenset({keys.TRAJECTORY, keys.MODEL_CALL_CAPTURE, keys.PERF})


class _InvalidError(ValueError):
    """A reply with the right syntax and the wrong content."""


class _StaleError(ValueError):
    """A reply for another rollout or attempt."""


_NAMES: dict[type[Exception], str] = {
    NotJSONError: "JSONDecodeError",
    NotAnObjectError: "InvalidRolloutResult",
    msgspec.ValidationError: "InvalidRolloutResult",
    _InvalidError: "InvalidRolloutResult",
    _StaleError: "StaleRolloutResult",
    RecursionError: "JSONDecodeError",
}
"""What the faults of a reply are called in records."""


def judge(identity: RowIdentity, attempt: int, server: EnvironmentServer, reply: Reply, run_id: str) -> Outcome:
    """The outcome of one attempt; never raises for what a server sent."""
    this = Attempt(identity, attempt, server, run_id)
    if isinstance(reply, Unanswered):
        return _judge_silence(this, reply)
    if not 200 <= reply.status < 300:
        return _judge_status(this, reply)
    try:
        return _judge_episode(this, reply) if identity.is_materialized else _judge_flat(this, reply)
    except tuple(_NAMES) as error:
        name = next(name for kind, name in _NAMES.items() if isinstance(error, kind))
        return _observed(this, keys.AGENT_RUN_ERROR, name, str(error), Delivery.DELIVERED, reply)


def lost(
    identity: RowIdentity, attempt: int, server: EnvironmentServer, reason: str, delivery: Delivery, run_id: str
) -> Outcome:
    """The outcome of an attempt whose shard died before it could say anything."""
    reply = Unanswered(delivery, keys.TRANSPORT_PEER_DROP, "ShardLost", reason, server.base_url)
    return _judge_silence(Attempt(identity, attempt, server, run_id), reply)


def unsent(identity: RowIdentity, attempt: int, server: EnvironmentServer, reason: str, run_id: str) -> Outcome:
    """The outcome of a rollout that is not sent, because its server has been gone for too long."""
    url = server.base_url
    reply = Unanswered(Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE, "ServerUnavailable", reason, url, tries=0)
    return _judge_silence(Attempt(identity, attempt, server, run_id), reply)


def internal_fault(
    identity: RowIdentity, attempt: int, server: EnvironmentServer, error: BaseException, run_id: str
) -> Outcome:
    """The outcome of an attempt in which gym_ray itself went wrong, so that nobody knows how far it came."""
    this = Attempt(identity, attempt, server, run_id)
    name, message = type(error).__name__, str(error) or repr(error)
    return _observed(this, keys.AGENT_RUN_ERROR, name, message, Delivery.POSSIBLY_DELIVERED, None)


def _judge_silence(this: Attempt, reply: Unanswered) -> Outcome:
    is_unrun = reply.status is None or reply.status in NOT_RUN
    failure_class = keys.AGENT_REQUEST_FAILED if is_unrun else keys.AGENT_RUN_ERROR
    return _observed(
        this, failure_class, reply.exception_type, reply.message, reply.delivery, reply, reply.failure_kind
    )


def _judge_status(this: Attempt, reply: Answered) -> Outcome:
    message = f"{reply.status}, url={reply.url!r}"
    if reply.status in NOT_RUN:
        return _observed(this, keys.AGENT_REQUEST_FAILED, _HTTP_ERROR, message, Delivery.POSSIBLY_DELIVERED, reply)
    return _observed(this, keys.AGENT_RUN_ERROR, _HTTP_ERROR, message, Delivery.DELIVERED, reply)


def _judge_flat(this: Attempt, reply: Answered) -> Outcome:
    envelope = read_envelope(reply.body)
    _check_echo(this, envelope)
    failure_class = _read_class(envelope.failure_class)
    if _is_true(envelope.no_persist):
        return Outcome(OutcomeKind.OMITTED, b"", failure_class=failure_class)
    body, stamps = one_line(reply.body), this.stamps(reply.sends)
    if failure_class is None:
        reward = _read_reward(envelope.reward)
        record, reply_bytes = _stamp(body, envelope, stamps)
        masked = _is_true(envelope.mask_sample) or _masks_inside(envelope.instance_config)
        return Outcome(
            OutcomeKind.RESULT,
            record,
            reward,
            masked,
            tokens=envelope.tokens,
            has_observations=envelope.agent_observations is not ABSENT,
            reply_bytes=reply_bytes,
        )
    terminal = _is_true(envelope.failure_terminal)
    failure = classified_failure(members(body), failure_class, terminal)
    stamps |= reported_record(this, failure, reply.status)
    record, reply_bytes = _stamp(body, envelope, stamps)
    return Outcome(
        OutcomeKind.FAILURE,
        record,
        failure_class=failure_class,
        terminal=terminal,
        is_interruption=failure_class in INTERRUPTIONS or failure.failure_kind in INTERRUPTIONS,
        has_observations=envelope.agent_observations is not ABSENT,
        reply_bytes=reply_bytes,
    )


def _judge_episode(this: Attempt, reply: Answered) -> Outcome:
    """The outcome of an episode reply, projected as protocol §2.5 says."""
    episode = read_episode(reply.body)
    if b"\n" in reply.body or b"\r" in reply.body:
        # Its values are put into a line of their own. Validated first: in a string a raw line break is an error
        episode = read_episode(one_line(reply.body))
    if episode == Episode():
        envelope = read_envelope(reply.body)
        if _read_class(envelope.failure_class) is not None or _is_true(envelope.no_persist):
            return _judge_flat(this, reply)
    _check_episode(this, episode)
    stamps = {keys.NG_TASK_ID: bytes(this.identity.task_id), **this.stamps(reply.sends)}
    if episode.result is not None and episode.failure is None:
        return _judge_result(episode.result, stamps)
    if episode.failure is not None and episode.result is None:
        failure = episode_failure(episode.failure)
        fields = episode_fields(episode.failure, failure) | reported_record(this, failure, reply.status)
        record = rebuild(fields, stamps)
        failure_class = keys.ENVIRONMENT_SERVER_FAILED
        return Outcome(
            OutcomeKind.FAILURE,
            record,
            failure_class=failure_class,
            terminal=failure.terminal,
            is_interruption=failure.failure_kind in INTERRUPTIONS,
        )
    raise _InvalidError("an episode reply holds exactly one of result and failure")


def _judge_result(result: Mapping[str, Json], stamps: Mapping[str, bytes]) -> Outcome:
    """The outcome of the result of an episode."""
    if reserved := sorted(key for key in result if key.startswith(keys.NG_PREFIX) or key in _RESERVED):
        raise _InvalidError(f"the result uses keys that are reserved for the collector: {', '.join(reserved)}")
    reward = _read_reward(result.get(keys.REWARD, ABSENT))
    config = result.get(keys.INSTANCE_CONFIG, ABSENT)
    masked = _is_true(result.get(keys.MASK_SAMPLE, ABSENT)) or _masks_inside(config)
    tokens = read_tokens(result.get(keys.RESPONSE, ABSENT))
    record, is_observed = rebuild(result, stamps), keys.AGENT_OBSERVATIONS in result
    return Outcome(OutcomeKind.RESULT, record, reward, masked, tokens=tokens, has_observations=is_observed)


def _observed(
    this: Attempt,
    failure_class: str,
    exception_type: str,
    message: str,
    delivery: Delivery,
    reply: Reply | None,
    kind: str | None = None,
) -> Outcome:
    """A failure that the runner saw; its kind is its class unless another is given."""
    fields = observed_fields(this, failure_class, kind or failure_class, exception_type, message, delivery, reply)
    record, is_unsent = rebuild(fields, this.stamps()), delivery is Delivery.NOT_SENT
    return Outcome(OutcomeKind.FAILURE, record, failure_class=failure_class, is_interruption=is_unsent)


def _stamp(body: bytes, envelope: Envelope, stamps: Mapping[str, bytes]) -> tuple[bytes, int]:
    """The record of a flat reply, and how much of it is the reply itself (0 where stamps override it)."""
    missing: dict[str, bytes] = {}
    for key, value in stamps.items():
        own = envelope.written(key)
        if own is ABSENT:
            missing[key] = value
        elif bytes(own) != value and read_value(own) != read_value(value):
            return rebuild(members(body), stamps), 0
    return extend(body, missing)


def _check_echo(this: Attempt, envelope: Envelope) -> None:
    for key, asked, raw in (
        (keys.TASK_INDEX, this.identity.task_index, envelope.task_index),
        (keys.ROLLOUT_INDEX, this.identity.rollout_index, envelope.rollout_index),
        (keys.ATTEMPT_INDEX, this.number, envelope.attempt_index),
    ):
        if raw is ABSENT or asked is None:
            continue
        echo = read_value(raw)
        if echo is not None and not _is_count(echo, asked):
            raise _StaleError(f"the reply is for another attempt: its {key} is {_show(raw)}, asked was {asked}")


def _check_episode(this: Attempt, reply: Episode) -> None:
    episode = read_value(reply.episode_id) if reply.episode_id is not ABSENT else None
    if not isinstance(episode, dict) or not {keys.EPISODE_ROLLOUT_ID, keys.EPISODE_ATTEMPT} <= episode.keys():
        raise _InvalidError("an episode reply needs an episode_id with rollout_id and attempt")
    own_id = this.identity.own_id
    if episode[keys.EPISODE_ROLLOUT_ID] != own_id or not _is_count(episode[keys.EPISODE_ATTEMPT], this.number):
        found = _show(reply.episode_id)
        asked = f"rollout {own_id}, attempt {this.number}"
        raise _StaleError(f"the reply is for another attempt: its episode_id is {found}, asked was {asked}")
    if reply.task_id is ABSENT or read_value(reply.task_id) != read_value(this.identity.task_id):
        raise _InvalidError("the reply is for another task_id")


def _read_class(raw: Json) -> str | None:
    return None if raw is ABSENT else name_class(raw)


def _read_reward(raw: Json) -> float | None:
    if raw is ABSENT:
        return None
    value = read_value(raw)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            reward = float(value)
        except OverflowError:
            reward = math.inf
        if math.isfinite(reward):
            return reward
    raise _InvalidError(f"reward must be a finite number, found {_show(raw)}")


def _is_true(raw: Json) -> bool:
    return raw is not ABSENT and bool(read_value(raw))


def _masks_inside(config: Json) -> bool:
    """True for an `instance_config` that masks its sample, which is where some environments say so."""
    if config is ABSENT or bytes(memoryview(config)[:1]) != b"{":
        return False
    value = read_value(config)
    return bool(value.get(keys.MASK_SAMPLE))


def _is_count(value: object, count: int) -> bool:
    return not isinstance(value, bool) and value == count


def _show(raw: Json) -> str:
    return bytes(memoryview(raw)[:80]).decode("utf-8", "replace")

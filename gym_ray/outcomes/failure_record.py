"""`RolloutFailureRecord`: what is known about a failed attempt, typed, for callers and for readers of sidecars.

Records are immutable, refuse unknown keys, hold no text above 2,000 characters, and never a reward.
Source: protocol §7.5; the failure object: §2.4.
"""

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StrictInt,
    StrictStr,
    StringConstraints,
    model_serializer,
    model_validator,
)

from gym_ray import keys
from gym_ray.identity import ends_in_attempt_suffix, is_rollout_id
from gym_ray.outcomes.reply import Delivery
from gym_ray.outcomes.text import MAX_TEXT

FAILURE_KINDS = frozenset(
    {
        keys.TRANSPORT_UNREACHABLE,
        keys.TRANSPORT_PEER_DROP,
        keys.TRANSPORT_TIMEOUT,
        keys.TRANSPORT_LOCAL_RESOURCE,
        keys.AGENT_RUN_ERROR,
        keys.AGENT_REQUEST_FAILED,
        keys.CANCELLED,
        keys.KILL_SHAPED,
        "agent_timeout",
        "agent_command_not_allowed",
        "judge_failed",
        "judge_unparseable",
        "verifier_error",
        "provider_unavailable",
        "provider_quota_exhausted",
        "provider_oom_killed",
        "session_lost",
        "session_expired",
        "session_release_failed",
        "shutdown",
        "persistence_failed",
        "cohort_incomplete",
    }
)
"""The registered names. Others are kept; a class of failures becomes a kind only if it is one of these."""

_KIND = re.compile(r"[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*)?")
"""Source: protocol §0.2."""

Source = Literal["environment", "collector"]
"""Who reported a failure, which is not where it happened."""
Stage = Literal["admission", "seed", "agent", "verification", "cleanup"]
"""Where in an episode it happened."""
STAGES: dict[str, Stage] = {stage: stage for stage in get_args(Stage)}


def is_failure_kind(name: str) -> bool:
    """True if `name` can name a kind, registered or not."""
    return _KIND.fullmatch(name) is not None


def is_episode_id(own_id: str) -> bool:
    """True if `own_id` can name an episode (protocol §0.2)."""
    return is_rollout_id(own_id) and not ends_in_attempt_suffix(own_id)


def _check_id(own_id: str) -> str:
    if not is_episode_id(own_id):
        raise ValueError(f"expected a rollout id without an attempt suffix, found {own_id!r}")
    return own_id


def _check_kind(name: str) -> str:
    if not is_failure_kind(name):
        raise ValueError(f"expected a name of a failure kind, found {name!r}")
    return name


Text = Annotated[StrictStr, StringConstraints(max_length=MAX_TEXT)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EpisodeId(_Frozen):
    """One attempt of one rollout."""

    rollout_id: Annotated[StrictStr, AfterValidator(_check_id)]
    attempt: StrictInt = Field(ge=0)


class Failure(_Frozen):
    """The failure itself; kind and stage are left out of the JSON where nothing is known."""

    failure_reason: Text
    terminal: bool = Field(strict=True)
    failure_kind: Annotated[Text, AfterValidator(_check_kind)] | None = None
    stage: Stage | None = None

    @model_serializer(mode="wrap")
    def _without_unknowns(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {key: value for key, value in values.items() if value is not None}


class RolloutFailureRecord(_Frozen):
    """What is known about one failed attempt."""

    schema_version: Literal[1] = 1
    episode_id: EpisodeId
    run_id: Annotated[StrictStr, StringConstraints(min_length=1)]
    source: Source
    delivery: Delivery
    failure: Failure
    http_status: Annotated[StrictInt, Field(ge=100, le=599)] | None = None
    exception_type: Text | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.source == "environment" and self.delivery is not Delivery.DELIVERED:
            raise ValueError(f"a failure that the environment reported was delivered, found {self.delivery}")
        return self

    def to_json(self) -> bytes:
        """The record as one JSON object."""
        return self.model_dump_json().encode()

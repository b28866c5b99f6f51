"""The typed record of a failed rollout: what programs get instead of an exception. Source: protocol §7.5."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from gym_ray import keys
from gym_ray.outcomes.reply import Delivery

Text = Annotated[str, StringConstraints(max_length=2_000)]


class EpisodeId(BaseModel):
    """One attempt of a rollout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout_id: Annotated[str, StringConstraints(min_length=1)]
    attempt: Annotated[int, Field(ge=0, strict=True)]


class RolloutFailure(BaseModel):
    """What went wrong, as its source says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failure_reason: Text
    terminal: bool
    """No further attempt will end otherwise."""
    failure_kind: str | None = None
    stage: Literal["admission", "seed", "agent", "verification", "cleanup"] | None = None


class RolloutFailureRecord(BaseModel):
    """How one attempt failed, who says so, and whether its request arrived. Immutable; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    episode_id: EpisodeId
    run_id: Annotated[str, StringConstraints(min_length=1)]
    source: Literal["environment", "collector"]
    """Who reported it, which is not where it happened."""
    delivery: Delivery
    failure: RolloutFailure
    http_status: Annotated[int, Field(ge=100, le=599)] | None = None
    exception_type: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.source == "environment" and self.delivery is not Delivery.DELIVERED:
            raise ValueError("what an environment reports was delivered")
        return self

    @classmethod
    def of_row(cls, row: Mapping[str, Any], episode_id: EpisodeId, run_id: str) -> Self:
        """The record of a sidecar row: the one that it holds, else one made from its `_ng_failure_*` facts."""
        if isinstance(held := row.get(keys.FAILURE_RECORD), Mapping):
            return cls.model_validate(held)
        failure_class = str(row[keys.FAILURE_CLASS])
        reason = row.get(keys.FAILURE_MESSAGE) or row.get(keys.FAILURE_REASON) or failure_class
        return cls(
            episode_id=episode_id,
            run_id=run_id,
            source="environment",
            delivery=Delivery.DELIVERED,
            failure=RolloutFailure(
                failure_reason=str(reason)[:2_000],
                terminal=row.get(keys.FAILURE_TERMINAL) is True,
                failure_kind=str(row.get(keys.FAILURE_KIND) or failure_class),
                stage=row.get(keys.FAILURE_STAGE),
            ),
        )

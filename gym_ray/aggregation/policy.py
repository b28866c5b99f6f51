"""What counts in the score of a run that has failures or gaps, and whether there may be a score at all. Pure.

Source: protocol §7.8 (completion), §7.9 (zeros).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gym_ray import keys
from gym_ray.errors import GymRayError, IncompleteRunError


class StuckRunError(GymRayError, RuntimeError):
    """A strict run is unfinished, and running it again would not finish it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user decides about failures and gaps."""

    zero_classes: tuple[str, ...] = ()
    """Rollouts whose last failure has one of these classes count with a reward of 0."""
    missing_as_zero: bool = False
    """Rollouts without any record count with a reward of 0."""
    require_complete: bool = False
    """An unfinished run publishes no score."""
    min_coverage: float | None = None
    """A run with at least this share of results ends well, though it is not complete."""


def counts_as_zero(failure: Mapping[str, Any], policy: Policy) -> bool:
    """True for the deciding failure row of a rollout that is scored all the same."""
    return bool(failure.get(keys.FAILURE_COUNTS_AS_ZERO)) or failure.get(keys.FAILURE_CLASS) in policy.zero_classes


def zero_of_failure(failure: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a failure row that only metrics see: without what tells of the failure, with a reward."""
    kept = {
        key: value
        for key, value in failure.items()
        if not key.startswith(keys.FAILURE_PREFIX) and key not in (keys.FAILURE_KIND, keys.FAILURE_REASON)
    }
    reward = kept.get(keys.REWARD)
    is_scored = isinstance(reward, int | float) and not isinstance(reward, bool)
    return {**kept, keys.MASK_SAMPLE: False, keys.REWARD: reward if is_scored else 0.0}


def zero_of_missing(row: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for a planned rollout without any record; `row` is its materialized row."""
    kept = (keys.TASK_INDEX, keys.ROLLOUT_INDEX, keys.AGENT_REF, keys.ENVIRONMENT_SERVER)
    return {**{key: row[key] for key in kept if key in row}, keys.REWARD: 0.0}


def with_dataset_fields(zero: Mapping[str, Any], row: Mapping[str, Any], carried: Iterable[str]) -> dict[str, Any]:
    """The same with the fields of its task that real records of its group carry (`carried`)."""
    fields = {
        key: row[key]
        for key in carried
        if key in row
        and key not in zero
        and not key.startswith("_")
        and key not in (keys.RESPONSES_CREATE_PARAMS, keys.RESPONSE)
    }
    return {**zero, **fields}


def completion_rejection(
    *, expected: int, completed: int, can_retry: bool, made_progress: bool, final_zero_rows: int = 0
) -> GymRayError | None:
    """The error that keeps a strict run from having a score, or None.

    Args:
        completed: rollouts with a result.
        can_retry: a further invocation would run something.
        made_progress: this invocation saved outcomes, interruptions aside.
        final_zero_rows: failures that settle their rollout as a zero; leave it 0 if `completed` counts them.
    """
    unfinished = expected - completed - final_zero_rows
    if unfinished <= 0:
        return None
    what = f"{unfinished} of {expected} rollouts have neither a result nor a scored zero"
    if can_retry and made_progress:
        return IncompleteRunError(f"{what}: no score was computed; the same command with --resume continues the run")
    if can_retry:
        return StuckRunError(f"{what}, and this invocation brought none of them further: no score was computed")
    if completed + final_zero_rows > 0:
        return None  # what is left will never come; the completed ones are tolerated to stand for the run
    return StuckRunError(f"{what}, and none can be run again: there is nothing to score")

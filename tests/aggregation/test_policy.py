"""What counts as zero, and when a strict run has a score."""

import pytest

from gym_ray.aggregation.policy import (
    Policy,
    StuckRunError,
    completion_rejection,
    counts_as_zero,
    with_dataset_fields,
    zero_of_failure,
    zero_of_missing,
)
from gym_ray.errors import IncompleteRunError


@pytest.mark.parametrize(
    ("completed", "zeros", "can_retry", "made_progress", "error"),
    [
        (10, 0, True, True, None),
        (8, 2, True, True, None),
        (9, 0, True, True, IncompleteRunError),
        (0, 0, True, True, IncompleteRunError),
        (9, 0, True, False, StuckRunError),
        (9, 0, False, True, None),
        (9, 0, False, False, None),
        (0, 1, False, False, None),
        (0, 0, False, True, StuckRunError),
    ],
)
def test_a_strict_run_has_a_score_or_says_why_not(
    completed: int, zeros: int, can_retry: bool, made_progress: bool, error: type[Exception] | None
) -> None:
    found = completion_rejection(
        expected=10, completed=completed, can_retry=can_retry, made_progress=made_progress, final_zero_rows=zeros
    )
    assert found is None if error is None else type(found) is error


def test_both_facts_of_the_driver_must_be_given() -> None:
    with pytest.raises(TypeError):
        completion_rejection(expected=1, completed=0)  # type: ignore[call-arg]


def test_a_failure_counts_as_zero_by_its_own_word_or_by_its_class() -> None:
    policy = Policy(zero_classes=("agent_timeout",))
    assert counts_as_zero({"_ng_failure_class": "agent_timeout"}, policy)
    assert counts_as_zero({"_ng_failure_class": "other", "_ng_failure_counts_as_zero": True}, Policy())
    assert not counts_as_zero({"_ng_failure_class": "other"}, policy)


def test_a_zero_has_a_reward_and_nothing_that_tells_of_the_failure() -> None:
    failure = {
        "_ng_task_index": 1, "_ng_failure_class": "c", "_ng_failure_record": {}, "failure_kind": "k",
        "failure_reason": "r", "mask_sample": True, "steps": 3,
    }  # fmt: skip
    assert zero_of_failure(failure) == {"_ng_task_index": 1, "steps": 3, "mask_sample": False, "reward": 0.0}
    assert zero_of_failure({**failure, "reward": 0.25})["reward"] == 0.25
    assert zero_of_failure({**failure, "reward": None})["reward"] == 0.0
    row = {"_ng_task_index": 1, "_ng_rollout_index": 2, "agent_ref": {"name": "a"}, "x": 1}
    assert zero_of_missing(row) == {key: row[key] for key in row if key != "x"} | {"reward": 0.0}


def test_fields_of_the_task_are_added_only_where_real_records_have_them() -> None:
    row = {"difficulty": 3, "unused": 1, "_private": 1, "responses_create_params": {}, "reward": 9}
    carried = ["difficulty", "_private", "responses_create_params", "reward", "absent"]
    assert with_dataset_fields({"reward": 0.0}, row, carried) == {"reward": 0.0, "difficulty": 3}

"""Word problems: answers are checked as numbers, and a rollout always ends the same way."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gym_ray.example.arithmetic import ArithmeticEnvironment, scripted_answer
from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.model import Disposition, disposition
from gym_ray.example.number_text import agree, read_answer

_PROMPT = {"input": "How many?"}
_chance = st.floats(0, 1, exclude_max=True)


def _play(task: int, rollout: int, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    episode = ArithmeticEnvironment().open(_PROMPT, {"expected_answer": "116.20", "steps": 3, **fields})
    return episode.play(AttemptIdentity(task, rollout, attempt))


@given(
    expected=st.fractions(min_value=-5000, max_value=500_000, max_denominator=100),
    errs=st.booleans(),
    manner=_chance,
    place=_chance,
    style=_chance,
)
def test_a_reward_says_whether_the_model_erred(
    expected: Fraction, errs: bool, manner: float, place: float, style: float
) -> None:
    answer = read_answer(scripted_answer(expected, Disposition(errs, manner, place, style)))
    assert (answer is not None and agree(answer, expected)) is not errs


def test_a_rollout_ends_the_same_way_in_every_attempt() -> None:
    for task in range(40):
        first, second = _play(task, 1, attempt=0), _play(task, 1, attempt=3)
        assert first["reward"] == second["reward"]
        assert first["response"]["output"] == second["response"]["output"]
        assert first["response"]["id"] != second["response"]["id"]


def test_rollouts_of_one_task_differ() -> None:
    assert {_play(task, rollout, steps=4)["reward"] for task in range(10) for rollout in range(8)} == {0.0, 1.0}


def test_tasks_with_more_steps_are_harder() -> None:
    identities = [AttemptIdentity(task, rollout) for task in range(100) for rollout in range(4)]
    errors = [sum(disposition(identity, steps).errs for identity in identities) for steps in range(1, 9)]
    assert errors == sorted(errors)
    assert errors[0] < len(identities) / 10
    assert errors[5] > len(identities) / 2
    assert errors[5] == errors[7]


def test_the_response_is_a_whole_responses_object() -> None:
    response = _play(3, 1)["response"]
    assert (response["object"], response["status"], response["model"]) == ("response", "completed", "scripted")
    assert response["output"][0]["content"][0]["type"] == "output_text"
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


@pytest.mark.parametrize("answer", [116.2, "116.20", "581/5", "1.162e2"])
def test_the_expected_answer_may_be_written_in_any_form(answer: object) -> None:
    rewards = [_play(task, 0, expected_answer=answer)["reward"] for task in range(50)]
    assert rewards == [_play(task, 0)["reward"] for task in range(50)]


@pytest.mark.parametrize("fields", [{"expected_answer": "many"}, {"expected_answer": None}, {"steps": 0}])
def test_a_task_that_cannot_be_checked_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _play(0, 0, **fields)

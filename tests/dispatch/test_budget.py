"""Until when rollouts may start."""

import pytest

from gym_ray.dispatch.budget import DispatchBudget


def budget(budget_s: float | None = None, margin_s: float | None = None, tokens: int | None = None) -> DispatchBudget:
    return DispatchBudget(budget_s, margin_s, tokens, 100.0)


def test_without_a_budget_there_is_no_end() -> None:
    unlimited = budget()
    assert unlimited.out_of_time(1e9) is None
    assert unlimited.out_of_tokens is None
    assert not unlimited.is_limited


def test_a_zero_budget_is_spent_at_once() -> None:
    assert budget(0.0).out_of_time(100.0) is not None


def test_the_margin_comes_off_the_end() -> None:
    limited = budget(60.0, 10.0)
    assert limited.out_of_time(150.0) is None
    assert limited.out_of_time(150.1) is not None


def test_a_margin_of_zero_is_a_margin() -> None:
    limited = budget(60.0, 0.0)
    for _ in range(10):
        limited.took(50.0, None)
    assert limited.out_of_time(159.9) is None
    assert limited.out_of_time(160.0) is not None


def test_the_margin_is_learned_from_the_fifth_result_on() -> None:
    learning = budget(60.0)
    for duration in (10.0, 1.0, 2.0, 3.0):
        learning.took(duration, None)
    assert learning.margin_s is None
    learning.took(4.0, None)
    assert learning.margin_s == pytest.approx(4.0)
    assert learning.out_of_time(155.9) is None
    assert learning.out_of_time(156.1) is not None


def test_the_percentile_is_interpolated() -> None:
    learning = budget(60.0)
    for duration in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        learning.took(duration, None)
    assert learning.margin_s == pytest.approx(4.75)


def test_tokens_are_counted_and_silent_replies_named() -> None:
    limited = budget(tokens=250)
    limited.took(1.0, 100)
    limited.took(1.0, None)
    assert (limited.out_of_tokens, limited.tokens, limited.without_usage) == (None, 100, 1)
    limited.took(1.0, 150)
    assert limited.out_of_tokens is not None
    assert limited.is_limited
    assert limited.counts_tokens


def test_a_token_budget_of_zero_starts_nothing() -> None:
    assert budget(tokens=0).out_of_tokens is not None

"""Retries are finite, jittered, and never replay what may have run when that is not wanted."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray import keys
from gym_ray.environment.retry import (
    BOUNDS,
    LONGEST_WAIT_S,
    Cause,
    GiveUp,
    Policy,
    Setback,
    Wait,
    decide,
    read_retry_after,
)
from gym_ray.outcomes.reply import Answered, Delivery, Unanswered

ON, OFF = Policy(retry_requests=True), Policy(retry_requests=False)
WALL = 1_700_000_000.0
NOT_SENT, MAYBE = Delivery.NOT_SENT, Delivery.POSSIBLY_DELIVERED


def setback(cause: Cause, delivery: Delivery = NOT_SENT) -> Setback:
    return Setback(cause, delivery, Unanswered(delivery, keys.TRANSPORT_PEER_DROP, "Error", "", "http://h/run"))


def throttled(status: int = 429, retry_after_s: float | None = None) -> Setback:
    return Setback(Cause.THROTTLED, MAYBE, Answered(status, b"", "http://h/run"), retry_after_s)


def course(
    policy: Policy, fault: Setback, *, draw: float = 0.5, try_s: float = 0.0, limit: int = 1000
) -> tuple[list[float], GiveUp]:
    """The waits of a rollout of which every try takes `try_s` and fails the same way."""
    past: list[tuple[Cause, float]] = []
    waits: list[float] = []
    now = 100.0
    for _ in range(limit):
        now += try_s
        step = decide(policy, past, fault, now=now, draw=draw)
        if isinstance(step, GiveUp):
            return waits, step
        past.append((fault.cause, now))
        waits.append(step.delay_s)
        now += step.delay_s
    raise AssertionError("it never gives up")


def test_an_unreachable_server_is_tried_three_times() -> None:
    assert course(ON, setback(Cause.UNREACHABLE), draw=1.0)[0] == [0.5, 1.0]
    assert course(OFF, setback(Cause.UNREACHABLE), draw=0.0)[0] == [0.25, 0.5]


def test_tries_that_are_slow_to_fail_end_with_the_window() -> None:
    waits, why = course(ON, setback(Cause.UNREACHABLE), try_s=10.0)
    assert len(waits) == 1
    assert "last permitted moment" in why.reason


def test_a_want_of_descriptors_is_waited_out_for_two_minutes() -> None:
    waits, _ = course(OFF, setback(Cause.LOCAL_RESOURCE), draw=1.0)
    assert waits[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert 120.0 - LONGEST_WAIT_S < sum(waits) <= 120.0


def test_a_drop_is_replayed_four_times_if_replays_are_wanted() -> None:
    assert course(ON, setback(Cause.DROPPED, MAYBE), draw=1.0)[0] == [0.5, 1.0, 2.0, 4.0]
    waits, why = course(OFF, setback(Cause.DROPPED, MAYBE))
    assert waits == []
    assert "retry_requests" in why.reason


def test_a_drop_that_surely_was_not_taken_goes_again_either_way() -> None:
    assert len(course(OFF, setback(Cause.DROPPED, NOT_SENT))[0]) == 4


def test_a_timeout_is_tried_three_times_if_replays_are_wanted() -> None:
    assert len(course(ON, setback(Cause.TIMEOUT, MAYBE))[0]) == 2
    assert course(OFF, setback(Cause.TIMEOUT, MAYBE))[0] == []


def test_stale_connections_are_left_at_once_and_not_for_ever() -> None:
    waits, _ = course(OFF, setback(Cause.STALE))
    assert waits[:16] == [0.0] * 16
    assert all(wait > 0 for wait in waits[16:])
    assert sum(waits) <= 60.0


@pytest.mark.parametrize("policy", [ON, OFF])
@pytest.mark.parametrize("delivery", list(Delivery))
def test_what_another_try_cannot_change_is_final(policy: Policy, delivery: Delivery) -> None:
    assert isinstance(decide(policy, [], setback(Cause.FINAL, delivery), now=0.0, draw=0.5), GiveUp)


@pytest.mark.parametrize("policy", [ON, OFF])
@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_is_the_least_wait(policy: Policy, status: int) -> None:
    for draw in (0.0, 0.3, 0.999):
        step = decide(policy, [], throttled(status, 7.0), now=0.0, draw=draw)
        assert isinstance(step, Wait)
        assert 7.0 <= step.delay_s <= 7.5


def test_those_who_were_refused_together_do_not_return_together() -> None:
    delays = {decide(ON, [], throttled(429, 1.0), now=0.0, draw=draw / 10) for draw in range(10)}
    assert len(delays) == 10


@pytest.mark.parametrize("status", [429, 503])
def test_without_a_retry_after_it_waits_like_after_any_fault_for_a_minute(status: int) -> None:
    waits, _ = course(ON, throttled(status), draw=1.0)
    assert waits[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert sum(waits) <= 60.0


def test_a_bare_503_may_come_from_a_proxy_that_lost_its_server() -> None:
    assert course(OFF, throttled(503))[0] == []
    assert course(OFF, throttled(429))[0] != []


def test_a_retry_after_beyond_the_budget_is_given_up_at_once() -> None:
    assert isinstance(decide(ON, [], throttled(429, 120.0), now=0.0, draw=0.5), GiveUp)
    assert isinstance(decide(Policy(True, 6.0), [], throttled(429, 6.1), now=0.0, draw=0.5), GiveUp)


def test_a_retry_after_that_just_fits_loses_its_spread_only() -> None:
    assert decide(Policy(True, 6.0), [], throttled(429, 6.0), now=0.0, draw=0.9) == Wait(6.0)


def test_the_budget_runs_from_the_first_failure_of_any_cause() -> None:
    policy = Policy(True, 6.0)
    past = [(Cause.UNREACHABLE, 0.0)]
    assert isinstance(decide(policy, past, throttled(429), now=5.4, draw=1.0), Wait)
    assert isinstance(decide(policy, past, throttled(429), now=5.6, draw=1.0), GiveUp)


def test_a_budget_above_the_bounds_does_not_raise_them() -> None:
    assert len(course(Policy(True, 1e6), setback(Cause.UNREACHABLE))[0]) == 2


def test_no_wait_outlasts_the_rollout() -> None:
    assert isinstance(decide(ON, [], throttled(429, 5.0), now=10.0, draw=0.5, not_after=14.0), GiveUp)
    assert decide(ON, [], throttled(429, 5.0), now=10.0, draw=0.5, not_after=15.0) == Wait(5.0)


@given(
    st.sampled_from([cause for cause in Cause if cause is not Cause.THROTTLED]),
    st.sampled_from(list(Delivery)),
    st.booleans(),
    st.none() | st.floats(0.1, 1e3),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 30),
)
def test_every_course_is_finite_and_within_its_bounds(
    cause: Cause, delivery: Delivery, is_on: bool, budget_s: float | None, draw: float, try_s: float
) -> None:
    waits, _ = course(Policy(is_on, budget_s), setback(cause, delivery), draw=draw, try_s=try_s)
    bounds = BOUNDS[cause]
    paid = waits[bounds.free_tries :]
    assert sum(paid) <= min(bounds.window_s, inf if budget_s is None else budget_s) + 1e-9
    assert bounds.max_tries is None or len(waits) < bounds.max_tries
    if delivery is not NOT_SENT and not is_on:
        assert waits == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1", 1.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tuesday, 14-Nov-23 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("٣", None),
        ("9" * 400, None),
        ("Tue, 99 Nov 2023 99:13:50 GMT", None),
        (None, None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value, None, WALL) == seconds


def test_a_date_counts_from_the_clock_of_the_server() -> None:
    until, sent = "Tue, 14 Nov 2023 22:13:50 GMT", "Tue, 14 Nov 2023 22:13:45 GMT"
    assert read_retry_after(until, sent, WALL + 86_400) == 5.0
    assert read_retry_after(until, "no date", WALL) == 30.0


@given(st.text())
def test_no_text_breaks_the_reading_of_a_retry_after(text: str) -> None:
    seconds = read_retry_after(text, text, WALL)
    assert seconds is None or seconds >= 0.0

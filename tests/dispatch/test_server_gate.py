"""What one environment server may hold, by how it has answered."""

from gym_ray.dispatch.server_gate import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    OPENS_AFTER,
    PROBE_S,
    REFUSAL_PATIENCE,
    ServerGate,
)


def opened(held: int = 8) -> ServerGate:
    gate = ServerGate()
    gate.take(held, 0.0)
    gate.set_back(OPENS_AFTER, 0.0)
    return gate


def test_nothing_limits_a_server_that_answers() -> None:
    gate = ServerGate()
    gate.take(1000, 0.0)
    gate.answered(10)
    assert gate.room(1.0) > 10_000


def test_its_cap_counts_everything_it_holds() -> None:
    gate = ServerGate(10)
    gate.take(7, 0.0)
    assert gate.room(0.0) == 3
    gate.give(0.0)
    assert gate.room(0.0) == 4


def test_setbacks_between_answers_do_not_open_it() -> None:
    gate = ServerGate()
    for _ in range(10):
        gate.set_back(OPENS_AFTER - 1, 0.0)
        gate.answered(1)
    assert not gate.is_open


def test_an_open_gate_lets_one_probe_through_after_a_pause() -> None:
    gate = opened()
    assert gate.room(FIRST_PAUSE_S / 2) == 0
    assert gate.room(FIRST_PAUSE_S) == 1
    gate.take(1, FIRST_PAUSE_S)
    assert gate.room(FIRST_PAUSE_S + 1) == 0


def test_each_failed_probe_doubles_the_pause_up_to_a_bound() -> None:
    gate, now, pauses = opened(), 0.0, []
    for _ in range(8):
        began = now
        while not gate.room(now):
            now += 0.25
        pauses.append(now - began)
        gate.take(1, now)
        gate.set_back(1, now)
        gate.give(0.0)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_what_was_in_flight_when_it_opened_does_not_lengthen_the_pause() -> None:
    gate = opened()
    for _ in range(50):
        gate.set_back(1, 0.5)
    assert gate.room(FIRST_PAUSE_S) == 1


def test_an_answer_closes_it_and_its_window_opens_round_by_round() -> None:
    gate = opened(held=0)
    gate.answered(1)
    assert not gate.is_open
    allowed = []
    for _ in range(5):
        count = gate.room(1.0)
        allowed.append(count)
        gate.take(count, 1.0)
        gate.answered(count)
        for _ in range(count):
            gate.give(0.0)
    assert allowed == [2, 4, 8, 16, 32]


def test_a_probe_that_nothing_sets_back_is_being_worked_on() -> None:
    gate = opened(held=0)
    gate.take(1, 1.0)
    assert gate.room(1.0 + PROBE_S - 0.1) == 0
    assert gate.room(1.0 + PROBE_S) > 0
    assert not gate.is_open
    assert not gate.is_given_up(10_000.0, 60.0)


def test_work_that_may_as_well_fail_passes_the_breaker_but_not_a_pause() -> None:
    gate = opened()
    assert gate.room(0.5, heeds_breaker=False) > 0
    gate.refused(0.5, 3.0)
    assert gate.room(1.0, heeds_breaker=False) == 0


def test_a_refusal_halves_what_it_may_hold() -> None:
    gate = ServerGate()
    gate.take(100, 0.0)
    gate.refused(0.0)
    gate.refused(0.1)  # of the same moment
    for _ in range(60):
        gate.give(0.0)
    assert gate.room(0.2) == 10


def test_a_retry_after_is_a_pause() -> None:
    gate = ServerGate()
    gate.refused(0.0, 7.0)
    assert gate.room(6.9) == 0
    assert gate.room(7.0) > 0


def test_after_refusals_the_window_grows_slowly_above_where_they_began() -> None:
    gate = ServerGate()
    gate.take(100, 0.0)
    gate.refused(0.0)
    for _ in range(100):
        gate.give(0.0)
    gate.take(50, 1.0)
    gate.answered(50)
    for _ in range(50):
        gate.give(0.0)
    assert 50 < gate.room(1.0) <= 53


def test_a_server_is_given_up_when_it_has_been_gone_for_long() -> None:
    gate = opened()
    assert not gate.is_given_up(59.0, 60.0)
    assert gate.is_given_up(60.0, 60.0)
    gate.answered(1)
    assert not gate.is_given_up(60.0, 60.0)


def test_one_that_refuses_lives_and_is_waited_for_much_longer() -> None:
    gate = ServerGate()
    gate.refused(0.0)
    assert not gate.is_given_up(60.0, 60.0)
    assert gate.is_given_up(60.0 * REFUSAL_PATIENCE, 60.0)

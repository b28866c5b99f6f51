"""How long a connection may rest: earned by survivors, cut by closes, restored by time."""

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.environment.patience import FIRST_REST_S, MAX_REST_S, SURVIVORS, Patience

seconds = st.floats(0, 1e6)


def trusting() -> Patience:
    """Patience that has seen connections survive the longest rest."""
    patience = Patience()
    for _ in range(SURVIVORS):
        patience.observe_survival(MAX_REST_S)
    return patience


def test_without_experience_hardly_any_rest_is_relied_on() -> None:
    assert Patience().limit_s(0.0) == FIRST_REST_S


def test_a_rest_that_enough_connections_survived_is_relied_on() -> None:
    patience = Patience()
    for count, rest_s in enumerate([5.0, 1.0, 6.0, 7.0, 8.0, 9.0, 5.0, 5.0, 4.0], 1):
        assert patience.limit_s(0.0) == (FIRST_REST_S if count <= SURVIVORS else 1.0)
        patience.observe_survival(rest_s)
    assert patience.limit_s(0.0) == 4.0


def test_a_close_teaches_a_limit_well_below_the_rest_that_it_cut() -> None:
    quick, usual = trusting(), trusting()
    quick.observe_close(0.2, now=10.0)
    usual.observe_close(5.0, now=10.0)
    assert quick.limit_s(10.0) == 0.1
    assert usual.limit_s(10.0) == 4.0


def test_the_shortest_rest_that_was_cut_counts() -> None:
    patience = trusting()
    for rest_s in (0.4, 0.2, 0.3):
        patience.observe_close(rest_s, now=0.0)
    assert patience.limit_s(0.0) == 0.1


def test_the_limit_doubles_every_minute_after_a_close() -> None:
    patience = trusting()
    patience.observe_close(0.2, now=0.0)
    assert patience.limit_s(60.0) == 0.2
    assert patience.limit_s(180.0) == 0.8
    assert patience.limit_s(1e9) == MAX_REST_S


@given(st.lists(st.tuples(seconds, seconds, st.booleans())))
def test_the_limit_is_ours_at_most_and_below_the_last_rest_that_was_cut(
    observations: list[tuple[float, float, bool]],
) -> None:
    patience = Patience()
    for rest_s, at, is_close in sorted(observations, key=lambda observation: observation[1]):
        if is_close:
            patience.observe_close(rest_s, at)
            assert patience.limit_s(at) <= rest_s
        else:
            patience.observe_survival(rest_s)
        assert 0.0 <= patience.limit_s(at) <= MAX_REST_S

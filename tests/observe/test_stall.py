"""When a silence is a stall."""

from gym_ray.observe.stall import FLOOR_S, UNKNOWN_S, StallWatch


def test_a_silence_of_several_times_what_rollouts_take_is_said_at_each_doubling() -> None:
    watch = StallWatch(5.0, 0.0)
    said = [now for now in range(200) if watch.silence_s(float(now), 8.0)]
    assert said == [40, 80, 160]


def test_fast_rollouts_have_a_floor() -> None:
    watch = StallWatch(5.0, 0.0)
    assert watch.silence_s(FLOOR_S - 0.1, 0.01) is None
    assert watch.silence_s(FLOOR_S, 0.01) == FLOOR_S


def test_before_anything_has_ended_nobody_knows_how_long_it_takes() -> None:
    watch = StallWatch(5.0, 0.0)
    assert watch.silence_s(UNKNOWN_S - 1, None) is None
    assert watch.silence_s(UNKNOWN_S, None) == UNKNOWN_S


def test_whatever_ends_begins_anew() -> None:
    watch = StallWatch(5.0, 0.0)
    assert watch.silence_s(40.0, 8.0) == 40.0
    watch.moved(41.0)
    assert watch.silence_s(80.0, 8.0) is None
    assert watch.silence_s(81.0, 8.0) == 40.0

"""What an attempt meets depends on its identity and the profile alone, and in the shares that the profile names."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.example.attempt import AttemptIdentity, fate_of, identity_of_episode
from gym_ray.example.draws import Dice, uniforms
from gym_ray.example.flag_text import profile_of_texts
from gym_ray.example.profile import SLOW_FACTOR

_PROFILE = profile_of_texts("50ms..2s", "2%", "503=1%,drop=0.5%,500=3%")
_ATTEMPTS = [
    AttemptIdentity(task, rollout, attempt) for task in range(500) for rollout in range(8) for attempt in (0, 1)
]


@pytest.mark.parametrize(
    ("rollout_id", "task", "rollout"),
    [("12-1", 12, 1), ("r9f2-12-1", 12, 1), ("a-b.c_d-0-7", 0, 7), ("free", "free", 0), ("12-x", "12-x", 0)],
)
def test_the_identity_of_an_episode_is_the_end_of_its_rollout_id(
    rollout_id: str, task: int | str, rollout: int
) -> None:
    assert identity_of_episode(rollout_id, 2) == AttemptIdentity(task, rollout, 2)


def test_fates_repeat_and_differ_by_attempt_and_seed() -> None:
    assert [fate_of(each, _PROFILE) for each in _ATTEMPTS] == [fate_of(each, _PROFILE) for each in _ATTEMPTS]
    first, second = AttemptIdentity(3, 1, 0), AttemptIdentity(3, 1, 1)
    assert fate_of(first, _PROFILE).latency_s != fate_of(second, _PROFILE).latency_s
    other = profile_of_texts("50ms..2s", "2%", "503=1%,drop=0.5%,500=3%", seed=1)
    assert fate_of(first, _PROFILE).latency_s != fate_of(first, other).latency_s


def test_latencies_fill_their_range_and_the_tail_is_slow() -> None:
    latencies = [fate_of(each, _PROFILE).latency_s for each in _ATTEMPTS]
    usual = [latency for latency in latencies if latency <= 2.0]
    assert min(usual) < 0.1
    assert max(usual) > 1.9
    assert sum(usual) / len(usual) == pytest.approx(1.025, rel=0.05)
    slow = [fate_of(each, profile_of_texts("1s", "2%")).latency_s == SLOW_FACTOR for each in _ATTEMPTS]
    assert sum(slow) / len(slow) == pytest.approx(0.02, rel=0.3)


def test_faults_come_in_their_shares() -> None:
    names = Counter(fate.fault.name for each in _ATTEMPTS if (fate := fate_of(each, _PROFILE)).fault is not None)
    assert names["503"] / len(_ATTEMPTS) == pytest.approx(0.01, rel=0.4)
    assert names["drop"] / len(_ATTEMPTS) == pytest.approx(0.005, rel=0.5)
    assert names["500"] / len(_ATTEMPTS) == pytest.approx(0.03, rel=0.3)


def test_a_certain_fault_spares_nobody() -> None:
    certain = profile_of_texts(failures="hang=100%")
    assert all(fate_of(each, certain).fault is not None for each in _ATTEMPTS)


@given(st.lists(st.text(max_size=5), max_size=4))
def test_uniforms_stay_below_one(words: list[str]) -> None:
    assert all(0 <= number < 1 for number in uniforms(*words))


def test_draws_are_the_same_in_every_version() -> None:
    assert uniforms("a", 1) == (0.24828582075632288, 0.3928960309537666, 0.9825748780368911, 0.1216306265867243)
    dice = Dice("a")
    assert [dice.between(1, 6) for _ in range(8)] == [1, 3, 1, 1, 1, 3, 5, 2]

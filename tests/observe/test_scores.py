"""Scores that are computed as results come in equal those of the whole, and say what they leave out."""

import random
import statistics
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.observe.scores import Score, Scores


def score(results: list[tuple[int, float]]) -> Score:
    scores = Scores()
    for task, reward in results:
        scores.add("env", "agent", task, reward)
    (summary,) = scores.summary()
    return summary


UNEQUAL = [(0, 0.0)] * 4 + [(2, 0.0)] * 2 + [(1, 0.0), (1, 1.0), (1, 0.0), (1, 0.0)] + [(3, 1.0)]


def test_pass_at_k_is_undefined_for_groups_that_are_too_small() -> None:
    passes = {each.k: each for each in score(UNEQUAL).pass_at}
    assert {k: (each.value, each.tasks, each.undefined) for k, each in passes.items()} == {
        1: (pytest.approx(0.3125), 4, 0),
        2: (pytest.approx(1 / 6), 3, 1),
        4: (pytest.approx(0.5), 2, 2),
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=14))
def test_scores_equal_what_the_definitions_say(results: list[tuple[int, float]]) -> None:
    found = score(results)
    assert found.mean == pytest.approx(statistics.mean(reward for _, reward in results))
    groups: dict[int, list[float]] = {}
    for task, reward in results:
        groups.setdefault(task, []).append(reward)
    for each in found.pass_at:
        values = [
            statistics.mean(any(reward >= 1 for reward in drawn) for drawn in combinations(group, each.k))
            for group in groups.values()
            if len(group) >= each.k
        ]
        assert each.value == pytest.approx(statistics.mean(values))
        assert (each.tasks, each.undefined) == (len(values), len(groups) - len(values))
    shuffled = random.Random(0).sample(results, len(results))
    assert score(shuffled) == found


def test_the_error_of_equal_groups_is_that_of_their_means() -> None:
    rng = random.Random(1)
    means = [rng.random() for _ in range(20)]
    found = score([(task, mean) for task, mean in enumerate(means) for _ in range(3)])
    assert found.standard_error == pytest.approx(statistics.stdev(means) / 20**0.5)
    assert found.interval_95 is not None
    low, high = found.interval_95
    assert low < found.mean < high
    assert score([(0, 1.0), (0, 0.0)]).standard_error is None


def test_servers_and_agents_have_scores_of_their_own() -> None:
    scores = Scores()
    for server, agent, reward in (("b", "x", 1.0), ("a", "y", 0.0), ("a", None, 1.0)):
        scores.add(server, agent, 5, reward)
    assert [(each.server, each.agent, each.mean) for each in scores.summary()] == [
        ("a", None, 1.0),
        ("a", "y", 0.0),
        ("b", "x", 1.0),
    ]
    assert Scores().summary() == ()

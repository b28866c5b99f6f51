"""Percentiles within two per cent, whatever is merged."""

import statistics

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.observe.latency import LatencyHistogram

latencies = st.lists(st.floats(0.02, 1e7), min_size=1, max_size=300)


def histogram(values: list[float]) -> LatencyHistogram:
    filled = LatencyHistogram()
    for value in values:
        filled.add(value)
    return filled


@given(latencies)
def test_a_percentile_is_near_a_value_of_its_rank(values: list[float]) -> None:
    for percent in (1, 50, 90, 99, 100):
        rank = max(-(-len(values) * percent // 100), 1)
        exact = sorted(values)[rank - 1]
        found = histogram(values).percentile(percent)
        assert found is not None
        assert abs(found - exact) <= 0.021 * exact


@given(latencies, latencies)
def test_merging_is_adding(first: list[float], second: list[float]) -> None:
    merged = histogram(first)
    merged.merge(histogram(second))
    assert merged.percentile(50) == histogram(first + second).percentile(50)
    assert merged.max_ms == max(first + second)
    assert merged.count == len(first) + len(second)


def test_nothing_has_no_percentile() -> None:
    assert LatencyHistogram().percentile(50) is None


def test_the_maximum_is_exact() -> None:
    assert histogram([1.0, 2.0, 1234.5]).max_ms == 1234.5
    assert statistics.median([1.0, 2.0, 1234.5]) == 2.0

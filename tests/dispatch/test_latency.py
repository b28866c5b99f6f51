"""Exact percentiles, pooled over as many calls as share a tracker."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.dispatch.latency import DispatchLatencyTracker, quantile


def test_percentiles_are_interpolated() -> None:
    assert quantile([1, 2, 3, 4, 10], 0.75) == 4.0
    assert quantile([1, 2], 0.5) == 1.5
    assert quantile([7], 0.99) == 7


@given(st.lists(st.floats(0.001, 1000), min_size=2, max_size=50))
def test_a_tracker_says_what_the_statistics_say(durations: list[float]) -> None:
    tracker = DispatchLatencyTracker()
    for position, duration in enumerate(durations):
        tracker.record(duration)
        if position % 7 == 0:
            tracker.percentile(50)  # asking in between changes nothing
    summary = tracker.summary()
    assert summary["median_s"] == pytest.approx(statistics.median(durations))
    assert summary["p90_s"] == pytest.approx(statistics.quantiles(durations, n=10, method="inclusive")[8])
    assert (summary["count"], summary["max_s"]) == (len(durations), max(durations))
    assert summary["total_s"] == pytest.approx(sum(durations))


def test_what_took_no_time_says_nothing() -> None:
    tracker = DispatchLatencyTracker()
    tracker.record(0.0)
    tracker.record_drained(2)
    tracker.record_drained()
    assert len(tracker) == 0
    assert tracker.percentile(50) is None
    assert (tracker.summary()["p99_s"], tracker.summary()["drained"]) == (None, 3)

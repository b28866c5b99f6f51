"""The equation holds in every snapshot, and every mean says what it is over."""

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.observe.tally import RATE_WINDOW_S, Tally
from gym_ray.outcomes.outcome import OutcomeKind


def finish(tally: Tally, kind: OutcomeKind = OutcomeKind.RESULT, reward: float | None = 1.0, **facts: object) -> None:
    given = {"latency_ms": 1.0, "masked": False, "failure_class": None, "terminal": False, "sends": 1} | facts
    tally.finished("env", kind, reward=reward, **given)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(list(OutcomeKind)[:3]), max_size=50), st.integers(0, 10))
def test_the_equation_holds(kinds: list[OutcomeKind], drained: int) -> None:
    tally = Tally({"env": len(kinds) + drained + 3}, 4, 0.0)
    tally.started(len(kinds) + 2)
    for kind in kinds:
        finish(tally, kind, failure_class="c" if kind is OutcomeKind.FAILURE else None)
    tally.withheld(drained, is_drained=True)
    progress = tally.snapshot(1.0)
    assert progress.planned == sum(getattr(progress, part) for part in progress.parts)
    assert progress.owed == 3
    assert progress.in_flight == 2


def test_the_means_leave_out_masked_and_unscored_results_and_say_so() -> None:
    tally = Tally({"env": 5}, 4, 0.0)
    tally.started(5)
    finish(tally, reward=1.0)
    finish(tally, reward=0.0)
    finish(tally, reward=1.0, masked=True)
    finish(tally, reward=None)
    finish(tally, OutcomeKind.FAILURE, None, failure_class="agent_run_error")
    progress = tally.snapshot(1.0)
    assert (progress.mean_reward, progress.rewarded, progress.masked) == (0.5, 2, 1)
    assert progress.mean_reward_failures_as_zero == 1 / 3


def test_what_waits_in_a_shard_is_not_in_flight() -> None:
    tally = Tally({"env": 100}, 8, 0.0)
    tally.started(10)
    assert tally.snapshot(0.0).in_flight == 8
    tally.returned(7)
    assert tally.snapshot(0.0).in_flight == 3


def test_the_rate_is_that_of_the_last_seconds() -> None:
    tally = Tally({"env": 1000}, 8, 0.0)
    tally.started(200)
    for second in range(1, 31):
        for _ in range(1 if second <= 20 else 10):
            finish(tally)
        progress = tally.snapshot(float(second))
    assert 9.0 <= progress.rate_per_s <= 10.0
    assert progress.elapsed_s == 30.0
    assert RATE_WINDOW_S == 10.0


def test_repeated_sends_are_counted() -> None:
    tally = Tally({"env": 2}, 8, 0.0)
    tally.started(2)
    finish(tally, sends=3)
    finish(tally, OutcomeKind.FAILURE, failure_class="x", sends=0)
    assert tally.snapshot(1.0).retries == 2


def test_what_stands_from_before_counts_in_the_sums_and_not_in_the_rate() -> None:
    tally = Tally({"env": 5}, 4, 0.0)
    tally.restored("env", OutcomeKind.RESULT, reward=1.0)
    tally.restored("env", OutcomeKind.RESULT, reward=0.0, masked=True)
    tally.restored("env", OutcomeKind.FAILURE, failure_class="agent_run_error", terminal=True)
    tally.started(2)
    finish(tally, reward=0.0, attempt=1)
    progress = tally.snapshot(2.0)
    assert (progress.results, progress.failures, progress.terminal_failures, progress.owed) == (3, 1, 1, 1)
    assert (progress.earlier, progress.later_attempts, progress.mean_reward) == (3, 1, 0.5)
    assert progress.rate_per_s == progress.mean_rate_per_s == 0.5

"""What people write for a profile is read, or refused with the reason."""

import pytest

from gym_ray.errors import ConfigError
from gym_ray.example.flag_text import faults_of_text, latency_of_text, profile_of_texts, share_of_text
from gym_ray.example.profile import Fault, FaultKind, LatencyRange, Limits, Profile


@pytest.mark.parametrize(
    ("text", "low_s", "high_s"),
    [("50ms..2s", 0.05, 2.0), ("200ms", 0.2, 0.2), ("0", 0.0, 0.0), ("0..1.5s", 0.0, 1.5), (" 1m .. 2m ", 60.0, 120.0)],
)
def test_a_latency_is_a_time_or_a_range(text: str, low_s: float, high_s: float) -> None:
    latency = latency_of_text(text)
    assert (latency.low_s, latency.high_s) == pytest.approx((low_s, high_s))


@pytest.mark.parametrize("text", ["", "fast", "50", "50ms..", "..2s", "-1s", "1s..2s..3s", "2s..50ms"])
def test_another_latency_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^latency '.*': expected "):
        latency_of_text(text)


def test_a_share_is_a_percentage() -> None:
    assert share_of_text("2%", "tail") == pytest.approx(0.02)
    assert share_of_text(" 0.5 %", "tail") == pytest.approx(0.005)
    assert share_of_text("0", "tail") == 0.0


@pytest.mark.parametrize("text", ["2", "0.02", "two", "-1%", "101%", ""])
def test_another_share_is_refused_in_the_name_of_its_flag(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^tail '.*': expected "):
        share_of_text(text, "tail")


def test_faults_are_statuses_and_kinds_with_shares() -> None:
    faults = dict(faults_of_text("503=1%, drop=0.5%,500=2%,cut=0,badjson=1%,hang=1%,handled=1%,"))
    assert faults[Fault(FaultKind.STATUS, 503)] == pytest.approx(0.01)
    assert faults[Fault(FaultKind.DROP)] == pytest.approx(0.005)
    assert [fault.name for fault in faults] == ["503", "drop", "500", "cut", "badjson", "hang", "handled"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("503", "expected NAME=SHARE"),
        ("503=1", "failures 503 '1': expected a percentage"),
        ("drpo=1%", "did you mean drop?"),
        ("200=1%", "expected a status from 400 to 599"),
        ("503=1%,503=2%", "503 is given twice"),
        ("503=60%,drop=50%", "at most 100% together"),
    ],
)
def test_other_faults_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        faults_of_text(text)
    assert reason in str(refused.value)


def test_shares_may_add_up_to_exactly_everything() -> None:
    assert len(faults_of_text("500=33.3%,503=33.3%,drop=33.4%")) == 3


def test_a_profile_without_texts_answers_at_once() -> None:
    assert profile_of_texts() == Profile()
    assert profile_of_texts("1s", "2%", "hang=1%", seed=7) == Profile(
        LatencyRange(1.0, 1.0), 0.02, ((Fault(FaultKind.HANG), 0.01),), 7
    )


def test_a_limit_on_episodes_needs_a_limit_on_waiting() -> None:
    with pytest.raises(ConfigError, match="needs queue_timeout_s"):
        Limits(max_concurrent_episodes=4)
    with pytest.raises(ConfigError, match="expected at least 1, found 0"):
        Limits(max_concurrent_episodes=0, queue_timeout_s=1.0)

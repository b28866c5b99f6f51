"""The Prometheus text of an inference server, whatever stands in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.environment.prometheus import gauge_sums


def test_gauges_are_summed_over_label_sets() -> None:
    text = (
        "# HELP vllm:num_requests_waiting Number of requests waiting.\n"
        "# TYPE vllm:num_requests_waiting gauge\n"
        'vllm:num_requests_waiting{engine="0",model_name="a"} 3.0\n'
        'vllm:num_requests_waiting{engine="1",model_name="a"} 2\n'
        "vllm:num_requests_running 7.0 1700000000000\n"
    )
    assert gauge_sums(text) == (5, 7)
    assert gauge_sums(text.replace("\n", "\r\n")) == (5, 7)


@pytest.mark.parametrize("label", [r"a\"b", "a}b", "a} 9", r"a\\", "", "a,b=c", "a\u2028b", "{"])
def test_label_values_hold_anything(label: str) -> None:
    assert gauge_sums(f'vllm:num_requests_running{{model_name="{label}"}} 4\n') == (0, 4)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e308", "2e9", "many", ""])
def test_what_is_no_number_of_requests_is_passed_over(value: str) -> None:
    assert gauge_sums(f"vllm:num_requests_running {value}") is None
    assert gauge_sums(f"vllm:num_requests_running {value}\nvllm:num_requests_running 2") == (0, 2)


def test_other_metrics_with_the_same_beginning_are_others() -> None:
    assert gauge_sums("vllm:num_requests_waiting_by_reason 5\n#vllm:num_requests_waiting 5\n") is None


def test_a_server_without_requests_is_not_one_without_gauges() -> None:
    assert gauge_sums("vllm:num_requests_waiting 0\nvllm:num_requests_running 0") == (0, 0)
    assert gauge_sums("up 1") is None
    assert gauge_sums("") is None


@given(st.lists(st.one_of(st.text(), st.floats().map(lambda value: f"vllm:num_requests_waiting {value}"))))
def test_no_text_makes_it_fail(lines: list[str]) -> None:
    sums = gauge_sums("\n".join(lines))
    assert sums is None or min(sums) >= 0

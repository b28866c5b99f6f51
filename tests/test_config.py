"""Settings that contradict themselves are refused, each by name. Source: protocol §5.11, rows 1 to 6."""

from typing import Any

import pytest
from pydantic import ValidationError

from gym_ray.config import DEFAULT_CAP, RolloutCollectionConfig


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_samples_in_parallel": 0}, "num_samples_in_parallel"),
        ({"dispatch_budget_s": -1, "num_samples_in_parallel": 4}, "dispatch_budget_s"),
        ({"drain_margin_s": -1}, "drain_margin_s"),
        ({"token_budget": -1}, "token_budget"),
        ({"dispatch_budget_s": 5}, "num_samples_in_parallel"),
        ({"environment_routing_mode": "legacy"}, "environment_server_name"),
        ({"environment_routing_mode": "taskset"}, "environment_server_routes"),
        ({"agent_name": "a", "agent_map": {"_default": "b"}}, "agent_map._default"),
        ({"num_repeats": 0}, "num_repeats"),
        ({"num_repeats": {"a": 1, "b": 0}}, "for: b"),
        ({"fan_out": {"a": []}}, "fan_out.a"),
        ({"fan_out": {"a": ["x", "x"]}}, "fan_out.a"),
        ({"task_ids": ["a"], "task_ids_fpath": "f"}, "task_ids_fpath"),
        ({"limit": -1}, "limit"),
        ({"shards": 0}, "shards"),
        ({"rollout_timeout_s": 0}, "rollout_timeout_s"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_a_contradiction_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RolloutCollectionConfig(**settings)
    assert named in str(caught.value)


def test_an_agent_may_be_named_twice_the_same_way() -> None:
    assert RolloutCollectionConfig(agent_name="a", agent_map={"_default": "a"}).agent_name == "a"


def test_no_repeats_are_one_and_no_cap_is_the_default() -> None:
    config = RolloutCollectionConfig(num_repeats=None)  # type: ignore[arg-type]
    assert (config.num_repeats, config.cap) == (1, DEFAULT_CAP)


def test_a_zero_budget_is_a_budget() -> None:
    assert RolloutCollectionConfig(dispatch_budget_s=0, num_samples_in_parallel=1).dispatch_budget_s == 0

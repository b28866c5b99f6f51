"""The aggregation names and numbers everything as NeMo Gym does.

`data/aggregate_vectors.jsonl` holds requests with the replies that servers of nemo-gym 0.7.0 gave to them.
"""

import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.example.metrics import aggregate_metrics
from gym_ray.example.metrics.student_t import quantile_975

_VECTORS = [
    orjson.loads(line) for line in (Path(__file__).parent / "data/aggregate_vectors.jsonl").read_bytes().splitlines()
]

Record = dict[str, Any]


def _record(task: int, rollout: int, **fields: Any) -> Record:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


def _golden() -> list[Record]:
    """The records of protocol §9.9."""
    rewards = {(0, 0): 1, (0, 1): 0, (1, 0): 1, (1, 1): 1, (2, 0): 0, (2, 1): 1}
    return [
        _record(
            t,
            r,
            reward=reward,
            response={"usage": {"input_tokens": 10 + t, "output_tokens": 5 + r, "total_tokens": 15 + t + r}},
            ng_perf={
                "num_turns": 2 + t,
                "prompt_tokens": 100,
                "completion_tokens": 40,
                "total_latency_ms": 1000 + r,
            },
        )
        for (t, r), reward in rewards.items()
    ]


def _has(found: dict[str, Any], **expected: float) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_the_golden_vector_has_its_means() -> None:
    metrics = aggregate_metrics(_golden())["agent_metrics"]
    means = {"mean/reward": 0.666667, "mean/input_tokens": 11.0, "mean/output_tokens": 5.5, "mean/total_tokens": 16.5}
    _has(metrics, **means, num_repeats=2)
    assert aggregate_metrics(_golden())["key_metrics"] == pytest.approx(means, abs=1e-6)


def test_the_golden_vector_has_its_repeats() -> None:
    reply = aggregate_metrics(_golden())
    first = reply["repeat_level_metrics"][0]
    _has(first, **{"mean/reward": 0.666667, "std/reward": 0.577350, "sem/reward": 0.333333})
    _has(first, **{"ci_low_95/reward": -0.767551, "ci_high_95/reward": 2.100884})
    _has(first, **{"p25/reward": 0.5, "p75/reward": 1.0}, sample_count=3, missing_count=0, _ng_rollout_index=0)
    across = {
        "mean_across_repeats": 5.5,
        "std_across_repeats": 0.707107,
        "se_across_repeats": 0.5,
        "ci_low_95_across_repeats": -0.853102,
        "ci_high_95_across_repeats": 11.853102,
    }
    _has(reply["agent_metrics"], **{f"{name}/mean/output_tokens": value for name, value in across.items()})


def test_the_golden_vector_has_its_performance() -> None:
    summary = aggregate_metrics(_golden())["perf_summary"]
    _has(summary, mean_num_turns=3.0, std_num_turns=0.816497, p90_num_turns=4.0)
    _has(summary, mean_tokens_per_turn=14.444444, median_tokens_per_turn=13.333333)
    _has(summary, total_latency_p50_ms=1000.5, total_latency_p90_ms=1001.0, total_latency_mean_ms=1000.5)


def test_the_golden_vector_with_a_mask_has_its_coverage() -> None:
    records = _golden()
    records[0]["mask_sample"] = True
    metrics = aggregate_metrics(records)["agent_metrics"]
    _has(metrics, **{"mean/reward": 0.6, "coverage/measured_rollouts": 5, "coverage/masked_rollouts": 1})
    _has(metrics, **{"coverage/measured_tasks": 3, "coverage/fully_masked_tasks": 0}, num_repeats=2)


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda vector: vector["case"])
def test_a_reply_is_the_one_of_nemo_gym(vector: dict[str, Any]) -> None:
    ours = aggregate_metrics(vector["records"])
    hooked = {name for name in ours["agent_metrics"] if name.startswith("pass@")}
    ours["agent_metrics"] = {name: value for name, value in ours["agent_metrics"].items() if name not in hooked}
    _assert_alike(ours, vector["reply"], "reply")


def _assert_alike(ours: Any, theirs: Any, place: str) -> None:
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), place
        for name, value in theirs.items():
            _assert_alike(ours[name], value, f"{place}.{name}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), place
        for position, value in enumerate(theirs):
            _assert_alike(ours[position], value, f"{place}[{position}]")
    else:
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-12) if isinstance(theirs, float) else ours == theirs, (
            place
        )


def test_two_records_of_one_rollout_are_refused() -> None:
    with pytest.raises(ValueError, match="task 1, rollout 0 has several records"):
        aggregate_metrics([_record(1, 0, reward=1), _record(0, 0, reward=1), _record(1, 0, reward=0)])
    with pytest.raises(ValueError, match="task 0, rollout 0"):
        aggregate_metrics([{"reward": 1}, {"reward": 0}])
    with pytest.raises(ValueError, match="expected a whole number, found '3'"):
        aggregate_metrics([{"_ng_task_index": "3"}])


def test_pass_at_k_leaves_out_tasks_with_fewer_tries() -> None:
    tries = {0: [0, 0, 0, 0], 1: [0, 1, 0, 0], 2: [0, 0], 3: [1]}
    records = [_record(t, r, reward=float(each)) for t, rewards in tries.items() for r, each in enumerate(rewards)]
    metrics = aggregate_metrics(records)["agent_metrics"]
    _has(metrics, **{"pass@1/accuracy": 31.25, "pass@2/accuracy": 100 / 6, "pass@3/accuracy": 37.5})
    _has(metrics, **{"pass@4/accuracy": 50.0, "pass@1[avg-of-1]/accuracy": 25.0, "pass@1[avg-of-4]/accuracy": 12.5})
    assert "pass@5/accuracy" not in metrics


def test_pass_at_k_is_for_binary_scores() -> None:
    metrics = aggregate_metrics([_record(0, 0, reward=0.5), _record(0, 1, reward=1)])["agent_metrics"]
    assert not [name for name in metrics if name.startswith("pass@")]


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_pass_at_k_is_the_share_of_draws_with_a_solved_try(solved: list[bool]) -> None:
    metrics = aggregate_metrics([_record(0, r, reward=each) for r, each in enumerate(solved)])["agent_metrics"]
    for k in range(1, len(solved) + 1):
        draws, misses = math.comb(len(solved), k), math.comb(solved.count(False), k)
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * (1 - misses / draws))


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [
        (1, 12.7062047362),
        (2, 4.3026527297),
        (3, 3.1824463053),
        (4, 2.7764451052),
        (5, 2.5705818356),
        (10, 2.2281388520),
        (30, 2.0422724563),
        (100, 1.9839715185),
        (1000, 1.9623390808),
    ],
)
def test_student_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert quantile_975(degrees) == pytest.approx(quantile, abs=1e-9)


def test_the_sum_and_the_expansion_meet() -> None:
    steps = [quantile_975(degrees) - quantile_975(degrees + 1) for degrees in range(190, 210)]
    assert steps == sorted(steps, reverse=True)
    assert quantile_975(10**7) == pytest.approx(1.959964, abs=1e-6)

import json

import pytest

from gym_ray import keys
from gym_ray.aggregation.metrics import InvalidMetrics, empty_metrics, read_metrics


def test_a_whole_reply_is_kept() -> None:
    reply = {
        "group_level_metrics": [{"task": 0}],
        "agent_metrics": {"mean/reward": 0.5, "big": 10**30},
        "key_metrics": {"mean/reward": 0.5},
        "perf_summary": {"turns": 3},
        "repeat_level_metrics": [{}],
    }
    assert read_metrics(json.dumps(reply).encode()) == reply


@pytest.mark.parametrize("body", [b"{}", b'{"agent_metrics":null,"perf_summary":null,"other":[1]}'])
def test_what_a_reply_leaves_out_is_empty(body: bytes) -> None:
    assert read_metrics(body) == empty_metrics()
    assert keys.PERF_SUMMARY not in read_metrics(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b'{"agent_metrics":{"x":NaN}}', "NaN is not a number"),
        (b'{"agent_metrics":{"x":-Infinity}}', "-Infinity is not a number"),
        (b'{"agent_metrics":{"x":1e999}}', "1e999 is beyond a double"),
        (b"[" * 100_000, "not JSON"),
        (b"null", "the reply is null"),
        (b'"text"', "the reply is a string"),
        (b"[]", "the reply is a list"),
        (b'{"agent_metrics":[]}', "agent_metrics is a list .*not an object"),
        (b'{"key_metrics":3}', "key_metrics is a number, not an object"),
        (b'{"group_level_metrics":{}}', "group_level_metrics is an object, not a list of objects"),
        (b'{"repeat_level_metrics":[1]}', "repeat_level_metrics is a list with something else than objects"),
        (b'{"perf_summary":true}', "perf_summary is a boolean"),
    ],
)
def test_what_is_no_metrics_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(InvalidMetrics, match=why):
        read_metrics(body)

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray import keys
from gym_ray.aggregation.stripping import DROPPED, KEPT_OF_RESPONSE, stripped

EXAMPLE = {
    "responses_create_params": {"input": []},
    "_ng_task_index": 0,
    "agent_ref": {"name": "maze_agent"},
    "reward": 1.0,
    "response": {"output": ["long"], "usage": {"input_tokens": 412}, "incomplete_details": None, "id": "r"},
    "ng_perf": {"num_turns": 3},
    "ng_trajectory": {"steps": []},
    "ng_model_call_capture": {},
    "ng_agent_observations": [],
    "mask_sample": False,
}


def test_what_no_metric_reads_is_dropped_and_the_rest_is_kept() -> None:
    assert json.loads(stripped(json.dumps(EXAMPLE).encode() + b"\n")) == {
        "_ng_task_index": 0,
        "agent_ref": {"name": "maze_agent"},
        "reward": 1.0,
        "ng_perf": {"num_turns": 3},
        "mask_sample": False,
        "response": {"usage": {"input_tokens": 412}},
    }


UNTOUCHED = [
    b"{}",
    b'{"n":123456789012345678901234567890,"e":1E400,"z":-0.0}',
    '{"t":"é☕"}'.encode(),
    rb'{"f":1.50,"response":{"usage":{"x":"\ud800"}}}',
    b'{"response":{"incomplete_details":{"reason" : "x"}}}',
]
CHANGED = {
    b' { "a" : 1.10 , "b":[ 1,  2 ] } \n': b'{"a":1.10,"b":[ 1,  2 ]}',
    b'{"response":null,"a":1}': b'{"a":1}',
    b'{"response":"text"}': b"{}",
    b'{"response":{}}': b"{}",
    b'{"response":{"usage":null,"incomplete_details": null }}': b"{}",
    b'{"response":{"incomplete_details":0,"usage":{}},"a":1}': (
        b'{"a":1,"response":{"usage":{},"incomplete_details":0}}'
    ),
    rb'{"t":"\ud800","f":1.50,"response":{"usage":{"x":2.0},"o":"\udfff"}}': (
        rb'{"t":"\ud800","f":1.50,"response":{"usage":{"x":2.0}}}'
    ),
    rb'{"\ud800":1,"k\u00e9y":2}': rb'{"\ud800":1,' + '"kéy":2}'.encode(),
}


@pytest.mark.parametrize("line", UNTOUCHED)
def test_values_that_are_kept_are_not_touched(line: bytes) -> None:
    assert stripped(line) == stripped(line + b"\n") == line


@pytest.mark.parametrize(("line", "expected"), CHANGED.items())
def test_only_what_the_rule_names_goes(line: bytes, expected: bytes) -> None:
    assert stripped(line) == expected


TEXT = st.text(st.characters(), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(KEPT_OF_RESPONSE), inner, max_size=3)
    ),
    max_leaves=6,
)
RECORDS = st.dictionaries(TEXT | st.sampled_from([*DROPPED, keys.REWARD, keys.PERF]), VALUES, max_size=8)


@given(RECORDS)
def test_stripping_equals_the_rule(record: dict[str, Any]) -> None:
    expected = {key: value for key, value in record.items() if key not in DROPPED}
    response = record.get(keys.RESPONSE)
    if isinstance(response, dict):
        parts = {key: response[key] for key in KEPT_OF_RESPONSE if response.get(key) is not None}
        if parts:
            expected[keys.RESPONSE] = parts
    assert json.loads(stripped(json.dumps(record).encode())) == expected

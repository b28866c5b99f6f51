"""Bodies of /run: flat rows go as they are, materialized tasks as the two keys that servers accept."""

import json

import pytest

from gym_ray import keys
from gym_ray.environment.requests import run_body
from gym_ray.identity import RowIdentity, read_identity

FLAT = b'{"responses_create_params": {"input": "\\ud83d\\ude00"}, "n": 1e400, "_ng_task_index":3,"_ng_rollout_index":1}'
TASK = b'{"taskset": "maze:eval",  "task_id":"m-0041"}'
INPUT = b'{"responses_create_params": {"input":"x"}, "seed": 12345678901234567890123}'
MATERIALIZED = b'{"task_id":%b,"task_input":%b,"agent_ref":{"name":"a"},"_ng_task_index":12,"_ng_rollout_index":1}' % (
    TASK,
    INPUT,
)


def body(line: bytes, attempt: int = 0) -> bytes:
    return run_body(line, read_identity(line), attempt)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_body_of_a_flat_row_at_attempt_0_is_its_line(end: bytes) -> None:
    assert body(FLAT + end) == FLAT


def test_a_later_attempt_is_spliced_into_the_bytes_of_a_flat_row() -> None:
    assert body(FLAT + b"\n", 2) == FLAT[:-1] + b',"_ng_attempt_index":2}'
    assert body(b'{"_ng_task_index":3 }', 1) == b'{"_ng_task_index":3,"_ng_attempt_index":1}'
    assert body(b"{ }", 1) == b'{"_ng_attempt_index":1}'


@pytest.mark.parametrize("attempt", [0, 1, 3])
@pytest.mark.parametrize("key", [b"_ng_attempt_index", b"_ng\\u005fattempt_index"])
def test_an_attempt_that_the_row_holds_is_replaced(key: bytes, attempt: int) -> None:
    sent = body(b'{"a":1.50,"%b":2,"_ng_task_index":0}\n' % key, attempt)
    assert json.loads(sent, object_pairs_hook=list) == [
        ["a", 1.5],
        [keys.ATTEMPT_INDEX, attempt],
        [keys.TASK_INDEX, 0],
    ] or (
        json.loads(sent) == {"a": 1.5, keys.ATTEMPT_INDEX: attempt, keys.TASK_INDEX: 0}
        and sent.count(b"attempt_index") == 1
    )
    assert b"1.50" in sent


def test_an_attempt_deeper_in_the_row_is_left_alone() -> None:
    sent = json.loads(body(b'{"input":{"_ng_attempt_index":7}}', 1))
    assert sent == {"input": {"_ng_attempt_index": 7}, "_ng_attempt_index": 1}


@pytest.mark.parametrize("attempt", [0, 2])
def test_a_materialized_task_is_sent_as_exactly_two_keys_with_its_own_bytes(attempt: int) -> None:
    sent = body(MATERIALIZED, attempt)
    assert json.loads(sent) == {
        "episode_id": {"rollout_id": "12-1", "attempt": attempt},
        "task": {"task_id": json.loads(TASK), "task_input": json.loads(INPUT)},
    }
    assert TASK in sent
    assert INPUT in sent


def test_an_explicit_rollout_id_stands_in_the_episode() -> None:
    line = MATERIALIZED.replace(b'"_ng_task_index"', b'"_ng_rollout_id":"run7-12-1","_ng_task_index"')
    assert json.loads(body(line, 3))["episode_id"] == {"rollout_id": "run7-12-1", "attempt": 3}


def test_a_task_input_of_any_type_makes_a_row_materialized() -> None:
    assert json.loads(body(b'{"task_id":{"taskset":"t","task_id":"1"},"task_input":null,"_ng_rollout_id":"r"}')) == {
        "episode_id": {"rollout_id": "r", "attempt": 0},
        "task": {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": None},
    }


@pytest.mark.parametrize("attempt", [-1, True, 1.0, "1", None])
def test_an_attempt_that_is_no_count_is_refused(attempt: int) -> None:
    for line in (FLAT, MATERIALIZED):
        with pytest.raises(ValueError, match=keys.ATTEMPT_INDEX):
            run_body(line, read_identity(line), attempt)


@pytest.mark.parametrize("own_id", ["", "-a", "a b", "é", "a/b", "a\n"])
def test_a_malformed_rollout_id_is_refused_for_every_row(own_id: str) -> None:
    for line in (FLAT, MATERIALIZED):
        identity = read_identity(line[:-1] + b',"_ng_rollout_id":%b}' % json.dumps(own_id).encode())
        with pytest.raises(ValueError, match=keys.ROLLOUT_ID):
            run_body(line, identity, 0)


def test_an_episode_id_never_ends_like_an_attempt_but_a_flat_row_may() -> None:
    flat, materialized = (row[:-1] + b',"_ng_rollout_id":"r-a2"}' for row in (FLAT, MATERIALIZED))
    assert body(flat) == flat
    with pytest.raises(ValueError, match="-a<number>"):
        body(materialized)


def test_a_materialized_task_without_identity_is_refused() -> None:
    line = b'{"task_id":{"taskset":"t","task_id":"1"},"task_input":{}}'
    with pytest.raises(ValueError, match=keys.TASK_INDEX):
        run_body(line, read_identity(line), 0)
    with pytest.raises(ValueError, match=keys.TASK_INDEX):
        run_body(line, RowIdentity(task_id=read_identity(line).task_id, task_input=read_identity(line).task_input), 0)

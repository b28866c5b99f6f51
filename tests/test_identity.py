"""Who a rollout is, read from its line."""

import msgspec
import pytest

from gym_ray.identity import ABSENT, capture_key, ends_in_attempt_suffix, is_rollout_id, read_identity

FLAT = b'{"_ng_task_index":1,"_ng_rollout_index":2,"agent_ref":{"name":"a","type":"x"},"text":%b}'


@pytest.mark.parametrize("text", [b'"plain"', b'"\\ud800"', b"123456789012345678901234567890", b'"\\u00e9"'])
def test_a_flat_row_is_read_whatever_else_it_holds(text: bytes) -> None:
    identity = read_identity(FLAT % text)
    assert (identity.task_index, identity.rollout_index, identity.own_id) == (1, 2, "1-2")
    assert (identity.agent_name, identity.is_materialized) == ("a", False)
    assert identity.task_source is ABSENT


@pytest.mark.parametrize("text", ["plain", "\\ud800"])
def test_a_materialized_row_keeps_its_parts(text: str) -> None:
    identity = read_identity(
        b'{"task_id":{"taskset":"s"},"task_input":{"q":"%b"},"_ng_rollout_id":"r"}' % text.encode()
    )
    assert identity.is_materialized
    assert identity.own_id == "r"
    assert text.encode() in bytes(identity.task_input)


@pytest.mark.parametrize(
    "line", [b"", b"[1]", b'"\\ud800"', b"{", b'{"_ng_task_index":"1"}', b'{"_ng_task_index":"1","t":"\\ud800"}']
)
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_identity(line)


def test_ids_and_keys() -> None:
    assert capture_key("1-2", 0) == "1-2"
    assert capture_key("1-2", 3) == "1-2-a3"
    assert is_rollout_id("r9.f_2-1")
    assert not is_rollout_id(".x")
    assert not is_rollout_id("a/b")
    assert ends_in_attempt_suffix("x-a1")
    assert not ends_in_attempt_suffix("x-a01")

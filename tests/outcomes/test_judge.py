"""What each reply means, and the line that is kept of it."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray import keys
from gym_ray.identity import RowIdentity
from gym_ray.outcomes.judge import internal_fault, lost
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.outcomes.reply import Delivery
from tests.outcomes.samples import (
    FLAT,
    MATERIALIZED,
    RUN,
    SERVER,
    STAMPS,
    TASK_ID,
    flat,
    materialized,
    of,
    of_body,
    of_episode,
    of_silence,
    record,
    refuse,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["reward", "response", "mask_sample", "x", "", "failure_kind", "é", "\ud800", "agent_ref", "_ng_result_type"]
) | st.text(max_size=4)
bodies = st.dictionaries(names, json_values, max_size=6).map(
    lambda body: body | ({"reward": 1} if "reward" in body else {})
)


def encoded(body: Any, indent: int | None, ascii_only: bool) -> bytes:
    return json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


# No reply, and replies of another status


def test_no_reply_is_a_request_that_failed() -> None:
    outcome = of_silence(tries=3)
    assert outcome.kind is OutcomeKind.FAILURE
    assert outcome.failure_class == keys.AGENT_REQUEST_FAILED
    assert record(outcome) == STAMPS | {
        "_ng_failure_class": "agent_request_failed",
        "_ng_failure_type": "ClientConnectorError",
        "_ng_failure_message": "no",
        "_ng_failure_http_status": None,
        "_ng_failure_response_body": None,
        "_ng_failure_sends": 0,
        "_ng_failure_tries": 3,
        "_ng_failure_record": {
            "schema_version": 1,
            "episode_id": {"rollout_id": "12-1", "attempt": 0},
            "run_id": RUN,
            "source": "collector",
            "delivery": "not_sent",
            "failure": {"failure_reason": "no", "terminal": False, "failure_kind": "transport_unreachable"},
            "http_status": None,
            "exception_type": "ClientConnectorError",
        },
    }


@pytest.mark.parametrize(
    ("status", "failure_class"),
    [(None, "agent_request_failed"), (200, "agent_run_error"), (503, "agent_request_failed")],
)
def test_a_body_that_broke_off_counts_by_its_status(status: int | None, failure_class: str) -> None:
    maybe = Delivery.POSSIBLY_DELIVERED
    outcome = of_silence("transport_peer_drop", delivery=maybe, status=status, sends=1)
    assert outcome.failure_class == failure_class
    assert record(outcome)["_ng_failure_http_status"] == status
    assert record(outcome)["_ng_failure_record"]["delivery"] == "possibly_delivered"


def test_an_error_without_words_is_named_by_its_type() -> None:
    assert record(of_silence(message=""))["_ng_failure_message"] == "ClientConnectorError"


@pytest.mark.parametrize(
    ("status", "failure_class", "delivery"),
    [
        (429, "agent_request_failed", "possibly_delivered"),
        (502, "agent_request_failed", "possibly_delivered"),
        (503, "agent_request_failed", "possibly_delivered"),
        (504, "agent_request_failed", "possibly_delivered"),
        (500, "agent_run_error", "delivered"),
        (422, "agent_run_error", "delivered"),
        (302, "agent_run_error", "delivered"),
        (404, "agent_run_error", "delivered"),
    ],
)
def test_a_status_says_whether_the_server_ran_it(status: int, failure_class: str, delivery: str) -> None:
    outcome = of_body(b'{"reward":1}', status=status, sends=2, tries=3)
    row = record(outcome)
    assert outcome.failure_class == row["_ng_failure_class"] == failure_class
    assert row["_ng_failure_http_status"] == row["_ng_failure_record"]["http_status"] == status
    assert row["_ng_failure_response_body"] == '{"reward":1}'
    assert (row["_ng_failure_sends"], row["_ng_failure_tries"]) == (2, 3)
    assert row["_ng_failure_record"]["delivery"] == delivery
    assert "reward" not in row


def test_a_status_outside_of_those_of_http_still_leaves_a_record() -> None:
    assert record(of_body(b"", status=999))["_ng_failure_http_status"] == 999


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_2xx_is_read(status: int) -> None:
    assert of_body(b"{}", status=status).kind is OutcomeKind.RESULT


def test_the_text_of_an_error_body_is_bounded_and_repaired() -> None:
    text = record(of_body(b"\xff" + "é".encode() * 150_000, status=500))["_ng_failure_response_body"]
    assert len(text) == 2000
    assert text.startswith("\ufffdé")
    assert text.endswith("é…")
    assert record(of_body(b"", status=500))["_ng_failure_response_body"] is None


# Bodies that are no JSON objects


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"<html>login required</html>",
        b'{"reward": NaN}',
        b'{"reward": -Infinity}',
        b'{"x": NaN, "y": "\\ud800"}',
        b'{"x": Infinity, "y": "\\ud800"}',
        b'{"reward": 1',
        b'{"reward": 1}}',
        b'{"reward": 1,}',
        b'{"x": "a\nb"}',
        b'{"x": "a\tb"}',
        b'{"x": "\xff"}',
        b'{"x": "\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"reward": 1}',
        '{"reward": 1}'.encode("utf-16"),
        b'{"x": "\\ud800" "y": 1}',
        b'{"x": "\\ud800"} {}',
        b'{"x": "\\ud800",}',
        b'{"x": "\\u12"}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"y":"\\ud800","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_is_no_json_is_a_run_that_broke(body: bytes) -> None:
    for identity in (FLAT, MATERIALIZED):
        row = record(of_body(body, identity))
        assert row["_ng_failure_class"] == "agent_run_error"
        assert row["_ng_failure_http_status"] == 200
        assert row["_ng_failure_type"] == "JSONDecodeError"


@pytest.mark.parametrize(
    "body", [b"[]", b'[{"reward": 1.0}]', b'"x"', b"null", b"true", b"1", b'["\\ud800"]', b'"\\ud800"']
)
def test_a_body_that_is_no_object_is_a_run_that_broke(body: bytes) -> None:
    for identity in (FLAT, MATERIALIZED):
        row = record(of_body(body, identity))
        assert row["_ng_failure_class"] == "agent_run_error"
        assert row["_ng_failure_type"] == "InvalidRolloutResult"
        assert "not a JSON object" in row["_ng_failure_message"]


# Results


@given(bodies, st.none() | st.integers(0, 2), st.booleans(), st.sampled_from(["", " ", "\r\n"]))
def test_a_result_is_the_reply_and_the_stamps(
    body: dict[str, Any], indent: int | None, ascii_only: bool, end: str
) -> None:
    try:
        raw = encoded(body, indent, ascii_only).decode().encode() + end.encode()
    except UnicodeDecodeError:
        raw = encoded(body, indent, True) + end.encode()
    outcome = of_body(raw)
    assert outcome.kind is OutcomeKind.RESULT
    assert record(outcome) == body | STAMPS
    if outcome.reply_bytes:
        assert json.loads(outcome.record[: outcome.reply_bytes] + b"}") == body
    else:
        assert not STAMPS.keys().isdisjoint(body)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    for identity in (FLAT, MATERIALIZED):
        for raw in (body, b'{"result":%b}' % body, b'{"_ng_failure_class":%b}' % body, b'{"reward":%b}' % body):
            outcome = of_body(raw, identity)
            assert outcome.kind is OutcomeKind.OMITTED or record(outcome)


@given(
    bodies,
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=2), st.integers(0, 2)), max_size=3),
)
def test_a_damaged_body_is_a_result_exactly_if_it_is_still_json(
    body: dict[str, Any], is_episode: bool, edits: list[tuple[int, bytes, int]]
) -> None:
    reply = {"episode_id": {"rollout_id": "12-1", "attempt": 0}, "task_id": TASK_ID, "result": body}
    raw = json.dumps(reply if is_episode else body).encode()
    for at, inserted, removed in edits:
        start = at % (len(raw) + 1)
        raw = raw[:start] + inserted + raw[start + removed :]
    outcome = of_body(raw, MATERIALIZED if is_episode else FLAT)
    row = record(outcome) if outcome.record else {}
    if outcome.kind is OutcomeKind.RESULT:
        value = json.loads(raw.decode())
        assert row == (value["result"] | {"_ng_task_id": TASK_ID} if is_episode else value) | STAMPS
    elif row.get("_ng_failure_type") == "JSONDecodeError":
        with pytest.raises((ValueError, AssertionError)):
            json.loads(raw.decode(), parse_constant=refuse)


@pytest.mark.parametrize(
    "body", [b"{}", b"{ }", b'{"a":1}', b'{"a":1 }', b' { "a" : 1 \n } ', b'{"a":1\r\n}\n', b'{"a":\r1}']
)
def test_white_space_of_a_reply_does_no_harm(body: bytes) -> None:
    outcome = of_body(body)
    assert record(outcome) == json.loads(body) | STAMPS
    assert json.loads(outcome.record[: outcome.reply_bytes] + b"}") == json.loads(body)


@pytest.mark.parametrize(
    "value", [b"1e400", b"12345678901234567890123", b"1.50", b"-0.0", b'"\\u00e9"', b'{"b" : 1,"b":2}', b"1E+2"]
)
@pytest.mark.parametrize("other", [b'"x"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'{"task_source":"y"}'])
def test_values_stay_as_the_server_wrote_them(value: bytes, other: bytes) -> None:
    for key in (b"other", b"task_source", b"\\udfff"):  # appended to, rebuilt, and read slowly
        outcome = of_body(b'{"v":%b,"%b":%b,"reward":1.50}' % (value, key, other))
        assert outcome.kind is OutcomeKind.RESULT
        assert b'"v":%b,' % value in outcome.record
        assert b'"reward":1.50' in outcome.record
        assert outcome.reward == 1.5


@given(st.integers(0, 9000), st.integers(4295, 4305), st.sampled_from(["", "-", '"', "0."]), st.booleans())
def test_an_integer_that_python_cannot_read_spoils_no_file(before: int, digits: int, sign: str, is_odd: bool) -> None:
    end = '"' if sign == '"' else ""
    body = json.dumps({"pad": "x" * before, "odd": "\ud800" if is_odd else ""})[:-1]
    outcome = of_body(f'{body}, "n": {sign}{"7" * digits}{end}, "more": "{"x" * 5000}"}}'.encode())
    assert (outcome.kind is OutcomeKind.RESULT) == (sign in ('"', "0.") or digits <= 4300)
    assert record(outcome)


@pytest.mark.parametrize("identity", [FLAT, MATERIALIZED])
def test_the_only_copy_of_a_large_reply_is_its_record(identity: RowIdentity) -> None:
    result = {"reward": 1.0, "response": {"output": ["x" * 1_000_000], "usage": {"total_tokens": 7}}}
    episode = {"episode_id": {"rollout_id": "12-1", "attempt": 0}, "task_id": TASK_ID, "result": result}
    body = json.dumps(episode if identity is MATERIALIZED else result).encode()
    of_body(body, identity)
    tracemalloc.start()
    try:
        outcome = of_body(body, identity)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (outcome.kind, outcome.tokens) == (OutcomeKind.RESULT, 7)
    assert peak < 1.2 * len(body)


def test_the_last_of_two_equal_keys_counts_as_everywhere() -> None:
    outcome = of_body(b'{"reward":0.0,"_ng_failure_class":"x","reward":1.0,"_ng_failure_class":null}')
    assert (outcome.kind, outcome.reward) == (OutcomeKind.RESULT, 1.0)
    assert record(outcome)["reward"] == 1.0


def test_stamps_that_the_server_echoes_are_not_written_twice() -> None:
    body = b'{"reward":1,"_ng_task_index":12,"_ng_rollout_index":1,"agent_ref": { "name":"maze_agent"}}'
    outcome = of_body(body)
    assert outcome.record[: outcome.reply_bytes] + b"}" == body
    assert record(outcome) == json.loads(body) | STAMPS
    assert outcome.record.count(b"agent_ref") == 1
    assert of(STAMPS).record == json.dumps(STAMPS).encode() + b"\n"


def test_a_stamp_that_the_server_wrote_differently_is_ours() -> None:
    outcome = of({"agent_ref": {"name": "other"}, "_ng_result_type": 1, "_ng_environment_server": None})
    assert record(outcome) == STAMPS
    assert outcome.reply_bytes == 0


def test_an_attempt_and_an_explicit_id_are_stamped() -> None:
    identity = flat(_ng_rollout_id="r-9", skills_ref={"path": "s"})
    expected = STAMPS | {"_ng_attempt_index": 2, "_ng_rollout_id": "r-9", "skills_ref": {"path": "s"}, "a": 1}
    assert record(of({"a": 1}, identity, attempt=2)) == expected


def test_a_row_without_identity_is_stamped_with_what_it_has() -> None:
    assert record(of({"a": 1}, RowIdentity())) == {
        "a": 1,
        "_ng_environment_server": "maze_env",
        "_ng_result_type": "legacy_agent",
    }


def test_a_replay_is_visible_in_a_result() -> None:
    assert record(of_body(b"{}", sends=2, tries=4)) == STAMPS | {"_ng_sends": 2}
    assert record(of_body(b"{}", sends=1, tries=4)) == STAMPS
    for part in ("result", "failure"):
        reply = {"episode_id": {"rollout_id": "12-1", "attempt": 0}, "task_id": TASK_ID, part: {}}
        assert record(of_body(json.dumps(reply).encode(), MATERIALIZED, sends=2))["_ng_sends"] == 2


@pytest.mark.parametrize(("reward", "read"), [("0", 0.0), ("1.0", 1.0), ("-2.5", -2.5), ("1e3", 1000.0), ("0.0", 0.0)])
def test_a_finite_reward_is_a_score(reward: str, read: float) -> None:
    outcome = of_body(b'{"reward":%b}' % reward.encode())
    assert (outcome.kind, outcome.reward, outcome.masked) == (OutcomeKind.RESULT, read, False)


def test_a_result_without_a_reward_is_unscored() -> None:
    outcome = of({"response": {}})
    assert (outcome.kind, outcome.reward) == (OutcomeKind.RESULT, None)


@pytest.mark.parametrize("reward", ["null", "true", '"1.0"', "[1]", "{}", "1e400", "-1e400", "9" * 400, '"\\ud800"'])
def test_a_reward_that_is_no_finite_number_is_a_run_that_broke(reward: str) -> None:
    outcome = of_body(b'{"reward":%b}' % reward.encode())
    assert outcome.failure_class == keys.AGENT_RUN_ERROR
    row = record(outcome)
    assert row["_ng_failure_type"] == "InvalidRolloutResult"
    assert "reward must be a finite number" in row["_ng_failure_message"]
    assert row["_ng_failure_response_body"].startswith('{"reward":')


@pytest.mark.parametrize(
    ("config", "masked"),
    [({"mask_sample": True}, True), ({"mask_sample": False}, False), ({}, False), ([True], False), (None, False)],
)
def test_a_mask_inside_of_the_instance_config_counts(config: object, masked: bool) -> None:
    assert of({"reward": 0.0, "instance_config": config}).masked is masked


@pytest.mark.parametrize(("mask", "masked"), [(True, True), (1, True), (False, False), (None, False), (0, False)])
def test_a_mask_is_read_by_its_truth(mask: object, masked: bool) -> None:
    assert of({"mask_sample": mask}).masked is masked


@pytest.mark.parametrize(
    ("response", "tokens"),
    [
        ({"usage": {"total_tokens": 449, "input_tokens": 412}}, 449),
        ({"usage": {"total_tokens": 0}}, 0),
        ({"usage": {}}, None),
        ({"usage": None}, None),
        ({"usage": {"total_tokens": "449"}}, None),
        ({"usage": {"total_tokens": -1}}, None),
        ({"usage": {"total_tokens": True}}, None),
        ({"usage": []}, None),
        ({}, None),
        ([], None),
        ("x", None),
        (None, None),
    ],
)
def test_the_tokens_of_a_result_are_read_where_they_are_reported(response: object, tokens: int | None) -> None:
    for odd in ("", "\ud800"):
        outcome = of({"odd": odd, "response": response, "reward": 1})
        assert (outcome.kind, outcome.reward, outcome.tokens) == (OutcomeKind.RESULT, 1.0, tokens)
        assert record(outcome) == {"odd": odd, "response": response, "reward": 1} | STAMPS


# Omitted, classified and stale replies


@pytest.mark.parametrize("value", [True, 1, "yes"])
def test_a_reply_that_asks_for_no_record_gets_none(value: object) -> None:
    outcome = of({"_ng_no_persist": value, "_ng_failure_class": "kill_shaped", "reward": "odd"})
    assert (outcome.kind, outcome.record, outcome.failure_class) == (OutcomeKind.OMITTED, b"", "kill_shaped")


@pytest.mark.parametrize("value", [False, 0, None, ""])
def test_a_no_persist_that_is_not_true_is_none(value: object) -> None:
    assert of({"_ng_no_persist": value}).kind is OutcomeKind.RESULT


def test_a_classified_reply_keeps_its_fields_and_gets_the_typed_record() -> None:
    reply = {
        "reward": 0.0,
        "_ng_failure_class": "judge_failed",
        "failure_kind": "judge_unparseable",
        "failure_reason": "no verdict",
        "_ng_failure_terminal": True,
        "response": {"output": [1]},
    }
    outcome = of(reply, attempt=2)
    assert (outcome.kind, outcome.failure_class, outcome.terminal) == (OutcomeKind.FAILURE, "judge_failed", True)
    assert outcome.reward is None
    typed = {
        "schema_version": 1,
        "episode_id": {"rollout_id": "12-1", "attempt": 2},
        "run_id": RUN,
        "source": "environment",
        "delivery": "delivered",
        "failure": {"failure_reason": "no verdict", "terminal": True, "failure_kind": "judge_unparseable"},
        "http_status": 200,
        "exception_type": None,
    }
    assert record(outcome) == reply | STAMPS | {"_ng_attempt_index": 2, "_ng_failure_record": typed}
    assert json.loads(outcome.record[: outcome.reply_bytes] + b"}") == reply


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"_ng_failure_class": "judge_failed"}, {"failure_kind": "judge_failed", "failure_reason": "judge_failed"}),
        ({"_ng_failure_class": "timeout_exceeded"}, {"failure_reason": "timeout_exceeded"}),
        ({"_ng_failure_class": "x", "_ng_failure_message": "m"}, {"failure_reason": "m"}),
        ({"_ng_failure_class": "x", "error": "e"}, {"failure_reason": "e"}),
        ({"_ng_failure_class": "x", "_ng_failure_judge_error": "j"}, {"failure_reason": "j"}),
        ({"_ng_failure_class": "x", "failure_reason": None, "error": "e"}, {"failure_reason": "e"}),
        ({"_ng_failure_class": "x", "failure_reason": {"a": 1}}, {"failure_reason": '{"a": 1}'}),
        ({"_ng_failure_class": "x", "failure_kind": "mine:odd_one"}, {"failure_kind": "mine:odd_one"}),
        ({"_ng_failure_class": "judge_failed", "failure_kind": "No Name"}, {"failure_kind": "judge_failed"}),
        ({"_ng_failure_class": "judge_failed", "failure_kind": 5}, {"failure_kind": "judge_failed"}),
        ({"_ng_failure_class": "x", "_ng_failure_stage": "agent"}, {"stage": "agent"}),
        ({"_ng_failure_class": "x", "_ng_failure_stage": "teatime"}, {}),
        ({"_ng_failure_class": "x", "failure_reason": "é" * 3000}, {"failure_reason": "é" * 1999 + "…"}),
        ({"_ng_failure_class": "x", "failure_reason": "a\ud800"}, {"failure_reason": "a?"}),
    ],
)
def test_the_typed_record_of_a_classified_reply_is_read_from_its_fields(
    fields: dict[str, Any], failure: dict[str, Any]
) -> None:
    for odd in ("", "\ud800"):
        row = record(of({"odd": odd} | fields))
        typed = row.pop("_ng_failure_record")
        assert row == {"odd": odd} | fields | STAMPS
        reason = {"failure_reason": fields["_ng_failure_class"]}
        assert typed["failure"] == {"terminal": False} | reason | failure


@pytest.mark.parametrize(
    ("value", "named"), [(5, "5"), (False, "false"), ({"a": 1}, '{"a": 1}'), ("", ""), ("\ud800", "?")]
)
def test_a_class_that_is_no_name_still_marks_a_failure(value: object, named: str) -> None:
    outcome = of({"_ng_failure_class": value, "reward": 1.0})
    assert (outcome.kind, outcome.failure_class) == (OutcomeKind.FAILURE, named)
    assert record(outcome)["_ng_failure_class"] == value


def test_a_long_class_is_bounded_outside_of_its_record() -> None:
    outcome = of({"_ng_failure_class": "x" * 5000})
    assert outcome.failure_class is not None
    assert len(outcome.failure_class) <= 2000
    assert record(outcome)["_ng_failure_class"] == "x" * 5000


@pytest.mark.parametrize("reward", ["odd", None, True, []])
def test_the_reward_of_a_classified_reply_does_not_matter(reward: object) -> None:
    outcome = of({"_ng_failure_class": "judge_failed", "reward": reward})
    assert (outcome.failure_class, outcome.reward) == ("judge_failed", None)


def test_a_typed_record_that_the_server_wrote_is_replaced() -> None:
    row = record(of({"_ng_failure_class": "x", "_ng_failure_record": {"mine": 1}}))
    assert row["_ng_failure_record"]["source"] == "environment"


@pytest.mark.parametrize(
    "echo",
    [
        {"_ng_task_index": 11},
        {"_ng_task_index": "12"},
        {"_ng_rollout_index": 2},
        {"_ng_rollout_index": True},
        {"_ng_attempt_index": 1},
        {"_ng_attempt_index": False},
        {"_ng_attempt_index": 1, "_ng_no_persist": True},
        {"_ng_attempt_index": 1, "_ng_failure_class": "x"},
    ],
)
def test_a_reply_for_another_attempt_is_stale(echo: dict[str, Any]) -> None:
    row = record(of({"reward": 1.0} | echo))
    assert row["_ng_failure_class"] == "agent_run_error"
    assert row["_ng_failure_type"] == "StaleRolloutResult"


@pytest.mark.parametrize(
    "echo",
    [{}, {"_ng_attempt_index": 0}, {"_ng_attempt_index": None}, {"_ng_task_index": 12.0}, {"_ng_task_index": None}],
)
def test_an_echo_that_agrees_or_says_nothing_is_no_fault(echo: dict[str, Any]) -> None:
    assert of({"reward": 1.0} | echo).kind is OutcomeKind.RESULT


def test_an_echo_is_not_compared_with_what_a_row_does_not_have() -> None:
    assert of({"_ng_task_index": 5}, RowIdentity(explicit_id="r")).kind is OutcomeKind.RESULT


# Episodes


@pytest.mark.parametrize("attempt", [0, 3])
def test_the_result_of_an_episode_is_the_record(attempt: int) -> None:
    result = {"reward": 1.0, "mask_sample": True, "response": {"usage": {"total_tokens": 7}}, "steps": 9}
    outcome = of_episode(result=result, failure=None, attempt=attempt)
    assert (outcome.kind, outcome.reward, outcome.masked, outcome.tokens) == (OutcomeKind.RESULT, 1.0, True, 7)
    expected = result | STAMPS | {"_ng_task_id": TASK_ID} | ({"_ng_attempt_index": attempt} if attempt else {})
    assert record(outcome) == expected
    assert outcome.reply_bytes == 0


@given(bodies, st.booleans())
def test_the_result_of_an_episode_keeps_its_values(result: dict[str, Any], is_spaced: bool) -> None:
    kept = {key: value for key, value in result.items() if not key.startswith(("_ng_", "ng_"))}
    reply = {"episode_id": {"rollout_id": "12-1", "attempt": 0}, "task_id": TASK_ID, "result": kept}
    outcome = of_body(json.dumps(reply, indent=1 if is_spaced else None).encode(), MATERIALIZED)
    assert outcome.kind is OutcomeKind.RESULT
    assert record(outcome) == kept | STAMPS | {"_ng_task_id": TASK_ID}


@pytest.mark.parametrize("odd", [b'"x"', b'"\\ud800"'])
def test_numbers_of_an_episode_stay_as_the_server_wrote_them(odd: bytes) -> None:
    head = b'{"episode_id":{"rollout_id":"12-1","attempt":0},"task_id":{"taskset":"maze:eval","task_id":"m-1"}'
    done = of_body(b'%b,"result":{"odd":%b,"n":1e400}}' % (head, odd), MATERIALIZED)
    assert b'"n":1e400' in done.record
    row = of_body(b'%b,"failure":{"stage":%b,"partial_response":{"n":1e400}}}' % (head, odd), MATERIALIZED).record
    assert b'"_ng_failure_partial_response":{"n":1e400}' in row
    assert b'"_ng_failure_stage":%b' % odd in row


def test_a_failed_episode_is_a_failure_with_its_facts() -> None:
    failure = {
        "failure_reason": "step budget",
        "terminal": True,
        "failure_kind": "agent_timeout",
        "stage": "agent",
        "partial_response": {"output": []},
    }
    outcome = of_episode(result=None, failure=failure, attempt=1)
    assert (outcome.kind, outcome.terminal) == (OutcomeKind.FAILURE, True)
    assert outcome.failure_class == "environment_server_failed"
    typed = {key: value for key, value in failure.items() if key != "partial_response"}
    assert record(outcome) == STAMPS | {
        "_ng_attempt_index": 1,
        "_ng_task_id": TASK_ID,
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": True,
        "_ng_failure_message": "step budget",
        "_ng_failure_stage": "agent",
        "_ng_failure_partial_response": {"output": []},
        "_ng_failure_record": {
            "schema_version": 1,
            "episode_id": {"rollout_id": "12-1", "attempt": 1},
            "run_id": RUN,
            "source": "environment",
            "delivery": "delivered",
            "failure": typed,
            "http_status": 200,
            "exception_type": None,
        },
    }


@pytest.mark.parametrize(
    "failure",
    [{}, {"terminal": "yes"}, {"terminal": 1, "stage": None}, {"failure_reason": 5, "failure_kind": []}, {"stage": 7}],
)
def test_an_odd_failure_of_an_episode_is_not_terminal(failure: dict[str, Any]) -> None:
    outcome = of_episode(failure=failure)
    assert (outcome.kind, outcome.terminal) == (OutcomeKind.FAILURE, False)
    row = record(outcome)
    assert row["_ng_failure_class"] == "environment_server_failed"
    assert row["_ng_failure_message"]
    assert row["_ng_failure_terminal"] is row["_ng_failure_record"]["failure"]["terminal"] is False


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"result": None, "failure": None},
        {"result": {}, "failure": {}},
        {"result": []},
        {"result": "x"},
        {"failure": []},
        {"failure": "boom"},
        {"failure": False},
        {"result": {"_ng_task_index": 1}},
        {"result": {"_ng_anything": 1, "a": "\ud800"}},
        {"result": {"ng_perf": {}}},
        {"result": {"ng_trajectory": {}}},
        {"result": {"ng_model_call_capture": {}}},
        {"result": {"reward": None}},
        {"result": {}, "task_id": {"taskset": "maze:eval", "task_id": "m-2"}},
        {"result": {}, "task_id": None},
        {"result": {}, "task_id": "m-1"},
        {"result": {}, "episode_id": None},
        {"result": {}, "episode_id": "12-1"},
        {"result": {}, "episode_id": {}},
    ],
)
def test_an_episode_of_the_wrong_shape_is_a_run_that_broke(parts: dict[str, Any]) -> None:
    outcome = of_episode(**parts)
    assert outcome.failure_class == keys.AGENT_RUN_ERROR
    assert record(outcome)["_ng_failure_type"] == "InvalidRolloutResult"


@pytest.mark.parametrize(
    "episode_id",
    [
        {"rollout_id": "12-1", "attempt": 1},
        {"rollout_id": "12-2", "attempt": 0},
        {"rollout_id": "12-1", "attempt": False},
    ],
)
def test_an_episode_of_another_attempt_is_stale(episode_id: dict[str, Any]) -> None:
    assert record(of_episode(episode_id=episode_id, result={}))["_ng_failure_type"] == "StaleRolloutResult"


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_a_line_break_in_the_text_of_an_episode_is_no_json(end: bytes) -> None:
    head = b'{"episode_id":{"rollout_id":"12-1","attempt":0},"task_id":{"taskset":"maze:eval","task_id":"m-1"}'
    outcome = of_body(b'%b,"result":{"a":"x%by"}}' % (head, end), MATERIALIZED)
    assert record(outcome)["_ng_failure_type"] == "JSONDecodeError"


def test_an_episode_without_a_task_id_is_a_run_that_broke() -> None:
    outcome = of({"episode_id": {"rollout_id": "12-1", "attempt": 0}, "result": {}}, MATERIALIZED)
    assert record(outcome)["_ng_failure_type"] == "InvalidRolloutResult"


@pytest.mark.parametrize("key", ["_ng_failure_class", "reward", "_ng_task_index", "_ng_no_persist", "agent_ref", "x"])
def test_no_depth_of_nesting_makes_it_raise(key: str) -> None:
    for depth in range(800, 1100):
        body = b'{"%b":%b1%b}' % (key.encode(), b"[" * depth, b"]" * depth)
        for identity in (FLAT, MATERIALIZED):
            of_body(body, identity)
            of_body(b'{"episode_id":{},"result":%b}' % body, identity)


def test_reserved_keys_are_named() -> None:
    message = record(of_episode(result={"_ng_b": 1, "ng_perf": 1, "x": 1}))["_ng_failure_message"]
    assert "_ng_b, ng_perf" in message


def test_an_episode_may_be_answered_with_a_classified_reply() -> None:
    assert of({"_ng_failure_class": "skipped"}, MATERIALIZED).failure_class == "skipped"
    assert of({"_ng_failure_class": "kill_shaped", "_ng_no_persist": True}, MATERIALIZED).kind is OutcomeKind.OMITTED
    assert of({"reward": 1.0}, MATERIALIZED).failure_class == keys.AGENT_RUN_ERROR


def test_an_explicit_id_is_that_of_the_episode() -> None:
    identity = materialized(_ng_rollout_id="r-9")
    assert of_episode(identity=identity, episode_id={"rollout_id": "r-9", "attempt": 0}, result={}).kind == 0


# Failures without a reply


def test_an_attempt_of_a_lost_shard_keeps_its_evidence() -> None:
    for delivery in Delivery:
        outcome = lost(FLAT, 1, SERVER, "shard 2 died", delivery, RUN)
        row = record(outcome)
        assert outcome.failure_class == keys.AGENT_REQUEST_FAILED
        assert row["_ng_failure_record"]["delivery"] == delivery
        assert row["_ng_attempt_index"] == 1


@pytest.mark.parametrize(
    "error", [ValueError("a\ud800 http://u:s3cret@h/"), SystemExit(1), ValueError(), RuntimeError("x" * 5000)]
)
def test_a_fault_of_ours_is_a_failure_whose_delivery_is_not_known(error: BaseException) -> None:
    outcome = internal_fault(FLAT, 0, SERVER, error, RUN)
    row = record(outcome)
    assert outcome.failure_class == keys.AGENT_RUN_ERROR
    assert row["_ng_failure_type"] == type(error).__name__
    assert 0 < len(row["_ng_failure_message"]) <= 2000
    assert "s3cret" not in row["_ng_failure_message"]
    assert row["_ng_failure_record"]["delivery"] == "possibly_delivered"


@pytest.mark.parametrize("identity", [RowIdentity(), flat(_ng_rollout_id="r-a2"), flat(_ng_rollout_id="no id")])
def test_a_row_whose_id_cannot_stand_in_a_typed_record_keeps_the_plain_facts(identity: RowIdentity) -> None:
    for outcome in (of_silence(identity=identity), of({"_ng_failure_class": "x"}, identity)):
        assert outcome.kind is OutcomeKind.FAILURE
        row = record(outcome)
        assert row["_ng_failure_class"]
        assert "_ng_failure_record" not in row

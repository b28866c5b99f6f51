"""What looks wrong with results, and failures that are the same but for their numbers."""

import json
from typing import Any

import pytest

from gym_ray.observe.quality import Quality, finding_lines
from gym_ray.observe.signatures import MAX_CHARS, Signatures, signature_of


def result(text: str | None = "hello", reward: float | None = 1.0, **fields: Any) -> bytes:
    output = [] if text is None else [{"type": "message", "content": [{"text": text}]}]
    response = {"output": output, "usage": {"output_tokens": 0 if text is None else 5}}
    record = {"_ng_environment_server": "env", "response": response, **fields}
    return json.dumps(record if reward is None else {**record, "reward": reward}).encode()


def found(*results: tuple[tuple[int, int], bytes], failures: dict[str, int] | None = None) -> dict[str, Any]:
    quality = Quality()
    for key, line in results:
        quality.add(key, line)
    return quality.findings(failures or {})


def test_healthy_results_are_not_talked_about() -> None:
    results = [((task, repeat), result(f"{task}{repeat}", float(repeat))) for task in range(8) for repeat in range(3)]
    assert found(*results) == {}
    assert found() == {}


def test_each_check_finds_its_own() -> None:
    assert found(((3, 1), result(None))) == {"no_model_activity": {"count": 1, "examples": ["3-1"]}}
    assert found(((3, 1), result(reward=None))) == {"no_reward": {"count": 1, "examples": ["3-1"]}}
    same = [((4, repeat), result("cached", float(repeat))) for repeat in range(3)]
    assert found(*same) == {"same_reply": {"count": 1, "examples": [4]}}
    assert found(*same[:2]) == {}, "two may be chance"
    constant = [((task, 0), result(str(task), 0.0)) for task in range(10)]
    assert found(*constant) == {"same_reward": {"count": 1, "examples": ["env"]}}
    twice = [((task, 0), result(str(task), float(task), response={"id": "r", "output": [task]})) for task in range(2)]
    assert found(*twice)["duplicate_response_id"] == {"count": 2, "examples": ["0-0", "1-0"]}
    assert found(failures={"dead": 3, "fine": 0})["server_without_results"]["examples"] == ["dead"]


def test_results_of_an_odd_shape_do_not_break_it() -> None:
    odd = [
        b'{"response":"text"}',
        b'{"response":{"usage":[1]}}',
        b'{"reward":"x","response":null}',
        b"[",
        b'{"reward":1}',
    ]
    found(*(((number, 0), line) for number, line in enumerate(odd)))


def test_findings_are_told_with_examples() -> None:
    findings = found(*(((number, 0), result(None, float(number))) for number in range(20)))
    (line,) = finding_lines(findings)
    assert finding_lines({"no_reward": {"count": 1, "examples": ["3-0"]}}) == [
        "look at this: 1 result has no reward (3-0)"
    ]
    assert line == "look at this: 20 results show no activity of a model (0-0, 1-0, 2-0, 3-0, 4-0, …)"
    assert len(findings["no_model_activity"]["examples"]) == 10


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("503, url='http://10.0.0.5:1/run'", "503, url='http://10.0.0.9:2/run'"),
        ("no reply within 1.5 s", "no reply within 30 s"),
        ("lost 123e4567-e89b-12d3-a456-426614174000", "lost 00000000-e89b-12d3-a456-426614174000"),
        ("object at 0x7f4ddcd85710", "object at 0x7f4ddce85711"),
    ],
)
def test_failures_that_differ_in_numbers_are_one_kind(one: str, other: str) -> None:
    signatures = Signatures()
    for rollout, message in (("1-0", one), ("2-0", other)):
        signatures.add(rollout, {"_ng_failure_class": "c", "_ng_failure_message": message})
    (group,) = signatures.ranked()
    assert (group.count, group.examples) == (2, ["1-0", "2-0"])


def test_a_signature_names_class_kind_type_and_status() -> None:
    failure = {
        "_ng_failure_class": "agent_request_failed", "_ng_failure_type": "ClientResponseError",
        "_ng_failure_http_status": 503, "_ng_failure_message": "x" * 1000,
        "_ng_failure_record": {"failure": {"failure_kind": "transport_timeout"}},
    }  # fmt: skip
    text = signature_of(failure)
    assert text.startswith("agent_request_failed / transport_timeout / ClientResponseError / HTTP 503: xxx")
    assert len(text) < MAX_CHARS + 100
    assert signature_of({}) == "unclassified"
    assert signature_of({"_ng_failure_record": "odd", "_ng_failure_class": 5}) == "5"

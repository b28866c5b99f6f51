"""The end of a run: a verdict that holds, and nothing of others that acts on a terminal."""

from dataclasses import replace

import pytest

from gym_ray.observe.printable import printable
from gym_ray.observe.report import RunReport, seconds
from gym_ray.observe.tally import Progress, ServerProgress


def progress(**counts: int) -> Progress:
    base = {"planned": 10, "results": 10, "failures": 0, "drained": 0, "omitted": 0, "terminal_failures": 0} | counts
    return Progress(
        **base,
        in_flight=0,
        cap=4,
        elapsed_s=1.0,
        rate_per_s=1.0,
        eta_s=None,
        reward_sum=5.0,
        rewarded=10,
        masked=0,
        retries=0,
    )


def entry(**more: object) -> dict[str, object]:
    return {"agent_ref": {"name": "a"}, "_ng_environment_server": "env", "key_metrics": {"mean/reward": 0.5}, **more}


FAILED = {
    "aggregation_error": {"type": "HTTPError", "message": "500\x1b[2J", "http_status": 500, "response_body": None}
}


@pytest.mark.parametrize(
    ("counts", "metrics", "code"),
    [
        ({}, (entry(),), 0),
        ({"results": 9, "failures": 1}, (), 3),
        ({"results": 9, "failures": 1, "terminal_failures": 1}, (), 0),
        ({"results": 9, "omitted": 1}, (), 3),
        ({"results": 9, "drained": 1}, (), 3),
        ({"results": 9}, (), 3),
        ({}, (entry(**FAILED),), 4),
        ({"results": 9}, (entry(**FAILED),), 3),
    ],
)
def test_the_exit_code_says_what_to_do(
    counts: dict[str, int], metrics: tuple[dict[str, object], ...], code: int
) -> None:
    report = RunReport("r", progress(**counts), metrics)
    assert report.exit_code == code
    assert ("INCOMPLETE" in next(report.lines())) is (not report.is_complete)


def test_the_text_states_the_equation() -> None:
    text = "\n".join(RunReport("r", progress(results=7, failures=2), (entry(),)).lines())
    assert "planned 10 = results 7 + failures 2 + drained 0 + omitted 0 + owed 1" in text
    assert "mean/reward  0.5000" in text


def test_a_server_without_a_single_result_is_named() -> None:
    servers = {"dead\x07": ServerProgress(2, 0, 2, None), "well": ServerProgress(8, 7, 1, 0.5)}
    text = "\n".join(RunReport("r", replace(progress(), servers=servers)).lines())
    assert "dead\\x07: nothing to aggregate, none of 2 rollouts has a result" in text
    assert "well" not in text


def test_text_of_a_server_is_made_printable() -> None:
    text = "\n".join(RunReport("r", progress(), (entry(**FAILED),)).lines())
    assert "\x1b" not in text
    assert "500\\x1b[2J" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 猫", "plain ünïcode 猫"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_what_is_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_durations_read_well() -> None:
    assert [seconds(value) for value in (0.0123, 5, 150, 7260)] == ["12 ms", "5.0 s", "2 min 30 s", "2 h 01 min"]

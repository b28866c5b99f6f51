"""Runs that go on without their terminal, and what another terminal can do to them."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gym_ray.example import example_rows
from gym_ray.recording.run_names import run_at
from gym_ray.recording.verification import verify_run
from tests.cli.program import Ended, gym_ray

LONG = (
    "run",
    "--example",
    "--latency",
    "100ms..300ms",
    "--concurrency",
    "8",
    "--executor",
    "local",
    "--display",
    "none",
)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out" / "r.jsonl"


def detach(output: Path, *more: str) -> Ended:
    return gym_ray(*LONG, "--input", example_rows("arithmetic"), "--output", output, "--detach", *more)


def status(output: Path) -> dict[str, Any]:
    return gym_ray("status", output, "--json").report


def pid_of(output: Path) -> int:
    return int(json.loads((output.parent / ".r.holder").read_text())["pid"])


def test_a_run_goes_on_without_its_terminal_until_it_is_stopped_and_a_resume_finishes_it(output: Path) -> None:
    started = detach(output, "--num-repeats", "3")
    assert started.code == 0, started.err
    assert f"gym-ray stop {output}" in started.err
    assert status(output)["state"] == "running"
    assert os.getsid(pid_of(output)) != os.getsid(0)
    stopped = gym_ray("stop", output, "--json")
    assert stopped.code == 3
    assert 0 < stopped.report["remaining"] == 720 - stopped.report["completed"]
    assert "the run is asked to stop" in (output.parent / "r.log").read_text()
    fast = gym_ray(
        "run", "--example", "--input", example_rows("arithmetic"), "--output", output, "--executor", "local",
        "--num-repeats", "3", "--resume", "--display", "none",
    )  # fmt: skip
    assert fast.code == 0, fast.err
    assert verify_run(run_at(str(output))).is_sound


def test_a_stop_can_cancel_what_is_in_flight(output: Path) -> None:
    assert detach(output, "--num-repeats", "3").code == 0
    stopped = gym_ray("stop", output, "--cancel", "--json")
    assert stopped.code == 3
    assert stopped.report["state"] == "incomplete"
    assert gym_ray("stop", output).code == 3  # it has stopped already
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(pid_of(output)).wait(5)
        psutil.Process(pid_of(output))


def test_attaching_shows_the_run_until_it_ends(output: Path) -> None:
    assert detach(output, "--limit", "40").code == 0
    watched = gym_ray("attach", output)
    assert watched.code == 0
    assert "planned 40 = results 40" in watched.out
    assert "complete after" in watched.out  # its log


def test_the_shards_of_a_running_run_can_be_changed(output: Path) -> None:
    assert detach(output, "--num-repeats", "3").code == 0
    scaled = gym_ray("scale", output, "5", "--json")
    assert (scaled.code, scaled.report["shards"]) == (0, 5)
    assert gym_ray("stop", output, "--cancel").code == 3
    too_late = gym_ray("scale", output, "2")
    assert too_late.code == 2
    assert "the run is incomplete, so it has no shards" in too_late.err


def test_what_is_wrong_with_a_command_is_said_before_it_is_left_alone(output: Path, tmp_path: Path) -> None:
    rows = tmp_path / "bad.jsonl"
    rows.write_text('{"responses_create_params": {"input": "q"}, "agent_ref": {"name": "nobody"}}\n')
    ended = gym_ray("run", "--example", "--input", rows, "--output", output, "--executor", "local", "--detach")
    assert ended.code == 2
    assert "nobody" in ended.err
    assert detach(output, "--concurrency", "0").code == 2


def test_a_second_one_is_refused_with_who_is_there(output: Path) -> None:
    assert detach(output).code == 0
    second = detach(output, "--resume")
    assert second.code == 2
    assert f"process {pid_of(output)}" in second.err
    assert gym_ray("stop", output, "--cancel").code == 3


def test_a_terminal_that_closes_is_like_a_termination(output: Path) -> None:
    assert detach(output, "--num-repeats", "3", "+grace_s=1").code == 0
    process = psutil.Process(pid_of(output))
    process.send_signal(signal.SIGHUP)
    psutil.wait_procs([process], timeout=10)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    until = time.monotonic() + 5
    while status(output)["state"] == "running" and time.monotonic() < until:
        time.sleep(0.1)
    assert status(output)["state"] == "incomplete"

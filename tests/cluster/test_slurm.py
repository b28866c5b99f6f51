"""`cluster/slurm.sbatch` on a Slurm of this machine, with gym-ray as it is and without Ray."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gym_ray.example import ExampleDeployment, LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows
from gym_ray.recording.run_names import run_at
from gym_ray.recording.verification import verify_run
from tests.cluster.slurm import HERE, SCRIPT, SlurmJob

PLANNED = 40
SCRIPTS = [SCRIPT, *sorted((HERE / "slurm_bin").iterdir()), *sorted((HERE / "fake_bin").iterdir())]


@pytest.fixture
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(latency=LatencyRange(0.05, 0.1)), ledger=LedgerOptions(capacity=1000)) as deployment:
        yield deployment


def job_for(tmp_path: Path, head: str, **facts: object) -> SlurmJob:
    arguments = ["-i", str(example_rows("arithmetic")), "-o", str(tmp_path / "out" / "r.jsonl"), "--head", head]
    arguments += ["--limit", str(PLANNED), "--concurrency", "4"]
    path = f"{HERE / 'fake_bin'}:{os.environ['PATH']}"
    return SlurmJob(tmp_path, arguments, path, job_id=4711, **facts)  # type: ignore[arg-type]


def results(tmp_path: Path) -> list[tuple[int, int]]:
    lines = [line for path in (tmp_path / "out").glob("r-?.jsonl") for line in path.read_bytes().splitlines()]
    return [(record["_ng_task_index"], record["_ng_rollout_index"]) for record in map(json.loads, lines)]


def executions(served: ExampleDeployment) -> int:
    return sum(len(server.stats()["executions"]) for server in served.servers.values())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_sound(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    if (shellcheck := shutil.which("shellcheck")) is not None:
        done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_warning_comes_early_enough_for_the_grace() -> None:
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", SCRIPT.read_text(), re.MULTILINE))
    assert options["open-mode"] == "append"
    assert "requeue" in options
    target, warning_s = options["signal"].split("@")
    assert target == "B:USR1"
    (grace_s,) = re.findall(r"^grace_s=\$\{GRACE_S:-(\d+)\}$", SCRIPT.read_text(), re.MULTILINE)
    assert int(grace_s) + 60 <= int(warning_s)


def test_a_job_that_runs_out_of_time_is_requeued_and_goes_on(tmp_path: Path, served: ExampleDeployment) -> None:
    job = job_for(tmp_path, served.head_address)
    code = job.run(signal_when=lambda: len(results(tmp_path)) >= 6)
    assert (code, job.requeues) == (3, 1), job.log
    assert 6 <= len(results(tmp_path)) < PLANNED
    job.restarts, job.minutes = 1, 30.0
    assert job.run() == 0, job.log
    assert job.requeues == 1
    assert len(results(tmp_path)) == len(set(results(tmp_path))) == executions(served) == PLANNED
    assert verify_run(run_at(tmp_path / "out" / "r.jsonl")).is_sound


def test_a_job_whose_deadline_comes_first_starts_nothing_and_is_requeued(
    tmp_path: Path, served: ExampleDeployment
) -> None:
    job = job_for(tmp_path, served.head_address, minutes=3.0)  # less than the grace
    assert (job.run(), job.requeues) == (3, 1), job.log
    assert results(tmp_path) == []


def test_what_outlasts_the_grace_is_cancelled_and_requeued(tmp_path: Path) -> None:
    with example_in_thread(Profile(latency=LatencyRange(60.0, 60.0))) as served:
        job = job_for(tmp_path, served.head_address, variables={"GRACE_S": "0.2"})
        in_flight = lambda: sum(server.stats()["in_flight"] for server in served.servers.values()) == 4  # noqa: E731
        assert (job.run(signal_when=in_flight), job.requeues) == (138, 1), job.log


def test_a_cancelled_job_drains_and_stays_away(tmp_path: Path, served: ExampleDeployment) -> None:
    job = job_for(tmp_path, served.head_address)
    code = job.run(signal_when=lambda: len(results(tmp_path)) >= 6, number=signal.SIGTERM)
    assert (code, job.requeues) == (143, 0), job.log
    assert len(results(tmp_path)) == executions(served)


def test_a_signal_before_the_run_begins_requeues_it(tmp_path: Path, served: ExampleDeployment) -> None:
    job = job_for(tmp_path, served.head_address, variables={"HEAD_IS_SLOW": "1"})
    assert job.run(signal_when=lambda: any(call.startswith("ray health-check") for call in job.calls)) == 3, job.log
    assert job.requeues == 1
    assert not any(call.startswith("gym-ray") for call in job.calls)


def test_wrong_settings_and_lost_patience_are_not_requeued(tmp_path: Path, served: ExampleDeployment) -> None:
    job = job_for(tmp_path, served.head_address)
    job.arguments += ["no_such_setting=1"]
    assert (job.run(), job.requeues) == (2, 0), job.log
    job = job_for(tmp_path, served.head_address, minutes=3.0, restarts=5, variables={"MAX_REQUEUES": "5"})
    assert (job.run(), job.requeues) == (3, 0)
    assert "incomplete after 5 requeues" in job.log


def test_a_refused_requeue_and_a_dead_head_are_told(tmp_path: Path, served: ExampleDeployment) -> None:
    job = job_for(tmp_path, served.head_address, minutes=3.0, variables={"SCONTROL_CODE": "1"})
    assert job.run() == 3
    assert "job 4711 cannot be requeued; the same sbatch goes on" in job.log
    job = job_for(tmp_path, served.head_address, variables={"HEAD_FAILS": "1"})
    (tmp_path / "calls.head").unlink()
    assert job.run() == 1
    assert "no port is free" in job.log
    assert "Ray on n1 has ended" in job.log


def test_every_node_gets_its_step_and_none_is_left_running(tmp_path: Path, served: ExampleDeployment) -> None:
    job = job_for(tmp_path, served.head_address, nodes="a,b,c", variables={"HEAD_IP": "10.1.2.3"})
    assert job.run() == 0, job.log
    head, workers = sorted((call for call in job.calls if call.startswith("srun ")), key=lambda call: "exclude" in call)
    assert "--nodes=1 --ntasks=1 --nodelist=a " in head
    assert "--nodes=2 --ntasks=2 --exclude=a " in workers
    started = [call for call in job.calls if call.startswith("ray start")]
    assert any("--head --node-ip-address=10.1.2.3 --port=24711 --temp-dir=/tmp/ray-4711" in call for call in started)
    assert any("--address=10.1.2.3:24711" in call for call in started)
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(HERE / "fake_bin" / "ray") in command]

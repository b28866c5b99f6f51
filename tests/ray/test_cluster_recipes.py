"""The recipes of `cluster/README.md` as they stand there, on clusters of this machine that are started by hand."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from gym_ray.example import ExampleDeployment, LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows
from gym_ray.recording.run_names import run_at
from gym_ray.recording.verification import verify_run
from tests.cluster.slurm import SlurmJob, wait_until

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
HAS_JOBS = all(find_spec(name) is not None for name in ("aiohttp_cors", "opencensus", "prometheus_client"))
"""Whether Ray was installed as ray[default], which has the job server."""
PLANNED = 120


def free_port(low: int = 0, high: int = 0) -> int:
    for port in range(low, high + 1):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError(f"no port from {low} to {high} is free")


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "SLURM_"))}
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    return (
        kept
        | {"PATH": path, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
        | more
    )


@contextmanager
def temporary_home() -> Iterator[Path]:
    """Removed in the end, with the processes that still name it."""
    home = Path(tempfile.mkdtemp(prefix="gk-"))  # short: Ray puts sockets below it, whose paths end at 107 bytes
    try:
        yield home
    finally:
        left = processes_of(home)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)
        shutil.rmtree(home, ignore_errors=True)


def processes_of(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if any(str(home) in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


class Cluster:
    """A head and a worker, each by its `ray start`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._has_job_server = False
        port, jobs_port = free_port(21000, 21999), free_port(22000, 22999)
        self.address = f"127.0.0.1:{port}"
        self.jobs_address = f"http://127.0.0.1:{jobs_port}"
        head = ["--head", "--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={home / 'h'}"]
        head += [f"--dashboard-port={jobs_port}", f"--include-dashboard={str(HAS_JOBS).lower()}"]
        self.head = self._start(*head)
        wait_until(lambda: self._ray("health-check", "--address", self.address).returncode == 0)
        self.worker = self._start(f"--address={self.address}")

    def _start(self, *flags: str) -> "subprocess.Popen[bytes]":
        flags += (f"--dashboard-agent-listen-port={free_port(23000, 23999)}", "--num-cpus=2", "--block")
        with (self.home / "nodes.log").open("ab") as log:
            return subprocess.Popen(
                [PROGRAMS / "ray", "start", *flags, "--object-store-memory=80000000"],
                env=environment(self.home), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _ray(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [PROGRAMS / "ray", *args],
            env=environment(self.home), capture_output=True, text=True, timeout=60, check=False, cwd=self.home,
        )  # fmt: skip

    def job(self, verb: str, *args: str) -> str:
        """What `ray job VERB` says; the job server is there later than the cluster."""
        if not self._has_job_server:
            wait_until(lambda: self._ray("job", "list", "--address", self.jobs_address).returncode == 0)
            self._has_job_server = True
        done = self._ray("job", verb, "--address", self.jobs_address, *args)
        return done.stdout + done.stderr

    def stop(self) -> None:
        for node in (self.worker, self.head):
            node.terminate()
        for node in (self.worker, self.head):
            node.wait(timeout=40)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with temporary_home() as home:
        cluster = Cluster(home)
        yield cluster
        cluster.stop()


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    profile = Profile(latency=LatencyRange(0.5, 1.0))
    with example_in_thread(profile, ledger=LedgerOptions(capacity=10_000)) as deployment:
        yield deployment


def run_flags(served: ExampleDeployment, out: Path, concurrency: int = 16) -> list[str]:
    rows = ["-i", str(example_rows("arithmetic")), "-o", str(out / "r.jsonl"), "--head", served.head_address]
    return [*rows, "--limit", str(PLANNED), "--concurrency", str(concurrency), "--shards", "2"]


def results(out: Path) -> list[int]:
    lines = [line for path in out.glob("r-?.jsonl") for line in path.read_bytes().splitlines()]
    return [json.loads(line)["_ng_task_index"] for line in lines]


def executions(served: ExampleDeployment) -> int:
    return sum(len(server.stats()["executions"]) for server in served.servers.values())


def is_whole(out: Path) -> bool:
    return sorted(results(out)) == list(range(PLANNED)) and verify_run(run_at(out / "r.jsonl")).is_sound


def test_a_cluster_by_hand_runs_the_example(cluster: Cluster, tmp_path: Path) -> None:
    run = [PROGRAMS / "gym-ray", "run", "--example", "--shards", "2", "-o", tmp_path / "r.jsonl", "--json"]
    done = subprocess.run(
        run, env=environment(cluster.home, RAY_ADDRESS=cluster.address),
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["coverage"]["results"] == 480
    assert cluster.head.poll() is cluster.worker.poll() is None


def test_a_slurm_job_that_runs_out_of_time_goes_on_on_a_new_ray(served: ExampleDeployment, tmp_path: Path) -> None:
    job_id = free_port(24000, 29999) - 20000
    job = SlurmJob(
        tmp_path, run_flags(served, tmp_path / "out"), f"{PROGRAMS}:{os.environ['PATH']}", job_id,
        variables={"HEAD_IP": "127.0.0.1"},
    )  # fmt: skip
    before = executions(served)
    code = job.run(signal_when=lambda: len(results(tmp_path / "out")) >= 20)
    assert (code, job.requeues) == (3, 1), job.log
    assert 20 <= len(results(tmp_path / "out")) < PLANNED
    assert "stopping: " in job.log
    job.restarts = 1
    assert (job.run(), job.requeues) == (0, 1), job.log
    assert is_whole(tmp_path / "out")
    assert executions(served) - before == PLANNED
    assert not processes_of(Path(f"/tmp/ray-{job_id}"))
    assert not Path(f"/tmp/ray-{job_id}").exists()


needs_jobs = pytest.mark.skipif(not HAS_JOBS, reason="ray is installed without [default], which has the job server")


@needs_jobs
def test_a_job_with_a_wheel_is_stopped_and_another_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    pip, site, env = [sys.executable, "-m", "pip"], tmp_path / "site", {"RAY_JOB_STOP_WAIT_TIME_S": "30"}
    build = ["wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, REPOSITORY]
    subprocess.run([*pip, *build], check=True, timeout=60)
    (wheel,) = tmp_path.glob("gym_ray-*.whl")
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", "--target", site, wheel], check=True, timeout=60)
    out = tmp_path / "out"

    # Longer than the three seconds that a stopped job has by default
    with example_in_thread(Profile(latency=LatencyRange(4.0, 5.0)), ledger=LedgerOptions(capacity=1000)) as served:
        run = ["python", "-m", "gym_ray", "run", *run_flags(served, out, concurrency=50), "--resume"]
        submit = ["--working-dir", str(site), "--runtime-env-json", json.dumps({"env_vars": env}), "--submission-id"]
        said = cluster.job("submit", "--no-wait", *submit, "r1-1", "--", *run, "grace_s=20")
        assert "'r1-1' submitted successfully" in said, said
        wait_until(lambda: len(results(out)) >= 20)
        assert "was stopped" in cluster.job("stop", "r1-1")
        assert 50 <= len(results(out)) == executions(served) < PLANNED, cluster.job("logs", "r1-1")
        assert "INCOMPLETE" in cluster.job("logs", "r1-1")
        assert "already exists" in cluster.job("submit", *submit, "r1-1", "--", *run)
        said = cluster.job("submit", *submit, "r1-2", "--", *run)
        assert "'r1-2' succeeded" in said, said
        assert executions(served) == PLANNED
    assert is_whole(out)


@needs_jobs
def test_a_job_with_a_checkout_says_how_it_ended(cluster: Cluster, served: ExampleDeployment, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "gym_ray", tmp_path / "checkout" / "gym_ray")
    run = [
        "python",
        "-m",
        "gym_ray",
        "run",
        *run_flags(served, tmp_path / "out"),
        "--limit",
        "4",
        "dispatch_budget_s=0",
    ]
    said = cluster.job("submit", "--working-dir", str(tmp_path / "checkout"), "--submission-id", "r2", "--", *run)
    assert "'r2' failed" in said
    assert "exit code 3" in cluster.job("status", "r2")

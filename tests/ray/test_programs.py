"""Whole programs on a Ray of their own: the README's code and the main job, as a user runs them."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gym_ray.example import ExampleDeployment, LedgerOptions, Profile, example_in_thread, example_rows
from tests.cli.program import gym_ray

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(), ledger=LedgerOptions(capacity=100_000)) as deployment:
        yield deployment


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Nothing of the session's cluster: these programs start their own."""
    with tempfile.TemporaryDirectory(prefix="gr-", ignore_cleanup_errors=True) as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        yield {**kept, "RAY_TMPDIR": home, "RAY_AUTH_MODE": "disabled"}


def code(name: str) -> str:
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def ran(program: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_async_example_of_the_readme_runs(
    served: ExampleDeployment, environment: dict[str, str], tmp_path: Path
) -> None:
    out = ran(code("async").replace("127.0.0.1:11000", served.head_address), tmp_path, environment)
    assert 0.0 <= float(out.strip().splitlines()[-1]) <= 1.0


def test_the_helper_example_of_the_readme_runs(
    served: ExampleDeployment, environment: dict[str, str], tmp_path: Path
) -> None:
    out = ran(code("helper").replace("127.0.0.1:11000", served.head_address), tmp_path, environment)
    assert len(json.loads(out.strip().splitlines()[-1])) == 4


def test_the_blocking_example_of_the_readme_runs(
    served: ExampleDeployment, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_bytes(example_rows("arithmetic").read_bytes())
    out = ran(code("blocking").replace("127.0.0.1:11000", served.head_address), tmp_path, environment)
    assert "planned 480 = results 480 + failures 0 + drained 0 + omitted 0 + owed 0" in out
    assert len((tmp_path / "out/rollouts.jsonl").read_bytes().splitlines()) == 480


def test_the_main_job_runs_on_ray_and_the_servers_count_the_same(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gym_ray", "run", "--example", "--num-repeats", "2", "--json", "-o", "out/r.jsonl"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["coverage"]["results"] == report["coverage"]["planned"] == 960
    lines = [json.loads(line) for line in (tmp_path / "out/r.jsonl").read_text().splitlines()]
    keys = Counter((line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines)
    assert keys == Counter((task, repeat) for task in range(480) for repeat in range(2))
    assert [entry["_ng_environment_server"] for entry in report["metrics"]] == [
        "arithmetic_environment_server",
        "calculator_tools_environment_server",
    ]
    assert "Traceback" not in done.stderr


def test_actors_without_a_place_are_an_error_with_the_numbers(environment: dict[str, str], tmp_path: Path) -> None:
    """A cluster without room: said within seconds, given up in bounded time."""
    program = """
import asyncio, sys, time
import ray
ray.init(address="local", num_cpus=0, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
from gym_ray.actors import remote
from gym_ray.actors.spec import DriverSpec, ShardSpec
from gym_ray.errors import ClusterError
remote.PATIENCE_S = 1.0

async def main():
    spec = DriverSpec(ShardSpec((), None, 8), 2, 8, spawn_timeout_s=2.0)
    try:
        async with remote.remote_driver(spec):
            print("placed")
    except ClusterError as error:
        print("refused:", error)

import logging
logging.basicConfig(stream=sys.stdout)
asyncio.run(main())
"""
    out = ran(program, tmp_path, environment)
    assert "Ray has not placed" in out
    assert "refused: Ray could not place" in out
    assert "the cluster has 0 free" in out


def test_a_cluster_that_is_not_there_is_named_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound and not listening: nobody else can have it meanwhile
        closed.bind(("127.0.0.1", 0))
        env = {**environment, "RAY_ADDRESS": f"127.0.0.1:{closed.getsockname()[1]}"}
        ended = gym_ray("run", "--example", "--limit", "2", "-o", tmp_path / "out" / "r.jsonl", env=env)
    assert ended.code == 1
    assert "cannot be reached" in ended.err
    assert "Traceback" not in ended.err
    assert not list((tmp_path / "out").glob("r*"))


def test_a_cap_that_the_machine_does_not_allow_is_refused_by_its_name(
    environment: dict[str, str], tmp_path: Path
) -> None:
    args = ("run", "--example", "--limit", "2", "-o", tmp_path / "r.jsonl", "--concurrency", "99999999")
    ended = gym_ray(*args, env=environment)
    assert ended.code == 2, ended.err
    assert "open files" in ended.err
    assert "Traceback" not in ended.err
    assert not list(tmp_path.glob("r*"))

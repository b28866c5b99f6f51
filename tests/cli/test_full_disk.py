"""A disk that fills up: the run ends with a message and its exit code, and goes on when there is room again."""

import resource
import subprocess
import sys
from pathlib import Path

from gym_ray.example import example_in_thread, example_rows
from gym_ray.paths import RunPaths
from gym_ray.recording.verification import verify_run
from tests.cli.program import gym_ray


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out" / "r.jsonl"
    limit = 450_000
    with example_in_thread() as served:
        args = ["run", "-i", str(example_rows("arithmetic")), "--head", served.head_address, "-o", str(output)]
        args += ["--executor", "local", "--display", "none", "--num-repeats", "8", "--shards", "4"]

        def full() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = [sys.executable, "-m", "gym_ray", *args]
        first = subprocess.run(command, preexec_fn=full, capture_output=True, text=True, timeout=60, check=False)
        assert first.returncode == 1, first.stderr
        assert "cannot be written: File too large; earlier records are intact" in first.stderr
        assert "Traceback" not in first.stderr
        checked = verify_run(RunPaths.of_output(output))
        assert checked.problems == []
        assert 0 < checked.results < checked.planned
        second = gym_ray(*args, "--resume")
        assert second.code == 0, second.err
    checked = verify_run(RunPaths.of_output(output))
    assert checked.problems == []
    assert checked.is_complete

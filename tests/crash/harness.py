"""Kills a real run with SIGKILL at random moments, continues it, and checks after each kill that nothing is lost.

    python -m tests.crash.harness --kills 50 --seed 1 [--executor ray] [--no-replay] [--format parquet]

After every kill: what had a result has the same one, every record is whole but perhaps the last of a file, and the
equation adds up. At the end: every rollout has one result, no attempt number was executed twice, and nothing that had
a result was executed again.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gym_ray.example import LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows
from gym_ray.paths import RunPaths
from gym_ray.recording.parts import read_lines
from gym_ray.recording.run_files import record_files
from gym_ray.recording.stamps import read_stamps
from gym_ray.recording.verification import verify_run

Key = tuple[int, int]
LATENCY = LatencyRange(0.02, 0.2)
MAX_LIFE_S = {"local": 1.6, "ray": 6.0}
"""A process lives for a random part of this before it is killed, starting up included."""
GIVE_UP_AFTER = 600


@dataclass
class Trial:
    """One run folder, killed again and again."""

    folder: Path
    head: str
    ledger: Path
    executor: str
    replays: bool
    record_format: str
    tasks: int
    repeats: int
    random: random.Random
    settled: dict[Key, bytes] = field(default_factory=dict)
    """Results that were seen after a kill, with their lines."""
    executed_before: dict[Key, int] = field(default_factory=dict)
    """For each of them, how often its rollout had been executed then."""
    kills: int = 0

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.folder / "out", "rollouts")

    def invoke(self, life_s: float | None) -> int | None:
        """One invocation; None if it was killed, else its exit code."""
        command = [
            sys.executable, "-m", "gym_ray", "run", "-i", str(self.folder / "rows.jsonl"), "--head", self.head,
            "-o", str(self.paths.merged), "--num-repeats", str(self.repeats), "--concurrency", "16", "--resume",
            "--shards", str(self.random.randint(1, 4)), "--executor", self.executor, "--display", "none",
            f"+retry_requests={str(self.replays).lower()}", "--format", self.record_format, "+part_bytes=60000",
        ]  # fmt: skip
        with (self.folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(life_s)
        except subprocess.TimeoutExpired:
            _kill_all(process)
            self.kills += 1
            return None

    def check(self) -> None:
        """What must be true after any kill."""
        if not self.paths.shard(0).materialized.exists():
            return  # killed before there was a plan
        results = self._results()
        for key, line in self.settled.items():
            assert results.get(key) == line, f"the result of {key} is lost or another one"
        executions = Counter(key for *key_, _ in self._executions() for key in [tuple(key_)])
        for key, line in results.items():
            if key not in self.settled:
                self.settled[key] = line
                self.executed_before[key] = executions[key]
        for key, count in self.executed_before.items():
            assert executions[key] == count, f"{key} had a result and was executed again"
        problems = [each for each in verify_run(self.paths).problems if "is no record" not in each]
        assert not [each for each in problems if "has no line end" not in each], problems

    def check_end(self) -> None:
        """What must be true when the run says that it is complete."""
        self.check()
        checked = verify_run(self.paths)
        assert checked.problems == [], checked.problems
        assert checked.is_complete, checked.equation
        assert checked.results == self.tasks * self.repeats, checked.equation
        assert checked.duplicates == 0, checked.duplicates
        twice = [each for each, count in Counter(self._executions()).items() if count > 1]
        assert not twice, f"attempts were executed twice: {twice[:5]}"

    def _results(self) -> dict[Key, bytes]:
        """Whole results by rollout; fails if one is there twice or a line inside a file is damaged."""
        found: dict[Key, bytes] = {}
        files = record_files(self.paths)
        for part in files.parts:
            for is_result, line in read_lines(part):
                if is_result:
                    key = _key(line)
                    assert key not in found, f"{key} has two results in parts"
                    found[key] = line
        sealed = dict(found)
        for path in files.results:
            for line in path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    continue  # the cut tail of a file
                key = _key(line)
                if sealed.get(key) == line:
                    continue  # sealed, and killed before the journal was emptied; or both were asked for
                assert key not in found, f"{key} has two results"
                found[key] = line
        return found

    def _executions(self) -> list[tuple[int, int, int]]:
        lines = [json.loads(line) for line in self.ledger.read_bytes().splitlines()] if self.ledger.exists() else []
        return [(each["task"], each["rollout"], each["attempt"]) for each in lines]


def run_trial(
    kills: int,
    seed: int,
    *,
    executor: str = "local",
    replays: bool = True,
    record_format: str = "jsonl",
    folder: Path,
) -> Trial:
    """Kill a run `kills` times, then let it end; raises AssertionError for anything that is not as it must be."""
    chance = random.Random(seed)
    tasks = 40
    rows = example_rows("arithmetic").read_text().splitlines(keepends=True)[:tasks]
    (folder / "rows.jsonl").write_text("".join(rows))
    ledger = folder / "executions.jsonl"
    repeats = max(4, kills * 3 * (1 if executor == "local" else 2))
    with example_in_thread(Profile(latency=LATENCY), ledger=LedgerOptions(path=ledger)) as served:
        trial = Trial(folder, served.head_address, ledger, executor, replays, record_format, tasks, repeats, chance)
        started_at = time.monotonic()
        while trial.kills < kills and time.monotonic() - started_at < GIVE_UP_AFTER * max(1, kills // 20):
            code = trial.invoke(chance.uniform(0.2, MAX_LIFE_S[executor]))
            trial.check()
            if code == 0:
                break
            assert code is None, f"exit code {code}: {(folder / 'log.txt').read_text()[-2000:]}"
        code = trial.invoke(None)
        assert code == 0, f"exit code {code}: {(folder / 'log.txt').read_text()[-2000:]}"
        trial.check_end()
    return trial


def _key(line: bytes) -> Key:
    stamps = read_stamps(line)
    return stamps.task or 0, stamps.rollout or 0


def _kill_all(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL to the process and everything that it started."""
    try:
        parent = psutil.Process(process.pid)
        family: list[Any] = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        try:
            os.kill(member.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def main() -> None:
    """Run one trial and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--no-replay", action="store_true")
    parser.add_argument("--format", choices=("jsonl", "parquet", "both"), default="jsonl")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gym-ray-crash-") as folder:
        trial = run_trial(
            asked.kills,
            asked.seed,
            executor=asked.executor,
            replays=not asked.no_replay,
            record_format=asked.format,
            folder=Path(folder),
        )
        planned = trial.tasks * trial.repeats
    sys.stdout.write(f"{trial.kills} kills, {planned} rollouts: each has one result, no attempt ran twice\n")


if __name__ == "__main__":
    main()

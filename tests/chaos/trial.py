"""One run folder through everything that a schedule does to it: invocations, what must hold after each, and at the end.

After every end of the program: what had a result has the same one, every record is whole but perhaps the last of a
file, and nothing that had a result was executed again. Once the run says that it is complete: every planned rollout has
one result and the rewards of an undisturbed run, and without replay no attempt number was executed twice.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gym_ray.paths import RunPaths
from gym_ray.recording.parts import read_lines
from gym_ray.recording.run_files import record_files
from gym_ray.recording.stamps import read_stamps
from gym_ray.recording.verification import verify_run

Key = tuple[int, int]
MAX_INVOCATIONS = 40
BY_SIGNAL = (signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
ENDS = {0, 1, 3, 4, 129, 130, 138, 143, *(-number for number in BY_SIGNAL)}
"""How an invocation may end while it is disturbed; 2 would say that the folder is another run's, or damaged."""
HALF_DONE = ("is no record", "has no line end", "a server did not aggregate")
"""Of the problems that `verify` may name before the run is complete: cut tails, and servers that were gone."""
TAKEN = "results that the log of attempts knows are in no file"
"""Another one, for as long as results that were taken away on purpose have not been run again."""


@dataclass
class Trial:
    """One run folder; every random choice comes from `random`."""

    folder: Path
    head: str
    ledger: Path
    executor: str
    replays: bool
    record_format: str
    tasks: int
    repeats: int
    random: random.Random
    ray_address: str | None = None
    ray_family: psutil.Process | None = None
    """Who started the nodes of the cluster at that address."""
    settled: dict[Key, bytes] = field(default_factory=dict)
    """Results that were seen after an end, with their lines."""
    executed_before: dict[Key, int] = field(default_factory=dict)
    """For each of them, how often its rollout had been executed then."""
    taken: set[Key] = field(default_factory=set)
    """Results that were taken away on purpose."""
    process: "subprocess.Popen[bytes] | None" = None
    invocations: int = 0

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.folder / "out", "rollouts")

    # Invocations

    def begin(self) -> None:
        """Start the program, if it is not running."""
        if self.is_running:
            return
        self.invocations += 1
        assert self.invocations < MAX_INVOCATIONS, f"it does not come to an end: {self.log_end}"
        command = [
            sys.executable, "-m", "gym_ray", "run", "-i", str(self.folder / "rows.jsonl"), "--head", self.head,
            "-o", str(self.paths.merged), "--num-repeats", str(self.repeats), "--concurrency", "16", "--resume",
            "--shards", str(self.random.randint(1, 4)), "--executor", self.executor, "--display", "none",
            f"+retry_requests={str(self.replays).lower()}", "--format", self.record_format, "+part_bytes=60000",
            "+grace_s=1", "+max_rollout_attempts=255", "+server_patience_s=3", "+aggregate_timeout_s=10",
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        environment["RAY_TMPDIR"] = str(self.folder)
        if self.ray_address is not None:
            environment["RAY_ADDRESS"] = self.ray_address
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ended(self, timeout_s: float | None = None) -> int:
        """Wait for the end of an invocation and check what it left; returns its exit code."""
        assert self.process is not None
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended within {timeout_s} s: {self.log_end}") from None
        was_served = "the head server does not answer" not in self.log_end[-500:]
        assert code in ENDS or (code == 2 and not was_served), f"exit code {code}: {self.log_end}"
        self.check()
        return code

    def kill(self) -> None:
        """SIGKILL to the program and everything that it started; on a cluster of others, to the program alone."""
        assert self.process is not None
        for member in [psutil.Process(self.process.pid), *self._children(self.process.pid)] if self.is_running else ():
            _signal(member, signal.SIGKILL)
        self.process.wait()

    def actors(self, name: str) -> list[psutil.Process]:
        """The processes of actors of this class that serve this run."""
        assert self.process is not None
        family = self._children(self.process.pid)
        if self.ray_family is not None:
            family += self.ray_family.children(recursive=True)
        return [member for member in family if _title(member).startswith(f"ray::{name}")]

    def _children(self, pid: int) -> list[psutil.Process]:
        try:
            return psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    @property
    def log_end(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")[-3000:]

    # What must hold

    def check(self) -> None:
        """What must be true after any end."""
        if not self.paths.shard(0).materialized.exists():
            return  # it ended before there was a plan
        results = self._results()
        for key, line in self.settled.items():
            assert results.get(key) == line, f"the result of {key} is lost or another one"
        executions = Counter((task, rollout) for task, rollout, _ in self.executions())
        for key, count in self.executed_before.items():
            assert executions[key] == count, f"{key} had a result and was executed again"
        for key, line in results.items():
            if key not in self.settled:
                self.settled[key] = line
                self.executed_before[key] = executions[key]
        taken = sum(key not in results for key in self.taken)
        told = {f"{count} {TAKEN}" for count in range(1, taken + 1)}
        problems = [each for each in verify_run(self.paths).problems if not any(half in each for half in HALF_DONE)]
        assert told.issuperset(problems), problems

    def check_end(self, rewards: dict[Key, float]) -> None:
        """What must be true when the run says that it is complete; `rewards` are those of an undisturbed run."""
        checked = verify_run(self.paths)
        assert checked.problems == [], checked.problems
        assert checked.is_complete, checked.equation
        assert checked.results == self.tasks * self.repeats, checked.equation
        assert checked.duplicates == 0, checked.duplicates
        if not self.replays:
            twice = [each for each, count in Counter(self.executions()).items() if count > 1]
            assert not twice, f"attempts were executed twice: {twice[:5]}"
        assert {key: json.loads(line)["reward"] for key, line in self._results().items()} == rewards
        metrics = json.loads(self.paths.aggregate_metrics.read_text())
        means = [value for entry in metrics for name, value in entry["key_metrics"].items() if name == "mean/reward"]
        assert len(means) == 1
        assert abs(means[0] - sum(rewards.values()) / len(rewards)) < 1e-9

    def forget(self, keys: set[Key]) -> None:
        """Expect nothing of results that were taken away on purpose."""
        self.taken |= keys
        for key in keys:
            self.settled.pop(key, None)
            self.executed_before.pop(key, None)

    def _results(self) -> dict[Key, bytes]:
        """Whole results by rollout; fails if one is there twice or a line inside a file is damaged."""
        found: dict[Key, bytes] = {}
        files = record_files(self.paths)
        for part in files.parts:
            for is_result, line in read_lines(part):
                if is_result:
                    assert key_of(line) not in found, f"{key_of(line)} has two results in parts"
                    found[key_of(line)] = line
        sealed = dict(found)
        for path in files.results:
            for line in path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    continue  # the cut tail of a file
                key = key_of(line)
                if sealed.get(key) == line:
                    continue  # sealed, and killed before the journal was emptied; or both were asked for
                assert key not in found, f"{key} has two results"
                found[key] = line
        return found

    def executions(self) -> list[tuple[int, int, int]]:
        """What the servers began to execute, as (task, rollout, attempt)."""
        lines = self.ledger.read_bytes().splitlines() if self.ledger.exists() else []
        return [(each["task"], each["rollout"], each["attempt"]) for each in map(json.loads, lines)]


def key_of(line: bytes) -> Key:
    """The rollout of a record."""
    stamps = read_stamps(line)
    return stamps.task or 0, stamps.rollout or 0


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return

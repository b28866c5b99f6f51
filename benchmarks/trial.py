"""One side does one scenario once, against a server of its own; what came of it in numbers."""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, measure
from benchmarks.scenarios import Scenario, write_rows
from benchmarks.sides import DISPATCHING, ROOT, Command, environment

TIMEOUT_S = 600.0
MB = 1e6


@dataclass(frozen=True)
class Trial:
    """What one run of one side cost. CPU times are summed over every process of the side, never the server's."""

    side: str
    scenario: str
    rollouts: int
    cpu_us_whole: float
    """Per rollout, from the start of the command to its end."""
    cpu_us_running: float
    """Per rollout, from the first `/run` to the end: without starting, reading and planning."""
    cpu_us_dispatch: float
    """Per rollout, from the first `/run` to the last reply: also without merging and aggregating."""
    wall_s: float
    dispatch_s: float
    """From the first `/run` to the last reply."""
    rollouts_per_s: float
    """Over `dispatch_s`."""
    ideal_s: float
    """What `dispatch_s` would be if collecting cost nothing; 0 without latency."""
    peak_rss_mb: float
    """Of all processes together."""
    dispatching_rss_mb: float
    """The summed peaks of driver and shards, or of the one process of a side that has no others."""
    dispatching_private_mb: float
    """Of it what they do not share: without libraries and the object store of Ray."""
    peak_in_flight: int
    """Seen by the server."""
    cpu_us_by_process: dict[str, float]
    """Per rollout, from the first `/run` to the last reply, by title of the process."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_trial(side: str, command: Command, scenario: Scenario) -> Trial:
    """Run `command` on `scenario` and check that it did the work.

    Raises:
        RuntimeError: it failed, or ran anything else than every rollout once.
    """
    with tempfile.TemporaryDirectory(prefix="gr-") as name, served(scenario) as port:
        folder = Path(name)
        write_rows(folder / "rows.jsonl", scenario.rollouts)
        output = folder / "out" / "rollouts.jsonl"
        line = command(scenario, f"127.0.0.1:{port}", folder / "rows.jsonl", output)
        measured = measure(line, folder, environment(), TIMEOUT_S)
        stats = fetch_stats(port)
        _check(measured, stats, output, scenario, folder)
    return _trial(side, scenario, measured, stats)


@contextmanager
def served(scenario: Scenario) -> Iterator[int]:
    """A server for the time of the context; the port on which it listens."""
    low, high = map(str, scenario.latency_s)
    command = [sys.executable, "-m", "benchmarks.server", "--reply-bytes", str(scenario.reply_bytes)]
    with subprocess.Popen([*command, "--latency-s", low, high], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r"listening on (\d+)\n", said)
            if found is None:
                raise RuntimeError(f"the server did not start: it said {said!r}")
            yield int(found[1])
        finally:
            process.kill()


def fetch_stats(port: int) -> dict[str, Any]:
    """What the server has seen."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=10) as response:
        stats: dict[str, Any] = json.load(response)
    return stats


def _check(measured: Measured, stats: dict[str, Any], output: Path, scenario: Scenario, folder: Path) -> None:
    problems = []
    if measured.code != 0:
        problems.append(f"it ended with {measured.code}")
    lines = _lines(output) if output.exists() else 0
    for what, count in (("runs at the server", stats["runs"]), ("lines", lines), ("aggregated", stats["aggregated"])):
        if count != scenario.rollouts:
            problems.append(f"{what}: {count}, not {scenario.rollouts}")
    if problems:
        tail = (folder / "stderr").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{scenario.name}: {'; '.join(problems)}\n{tail}")


def short_title(title: str) -> str:
    """`ray::ShardActor.step` -> `ray::ShardActor`; `/long/path/raylet --flag` -> `raylet`."""
    program = title.split(" ", 1)[0]
    return program.split(".")[0] if program.startswith("ray::") else Path(program).name


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _trial(side: str, scenario: Scenario, measured: Measured, stats: dict[str, Any]) -> Trial:
    first, last = stats["first_run_at"], stats["last_run_at"]
    at_first, at_last = measured.cpu_until(first), measured.cpu_until(last)
    microseconds = 1e6 / scenario.rollouts
    dispatching = measured.of(*DISPATCHING) or [measured.processes[0]]
    return Trial(
        side=side,
        scenario=scenario.name,
        rollouts=scenario.rollouts,
        cpu_us_whole=measured.cpu_s * microseconds,
        cpu_us_running=(measured.cpu_s - at_first) * microseconds,
        cpu_us_dispatch=(at_last - at_first) * microseconds,
        wall_s=measured.wall_s,
        dispatch_s=last - first,
        rollouts_per_s=scenario.rollouts / (last - first),
        ideal_s=scenario.ideal_s(stats["longest_s"]) if scenario.mean_latency_s else 0.0,
        peak_rss_mb=measured.peak_rss / MB,
        dispatching_rss_mb=sum(process.peak_rss for process in dispatching) / MB,
        dispatching_private_mb=sum(process.peak_private for process in dispatching) / MB,
        peak_in_flight=stats["peak_in_flight"],
        cpu_us_by_process={
            short_title(title): used * microseconds for title, used in measured.cpu_by_title(first, last).items()
        },
    )

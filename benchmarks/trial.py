"""One side does one scenario once, against a server of its own; what came of it in numbers."""

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.processes import Measured, measure
from benchmarks.scenarios import Scenario, write_rows
from benchmarks.sides import DISPATCHING, ROOT, Command, environment

TIMEOUT_S = 600.0
MB = 1e6


class Identity(msgspec.Struct, frozen=True):
    """Which rollout a record is of; the rest of it is checked to be JSON and skipped."""

    task: int = msgspec.field(name="_ng_task_index")
    rollout: int = msgspec.field(name="_ng_rollout_index")


_decoder = msgspec.json.Decoder(Identity)


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
    cpu_us_collection: float
    """Per rollout, from the first `/run` until every record is on disk: also without merging and aggregating."""
    wall_s: float
    collection_s: float
    """From the first `/run` until every record is on disk."""
    rollouts_per_s: float
    """Over `collection_s`."""
    ideal_s: float
    """What `collection_s` would be about if collecting cost nothing; 0 without latency."""
    peak_rss_mb: float
    """Of all processes together."""
    dispatching_rss_mb: float
    """The summed peaks of driver and shards, or of the one process of a side that has no others."""
    dispatching_private_mb: float
    """Of it what they do not share: without libraries and the object store of Ray."""
    peak_in_flight: int
    """Seen by the server."""
    server_cpu_us: float
    """Of the server, per rollout: in none of the other columns."""
    cpu_us_by_process: dict[str, float]
    """Per rollout and by title of the process, in the time of `cpu_us_collection`."""

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
        recorded_at = last_recorded_at(output)
    return _trial(side, scenario, measured, stats, recorded_at)


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
            process.terminate()


def fetch_stats(port: int) -> dict[str, Any]:
    """What the server has seen."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=10) as response:
        stats: dict[str, Any] = json.load(response)
    return stats


def _check(measured: Measured, stats: dict[str, Any], output: Path, scenario: Scenario, folder: Path) -> None:
    problems = []
    if measured.code != 0:
        problems.append(f"it ended with {measured.code}")
    identities = [identity for path in record_files(output) for identity in read_identities(path)]
    merged = read_identities(output) if output.exists() else []
    counts = {
        "runs at the server": stats["runs"],
        "records": len(identities),
        "distinct records": len(set(identities)),
        "lines of the output": len(merged),
        "distinct lines of the output": len(set(merged)),
        "aggregated": stats["aggregated"],
    }
    for what, count in counts.items():
        if count != scenario.rollouts:
            problems.append(f"{what}: {count}, not {scenario.rollouts}")
    if problems:
        tail = (folder / "stderr").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{scenario.name}: {'; '.join(problems)}\n{tail}")


def record_files(output: Path) -> list[Path]:
    """Where a side appends its records: the files of its shards if it has any, else the output itself."""
    shards = [path for path in output.parent.glob(f"{output.stem}-*.jsonl") if path.stem.rsplit("-", 1)[1].isdigit()]
    return sorted(shards) or ([output] if output.exists() else [])


def read_identities(path: Path) -> list[Identity]:
    """Task and rollout of every record; costs reading and checking the whole file."""
    with path.open("rb") as lines:
        return [_decoder.decode(line) for line in lines]


def last_recorded_at(output: Path) -> float:
    """The monotonic instant of the last write to a file of records; every side only appends to them."""
    offset_s = time.time() - time.monotonic()
    return max(path.stat().st_mtime for path in record_files(output)) - offset_s


def _trial(side: str, scenario: Scenario, measured: Measured, stats: dict[str, Any], recorded_at: float) -> Trial:
    # The clock of files is some milliseconds coarse, and no record is written before its reply was sent
    first, last = stats["first_run_at"], max(recorded_at, stats["last_run_at"])
    at_first, at_last = measured.cpu_until(first), measured.cpu_until(last)
    microseconds = 1e6 / scenario.rollouts
    dispatching = measured.of(*DISPATCHING) or [measured.processes[0]]
    return Trial(
        side=side,
        scenario=scenario.name,
        rollouts=scenario.rollouts,
        cpu_us_whole=measured.cpu_s * microseconds,
        cpu_us_running=(measured.cpu_s - at_first) * microseconds,
        cpu_us_collection=(at_last - at_first) * microseconds,
        wall_s=measured.wall_s,
        collection_s=last - first,
        rollouts_per_s=scenario.rollouts / (last - first),
        ideal_s=scenario.ideal_s(stats["longest_s"]) if scenario.mean_latency_s else 0.0,
        peak_rss_mb=measured.peak_rss / MB,
        dispatching_rss_mb=sum(process.peak_rss for process in dispatching) / MB,
        dispatching_private_mb=sum(process.peak_private for process in dispatching) / MB,
        peak_in_flight=stats["peak_in_flight"],
        server_cpu_us=stats["cpu_s"] * microseconds,
        cpu_us_by_process={title: used * microseconds for title, used in measured.cpu_by_title(first, last).items()},
    )

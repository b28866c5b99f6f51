"""What happens to a run, and when: every choice follows from the seed."""

import json
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from gym_ray.errors import RecordingError
from gym_ray.example import example_rows
from gym_ray.recording.control import Control, request
from gym_ray.recording.run_files import record_files
from tests.chaos.nodes import Nodes
from tests.chaos.served import Served
from tests.chaos.trial import Key, Trial, key_of
from tests.cli.program import gym_ray

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
TASKS = 40
LONGEST_END_S = 90.0
"""What an undisturbed invocation takes at most on a busy machine, the 10 s until a hung shard is seen included."""

Event = Callable[[Trial, Served, "Nodes | None"], None]


def caller(trial: Trial, _served: Served, _nodes: Nodes | None) -> None:
    """The program dies, and what it started with it."""
    trial.kill()


def shard(trial: Trial, _served: Served, _nodes: Nodes | None) -> None:
    """A shard actor dies."""
    if actors := trial.actors("ShardActor"):
        _kill(trial.random.choice(sorted(actors, key=lambda each: each.pid)))


def driver(trial: Trial, _served: Served, _nodes: Nodes | None) -> None:
    """The driver actor dies."""
    for process in trial.actors("DriverActor"):
        _kill(process)


def node(_trial: Trial, _served: Served, nodes: Nodes | None) -> None:
    """A node dies, and another one comes."""
    assert nodes is not None
    nodes.tell("kill")
    nodes.tell("add")


def server(trial: Trial, served: Served, _nodes: Nodes | None) -> None:
    """Every server dies and comes back."""
    served.kill()
    time.sleep(trial.random.uniform(0.1, 2.5))
    served.start()


def hang(trial: Trial, served: Served, _nodes: Nodes | None) -> None:
    """Every server hangs for a while."""
    served.signal(signal.SIGSTOP)
    time.sleep(trial.random.uniform(0.5, 2.0))
    served.signal(signal.SIGCONT)


def disk(trial: Trial, _served: Served, _nodes: Nodes | None) -> None:
    """No file of whoever writes grows any more."""
    assert trial.process is not None
    writers = trial.actors("DriverActor") if trial.executor == "ray" else [psutil.Process(trial.process.pid)]
    size = max((path.stat().st_size for path in record_files(trial.paths).journals), default=0)
    limit = size + trial.random.randint(0, 5000)
    for process in writers:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def torn(trial: Trial, _served: Served, _nodes: Nodes | None) -> None:
    """The machine loses its power: of each file the last write since the last fsync may be gone, down to any byte.

    Without replay the starts of attempts are synced before a shard sees them, so that they are always there.
    """
    trial.kill()
    files = [*record_files(trial.paths).journals, *([trial.paths.attempts] if trial.paths.attempts.exists() else [])]
    for path in files:
        *whole, last = path.read_bytes().splitlines(keepends=True) or [b""]
        if last.startswith(b"started") and not trial.replays:
            continue
        if len(last) > 1 and trial.random.random() < 0.7:
            cut = trial.random.randrange(len(last))
            with path.open("r+b") as file:
                file.truncate(sum(map(len, whole)) + cut)
            if path in record_files(trial.paths).results and last.endswith(b"\n"):
                trial.forget({key_of(last)})


def stop(trial: Trial, _served: Served, _nodes: Nodes | None) -> None:
    """Somebody asks it to stop: by a signal, by two, or from another terminal."""
    assert trial.process is not None
    kind = trial.random.randrange(3)
    if kind == 2:
        with suppress(RecordingError):  # on a slow machine the run may not have its folder yet
            request(trial.paths, Control(stop=trial.random.choice(["drain", "cancel"])))
        return
    number = trial.random.choice(STOPS)
    for _ in range(kind + 1):
        if trial.is_running:
            trial.process.send_signal(number)
            time.sleep(0.2)


KINDS: dict[str, Event] = {
    each.__name__: each for each in (caller, shard, driver, node, server, hang, disk, torn, stop)
}
LOCAL_KINDS = ("caller", "server", "hang", "disk", "torn", "stop")
RAY_KINDS = ("caller", "shard", "driver", "server", "hang", "disk", "torn", "stop")


def run_schedule(
    seed: int,
    kinds: Sequence[str],
    *,
    events: int,
    executor: str,
    replays: bool,
    record_format: str,
    folder: Path,
) -> Counter[str]:
    """Carry one schedule out; returns what happened in it, by kind.

    Raises:
        AssertionError: something is not as it must be.
    """
    chance = random.Random(seed)
    happened: Counter[str] = Counter()
    longest_s = 2.0 if executor == "local" else 5.0
    repeats = 8 * events if executor == "local" else 12 * events
    rows = example_rows("arithmetic").read_text().splitlines(keepends=True)[:TASKS]
    (folder / "rows.jsonl").write_text("".join(rows))
    with ExitStack() as stack:
        served = Served(folder / "executions.jsonl")
        stack.callback(served.kill)
        served.start()
        nodes = None
        if "node" in kinds:
            home = tempfile.TemporaryDirectory(prefix="gc-", ignore_cleanup_errors=True)
            nodes = Nodes(Path(stack.enter_context(home)))
            stack.callback(nodes.close)
        trial = Trial(
            folder, served.head_address, folder / "executions.jsonl", executor, replays, record_format, TASKS, repeats,
            chance, nodes and nodes.address, nodes and nodes.family,
        )  # fmt: skip
        stack.callback(lambda: trial.process is not None and trial.kill())
        for _ in range(events):
            trial.begin()
            time.sleep(chance.uniform(0.3, longest_s))
            kind = chance.choice(list(kinds))
            if trial.is_running:
                KINDS[kind](trial, served, nodes)
                happened[kind] += 1
            if not trial.is_running:
                trial.ended()
        trial.begin()
        while trial.ended(LONGEST_END_S) != 0:
            trial.begin()
        trial.check_end(_undisturbed(folder, repeats))
    return happened


def _undisturbed(folder: Path, repeats: int) -> dict[Key, float]:
    """The rewards that the same rows get when nothing happens."""
    other = Served(folder / "undisturbed.jsonl")
    other.start()
    try:
        output = folder / "undisturbed" / "rollouts.jsonl"
        ended = gym_ray(
            "run", "-i", folder / "rows.jsonl", "--head", other.head_address, "-o", output, "--executor", "local",
            "--num-repeats", str(repeats), "--concurrency", "512", "--display", "none",
        )  # fmt: skip
        assert ended.code == 0, ended.err
    finally:
        other.kill()
    lines = output.read_bytes().splitlines(keepends=True)
    return {key_of(line): json.loads(line)["reward"] for line in lines}


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()

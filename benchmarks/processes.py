"""CPU seconds and memory of a command and of every process that it starts, directly or not, while they live and after.

A process's CPU time is its own plus that of its children: of a child that has ended, what its parent was told by the
kernel when it collected it, or what was last seen of it, whichever is more. So a child that nobody collects is missed
by at most one sampling interval.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own

SAMPLE_EVERY_S = 0.05
"""Five ticks of the kernel's CPU clock. Reading ten processes so often takes 1-2 % of a core."""
DISCOVER_EVERY = 10
"""Look for new processes in every tenth sample: it means reading the whole process table."""
LINGER_S = 10.0
"""How long what a command left behind may take to end by itself."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Seen:
    """What is known of one process."""

    pid: int
    parent: "Seen | None"
    title: str = ""
    own_s: float = 0.0
    reaped_s: float = 0.0
    """Of children that ended and were collected, with theirs."""
    rss: int = 0
    peak_rss: int = 0
    peak_private: int = 0
    """Without what it shares with others: libraries, and the object store of Ray."""
    is_alive: bool = True
    is_orphan: bool = False
    """Its parent ended without collecting it."""
    children: "list[Seen]" = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        """Of this process and of all that it started."""
        collected = sum(child.cpu_s for child in self.children if not child.is_alive and not child.is_orphan)
        others = sum(child.cpu_s for child in self.children if child.is_alive or child.is_orphan)
        return self.own_s + max(self.reaped_s, collected) + others


@dataclass(frozen=True)
class Sample:
    """The whole tree at one monotonic instant."""

    at: float
    cpu_s: float
    rss: int
    own_s: Mapping[int, float]
    """CPU seconds of each living process alone, by its position in `Measured.processes`."""


@dataclass(frozen=True)
class Measured:
    """A command that has ended."""

    code: int
    stdout: str
    started_at: float
    ended_at: float
    cpu_s: float
    """Of every process of the command."""
    samples: tuple[Sample, ...]
    processes: tuple[Seen, ...]

    @property
    def wall_s(self) -> float:
        return self.ended_at - self.started_at

    @property
    def peak_rss(self) -> int:
        """Of all processes together; pages that they share count for each."""
        return max((sample.rss for sample in self.samples), default=0)

    def cpu_until(self, at: float) -> float:
        """CPU seconds used before a monotonic instant, interpolated between samples."""
        ends = Sample(self.started_at, 0.0, 0, {}), Sample(self.ended_at, self.cpu_s, 0, {})
        points = (ends[0], *self.samples, ends[1])
        for before, after in pairwise(points):
            if after.at >= at:
                share = max(at - before.at, 0.0) / max(after.at - before.at, 1e-9)
                return before.cpu_s + share * (after.cpu_s - before.cpu_s)
        return self.cpu_s

    def cpu_by_title(self, since: float, until: float) -> dict[str, float]:
        """CPU seconds between two instants by short title, interpolated between samples; the greatest first."""
        used: defaultdict[str, float] = defaultdict(float)
        for before, after in pairwise(self.samples):
            overlap_s = min(until, after.at) - max(since, before.at)
            if overlap_s <= 0:
                continue
            share = overlap_s / (after.at - before.at)
            for position, own_s in after.own_s.items():
                title = short_title(self.processes[position].title)
                used[title] += share * (own_s - before.own_s.get(position, 0.0))
        return dict(sorted(used.items(), key=lambda item: -item[1]))

    def of(self, *titles: str) -> list[Seen]:
        """The processes whose title starts with one of `titles`."""
        return [seen for seen in self.processes if seen.title.startswith(titles)]


def short_title(title: str) -> str:
    """`ray::ShardActor.step` -> `ray::ShardActor`; `/long/path/raylet --flag` -> `raylet`."""
    program = title.split(" ", 1)[0]
    return program.split(".")[0] if program.startswith("ray::") else Path(program).name


class ProcessTree:
    """All descendants of one process, found again and again, including those whose parents have gone."""

    def __init__(self, root_pid: int) -> None:
        self.root = Seen(root_pid, None)
        self._known: dict[int, tuple[psutil.Process, Seen]] = {root_pid: (psutil.Process(root_pid), self.root)}
        self.seen = [self.root]

    def sample(self, *, discover: bool = True) -> Sample:
        """Read every living process once."""
        if discover:
            self._discover()
        for pid, (process, seen) in list(self._known.items()):
            try:
                with process.oneshot():
                    self._read(process, seen, with_title=discover)
            except psutil.Error:
                seen.is_alive, seen.rss = False, 0
                del self._known[pid]
        own_s = {position: seen.own_s for position, seen in enumerate(self.seen) if seen.is_alive}
        return Sample(time.monotonic(), self.root.cpu_s, sum(seen.rss for seen in self.seen), own_s)

    def living(self) -> list[psutil.Process]:
        """The processes, other than the root, that have not ended."""
        return [process for process, seen in self._known.values() if seen is not self.root]

    def _discover(self) -> None:
        parents = {process.pid: process for process in psutil.process_iter(["ppid"])}
        found = True
        while found:
            found = False
            for pid, process in parents.items():
                parent = self._known.get(process.info["ppid"])
                if pid not in self._known and parent is not None:
                    child = Seen(pid, parent[1])
                    parent[1].children.append(child)
                    self.seen.append(child)
                    self._known[pid] = (process, child)
                    found = True

    def _read(self, process: psutil.Process, seen: Seen, *, with_title: bool) -> None:
        times = process.cpu_times()
        seen.own_s = times.user + times.system
        seen.reaped_s = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        if process.status() == psutil.STATUS_ZOMBIE:  # ended, and its times just read are the last
            raise psutil.ZombieProcess(process.pid)
        memory = process.memory_info()
        seen.rss = memory.rss
        seen.peak_rss = max(seen.peak_rss, memory.rss)
        seen.peak_private = max(seen.peak_private, memory.rss - getattr(memory, "shared", 0))
        if with_title:
            seen.title = " ".join(process.cmdline()[:3])


def measure(command: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float) -> Measured:
    """Run a command to its end and account for all its processes; what it leaves behind is ended.

    Raises:
        TimeoutError: it did not end in time; its processes have been killed.
    """
    _adopt_orphans()
    started_at = time.monotonic()
    with (cwd / "stdout").open("w+") as out, (cwd / "stderr").open("w") as err:
        process = subprocess.Popen(command, cwd=cwd, env=dict(env), stdout=out, stderr=err)
        tree = ProcessTree(process.pid)
        samples: list[Sample] = []
        ended = threading.Event()
        watching = threading.Thread(target=_watch, args=(tree, samples, ended), daemon=True)
        watching.start()
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            ended_at = time.monotonic()
            late.cancel()
            ended.set()
            watching.join()
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it a second time
        _outlive(tree)
        tree.root.is_alive = False
        total = usage.ru_utime + usage.ru_stime
        tree.root.reaped_s = max(total - tree.root.own_s, 0.0)
        out.seek(0)
        stdout = out.read()
    if ended_at - started_at >= timeout_s:
        raise TimeoutError(f"{' '.join(command)}: not ended after {timeout_s:.0f} s")
    return Measured(process.returncode, stdout, started_at, ended_at, tree.root.cpu_s, tuple(samples), tuple(tree.seen))


def _watch(tree: ProcessTree, samples: list[Sample], ended: threading.Event) -> None:
    count = 0
    while not ended.wait(SAMPLE_EVERY_S):
        samples.append(tree.sample(discover=count % DISCOVER_EVERY == 0))
        count += 1


def _outlive(tree: ProcessTree) -> None:
    """Read what the command left behind until it has ended, kill what does not end, and collect what became ours."""
    deadline = time.monotonic() + LINGER_S
    tree.sample()
    while (living := tree.living()) and time.monotonic() < deadline:
        time.sleep(SAMPLE_EVERY_S)
        tree.sample()
    for process in living:
        print(f"benchmark: process {process.pid} was left behind and is killed", file=sys.stderr)
        process.kill()
    for seen in tree.seen[1:]:
        with contextlib.suppress(ChildProcessError):  # a parent of its own has collected it
            collected, _ = os.waitpid(seen.pid, 0 if seen.is_alive else os.WNOHANG)
            seen.is_orphan = collected == seen.pid


def _adopt_orphans() -> None:
    """Become the parent of processes whose parents end first (Linux), so that they can be waited for."""
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

"""`<stem>_attempts.csv`: when each attempt was handed out and when it ended; the numbers that are used up.

Lines are `started,<Unix ms>,<task>,<rollout>,<attempt>` and `ended,<Unix ms>,<task>,<rollout>,<attempt>,<kind>,
<latency ms>,<sends>`. A start is written before the attempt leaves the driver, so that a number whose attempt was lost
with every process is not given out again. Records remain the truth about outcomes: a line that is cut or missing
costs a number or a duration, never a rollout.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gym_ray.recording.refusals import refusals

_STARTED, _ENDED = b"started", b"ended"


class Started(NamedTuple):
    """An attempt that was handed to a shard."""

    at_ms: int
    task: int
    rollout: int
    attempt: int


class Ended(NamedTuple):
    """An attempt whose record is written."""

    at_ms: int
    task: int
    rollout: int
    attempt: int
    kind: int
    """An `OutcomeKind`."""
    latency_ms: float
    sends: int


class AttemptLog:
    """The open file; `close` it."""

    def __init__(self, path: Path) -> None:
        """Open it for appending; a line that a crash has cut is ended first.

        Raises:
            RecordingError: the file system refuses, here and in every method.
        """
        self._path = path
        with refusals(path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                os.write(self._fd, b",cut\n")  # so that it does not pass for a whole one

    def started(self, attempts: Sequence[Started], *, is_durable: bool = False) -> None:
        """Note attempts that are about to be handed out, in one write, which `is_durable` keeps from a power cut."""
        self._write(b"".join([b"started,%d,%d,%d,%d\n" % line for line in attempts]))
        if is_durable:
            with refusals(self._path):
                os.fdatasync(self._fd)

    def ended(self, attempts: Sequence[Ended]) -> None:
        """Note attempts whose records are written, in one write."""
        self._write(b"".join([b"ended,%d,%d,%d,%d,%d,%.1f,%d\n" % line for line in attempts]))

    def close(self) -> None:
        """Close; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes) -> None:
        with refusals(self._path):
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])


def read_attempts(path: Path, start: int = 0) -> Iterator[Started | Ended]:
    """Every legible line from byte `start` on, in file order; nothing if there is no file."""
    try:
        stream = path.open("rb", 1 << 20)
    except FileNotFoundError:
        return
    with stream:
        stream.seek(start)
        for line in stream:
            if line.endswith(b"\n") and (event := _event(line.split(b","))) is not None:
                yield event


def _event(parts: list[bytes]) -> Started | Ended | None:
    try:
        if parts[0] == _STARTED:
            at_ms, task, rollout, attempt = map(int, parts[1:])
            return Started(at_ms, task, rollout, attempt)
        if parts[0] == _ENDED:
            at_ms, task, rollout, attempt, kind = map(int, parts[1:6])
            latency_ms, sends = parts[6:]
            return Ended(at_ms, task, rollout, attempt, kind, float(latency_ms), int(sends))
    except ValueError:
        pass
    return None

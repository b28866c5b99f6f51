"""Turns the journal of a shard into sealed parts. Importing this module loads pyarrow.

Invariants: a record is in the journal until the part that holds it is durable. A kill between the two leaves it in
both, which every reader knows; no record is in two parts.
"""

from collections.abc import Iterator
from pathlib import Path

from gym_ray.paths import ShardPaths
from gym_ray.recording.attempts import Ended, read_attempts
from gym_ray.recording.journal import Journal
from gym_ray.recording.part_schema import Facts
from gym_ray.recording.parts import PartReader, write_part
from gym_ray.recording.stamps import read_stamps

Key = tuple[int, int, int]


class Seal:
    """Makes the parts of one shard."""

    def __init__(self, paths: ShardPaths, attempts: Path) -> None:
        """`attempts` is the log that knows when attempts ended and how long they took."""
        self._paths, self._attempts = paths, attempts
        self._read_to = 0
        self._next = 0
        while paths.part(self._next).exists():
            self._next += 1
        self._may_hold_copies = self._next > 0
        """True until the journal was emptied once: a kill may have come before that, so that a part has its records."""

    def seal(self, journal: Journal) -> None:
        """Put what the journal holds into a part, then empty it; nothing if it is empty.

        Raises:
            InputError: a line of the journal is no record; nothing was sealed.
            WriterSupersededError, RecordingError: see `Journal.empty`; the journal holds its records then.
        """
        if not journal.size_bytes:
            return
        log_end = self._attempts.stat().st_size if self._attempts.exists() else 0
        journal.empty(self._write_part)
        self._read_to = log_end
        self._may_hold_copies = False

    def _write_part(self) -> None:
        sealed = self._last_sealed() if self._may_hold_copies else frozenset()
        lines: dict[bool, list[bytes]] = {True: [], False: []}
        wanted: set[Key] = set()
        for is_result, line in _lines(self._paths):
            key = _key(line)
            if (is_result, *key) not in sealed:
                lines[is_result].append(line)
                wanted.add(key)
        if wanted:
            facts = _facts(self._attempts, self._read_to, wanted)
            write_part(self._paths.part(self._next), lines[True], lines[False], facts)
            self._next += 1

    def _last_sealed(self) -> frozenset[tuple[bool, int, int, int]]:
        with PartReader(self._paths.part(self._next - 1)) as reader:
            return frozenset((row.is_result, row.task or 0, row.rollout or 0, row.attempt) for row in reader.scan())


def derive_parts(paths: ShardPaths, attempts: Path, limit_bytes: int) -> None:
    """Write everything in a journal as parts of about `limit_bytes` beside it; the journal stays as it is.

    Raises:
        InputError: a line is no record.
        RecordingError: the file system refuses.
    """
    facts = _facts(attempts, 0, None)
    number, size = 0, 0
    lines: dict[bool, list[bytes]] = {True: [], False: []}
    for is_result, line in _lines(paths):
        lines[is_result].append(line)
        size += len(line)
        if size >= limit_bytes:
            write_part(paths.part(number), lines[True], lines[False], facts)
            number, size, lines = number + 1, 0, {True: [], False: []}
    if size:
        write_part(paths.part(number), lines[True], lines[False], facts)


def _lines(paths: ShardPaths) -> Iterator[tuple[bool, bytes]]:
    """(is a result, line) of everything in the journal of a shard."""
    for is_result, path in ((True, paths.results), (False, paths.failures)):
        with path.open("rb", 1 << 20) as stream:
            for line in stream:
                yield is_result, line


def _facts(attempts: Path, start: int, wanted: set[Key] | None) -> dict[Key, Facts]:
    """What the log knows of attempts, of some or of all, from byte `start` on."""
    return {
        key: Facts(event.latency_ms, event.at_ms, event.sends)
        for event in read_attempts(attempts, start)
        if isinstance(event, Ended)
        and (wanted is None or (event.task, event.rollout, event.attempt) in wanted)
        and (key := (event.task, event.rollout, event.attempt))
    }


def _key(line: bytes) -> Key:
    try:
        stamps = read_stamps(line)
    except ValueError:
        return 0, 0, 0  # `write_part` refuses it, by its place
    return stamps.task or 0, stamps.rollout or 0, stamps.attempt or 0

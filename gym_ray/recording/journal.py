"""Appends records: one write for each file and batch, whole records only, by one writer for each shard.

Invariants: after `append` returns, the records survive the death of the process; after it raises, every file ends with
a whole record, records of earlier calls are untouched, and some of this call's may be there.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gym_ray.paths import RunPaths, ShardPaths
from gym_ray.recording.atomic import sync_directory
from gym_ray.recording.refusals import refusals, refused
from gym_ray.recording.repair import Repair, repair_tail
from gym_ray.recording.write_all import write_all
from gym_ray.recording.writer_lock import WriterLock

if TYPE_CHECKING:
    from gym_ray.recording.sealing import Seal

Record = bytes | memoryview
"""One line, its line end included."""
_LINE_END = 10
SEAL_BYTES = 64 << 20
"""Of records in a journal, before they are sealed: a part takes about three times that in memory while it is made."""


class AppendFile:
    """One file that only grows, by whole records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._torn_at: int | None = None
        """Where the whole records end, if a failed write left more than them and it could not be taken off."""
        with refusals(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def append(self, records: Sequence[Record]) -> None:
        """Write records, or raise and leave the whole ones of those that were written.

        Raises:
            RecordingError: the file system refuses.
            ValueError: a record has no line end.
        """
        if not records:
            return
        for record in records:
            if not record or record[-1] != _LINE_END:
                raise ValueError(f"{self._path}: a record must end with a line end, found {bytes(record[-20:])!r}")
        with refusals(self._path):
            if self._torn_at is not None:
                os.ftruncate(self._fd, self._torn_at)
                self._torn_at = None
            start = os.fstat(self._fd).st_size
        try:
            write_all(self._fd, records)
        except OSError as error:
            self._take_off(start, records)
            raise refused(self._path, error) from error

    @property
    def size_bytes(self) -> int:
        with refusals(self._path):
            return os.fstat(self._fd).st_size

    def empty(self) -> None:
        """Take everything out, durably."""
        with refusals(self._path):
            os.ftruncate(self._fd, 0)
            os.fsync(self._fd)
        self._torn_at = None

    def sync(self) -> None:
        """Have the disk confirm.

        Raises:
            RecordingError: it does not.
        """
        with refusals(self._path):
            os.fsync(self._fd)

    def close(self) -> None:
        """Close without confirmation; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_off(self, start: int, records: Sequence[Record]) -> None:
        """Leave the whole ones of the records that were to be written from `start` on."""
        self._torn_at = start
        try:
            size = os.fstat(self._fd).st_size
            self._torn_at = start + _whole(records, size - start)
            if size != self._torn_at:
                os.ftruncate(self._fd, self._torn_at)
            self._torn_at = None
        except OSError:
            pass  # the next append tries again, and so does the repair of the next opening


class Journal:
    """The result and failure files of one shard, open for one writer; `close` it."""

    def __init__(self, paths: ShardPaths) -> None:
        """Supersede every earlier writer of the shard, repair what a crash left, and open the files.

        Raises:
            RecordingError: the files cannot be opened, or another writer keeps the lock.
        """
        with ExitStack() as undo, refusals(paths.lock):
            self._lock = WriterLock(paths.lock)
            undo.callback(self._lock.close)
            with self._lock.take():
                found = [_repaired(path) for path in (paths.results, paths.failures)]
                self._results = AppendFile(paths.results)
                undo.callback(self._results.close)
                self._failures = AppendFile(paths.failures)
                undo.callback(self._failures.close)
                sync_directory(paths.results.parent)
            undo.pop_all()
        self.repairs = tuple(repair for repair in found if repair is not None)
        """What was repaired at the opening."""

    def append(self, results: Sequence[Record], failures: Sequence[Record]) -> None:
        """Write whole records, one write for each file.

        Raises:
            WriterSupersededError: another writer has opened the shard; nothing was written.
            RecordingError: the file system refuses; see the invariants of the module.
        """
        with self._lock.held():
            self._results.append(results)
            self._failures.append(failures)

    @property
    def size_bytes(self) -> int:
        """Of the records in its files."""
        return self._results.size_bytes + self._failures.size_bytes

    def empty(self, keep: Callable[[], None]) -> None:
        """Take every record out of the files, once `keep` has put them elsewhere for good.

        Raises:
            WriterSupersededError: another writer has opened the shard; nothing was done.
            RecordingError: the file system refuses. What `keep` raises is raised, and nothing is taken out.
        """
        with self._lock.held():
            keep()
            self._results.empty()
            self._failures.empty()

    def sync(self) -> None:
        """Have the disk confirm what was appended."""
        self._results.sync()
        self._failures.sync()

    def close(self) -> None:
        """Confirm and close; a second call does nothing. The files are closed also if it raises.

        Raises:
            RecordingError: the disk does not confirm.
        """
        with ExitStack() as stack:
            for part in (self._lock, self._failures, self._results):
                stack.callback(part.close)
            if self._results.is_open:
                self.sync()


class Recorder:
    """The journals of every shard of a run. For one thread at a time; `close` it."""

    def __init__(self, journals: Sequence[Journal], seals: "Sequence[Seal]" = (), seal_bytes: int = SEAL_BYTES) -> None:
        """With `seals`, one for each journal, a journal that has grown to `seal_bytes` is sealed into a part."""
        self._seal_bytes = seal_bytes
        self._journals = tuple(journals)
        self._seals = tuple(seals)

    @classmethod
    def open(cls, paths: RunPaths, shards: int, *, seals: bool = False, seal_bytes: int = SEAL_BYTES) -> Self:
        """Open the files of all shards for appending, as their only writer; with `seals`, into Parquet parts.

        Raises:
            RecordingError: a file cannot be opened, or another writer keeps a lock.
        """
        with ExitStack() as undo:
            journals = []
            for shard in range(shards):
                journals.append(Journal(paths.shard(shard)))
                undo.callback(journals[-1].close)
            sealing = _seals(paths, shards) if seals else []
            undo.pop_all()
        return cls(journals, sealing, seal_bytes)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was repaired at the opening, of all shards."""
        return tuple(repair for journal in self._journals for repair in journal.repairs)

    def append(self, batch: Iterable[tuple[int, bool, Record]]) -> None:
        """Write records given as (owner shard, is a result, line).

        Raises:
            WriterSupersededError: another writer has opened a shard.
            RecordingError: a file system refuses. Whole records of other shards may have been written.
        """
        parts: dict[int, tuple[list[Record], list[Record]]] = {}
        for owner, is_result, record in batch:
            part = parts.get(owner)
            if part is None:
                part = parts[owner] = ([], [])
            part[not is_result].append(record)
        for owner, (results, failures) in parts.items():
            self._journals[owner].append(results, failures)

    def seal(self, *, grown_only: bool = False) -> None:
        """Seal what the journals hold, where they are sealed at all; with `grown_only` those that have grown enough.

        Raises:
            WriterSupersededError, RecordingError, InputError: see `Seal.seal`; the journals hold their records then.
        """
        for journal, seal in zip(self._journals, self._seals, strict=False):
            if not grown_only or journal.size_bytes >= self._seal_bytes:
                seal.seal(journal)

    def sync(self) -> None:
        """Have the disk confirm what was appended to all files."""
        for journal in self._journals:
            journal.sync()

    def close(self) -> None:
        """Confirm and close all files; a second call does nothing."""
        with ExitStack() as stack:
            for journal in self._journals:
                stack.callback(journal.close)


def _seals(paths: RunPaths, shards: int) -> "list[Seal]":
    from gym_ray.recording.sealing import Seal  # noqa: PLC0415 - pyarrow is for runs that want parts

    return [Seal(paths.shard(shard), paths.attempts) for shard in range(shards)]


def _repaired(path: Path) -> Repair | None:
    with refusals(path):
        return repair_tail(path)


def _whole(records: Sequence[Record], written: int) -> int:
    """How many of the written bytes make whole records."""
    whole = 0
    for record in records:
        if whole + len(record) > written:
            break
        whole += len(record)
    return whole

"""Appends records: one write for each file and batch, whole records only.

Invariant: after `append` returns, the records survive the death of the process; after it raises, the files end with the
records of earlier calls.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from gym_ray.errors import RecordingError
from gym_ray.paths import RunPaths


class AppendFile:
    """One file that only grows by whole batches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._end = os.fstat(self._fd).st_size

    def append(self, records: list[bytes | memoryview]) -> None:
        """Write whole records, or raise and leave the file as it was."""
        size = sum(map(len, records))
        try:
            written = os.writev(self._fd, records[:1024])
            if written < size:
                rest = memoryview(b"".join(records))[written:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            os.ftruncate(self._fd, self._end)
            raise RecordingError(
                f"{self._path}: cannot write records: {error.strerror}; earlier records are intact"
            ) from error
        self._end += size

    def sync(self) -> None:
        """Have the disk confirm."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Confirm and close."""
        self.sync()
        os.close(self._fd)


class Recorder:
    """The result and failure files of every shard of a run."""

    def __init__(self, files: dict[tuple[int, bool], AppendFile]) -> None:
        self._files = files
        self._is_open = True

    @classmethod
    def open(cls, paths: RunPaths, shards: int) -> Self:
        """Open the files of all shards for appending."""
        files = {}
        for shard in range(shards):
            names = paths.shard(shard)
            files[shard, True] = AppendFile(names.results)
            files[shard, False] = AppendFile(names.failures)
        return cls(files)

    def append(self, batch: Iterable[tuple[int, bool, bytes | memoryview]]) -> None:
        """Write records given as (owner shard, is a result, line)."""
        groups: defaultdict[tuple[int, bool], list[bytes | memoryview]] = defaultdict(list)
        for owner, is_result, record in batch:
            groups[owner, is_result].append(record)
        for key, records in groups.items():
            self._files[key].append(records)

    def sync(self) -> None:
        """Have the disk confirm all files."""
        for file in self._files.values():
            file.sync()

    def close(self) -> None:
        """Confirm and close all files; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            for file in self._files.values():
                file.close()

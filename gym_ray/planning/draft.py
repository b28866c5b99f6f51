"""The files of a plan while it is not known yet whether the plan is valid.

Files appear under their names only together and complete; otherwise nothing is left behind.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gym_ray.errors import RecordingError

BUFFER_BYTES = 32 * 2**20
"""Memory for lines that are not written yet, shared by all files."""
MAX_BUFFER_BYTES = 2**20
"""For one file: a write this long costs as much for a byte as a longer one."""
MAX_OPEN_FILES = 64
"""Files that a reader keeps open: below any limit on descriptors, and more than the usual number of shards."""


class Draft:
    """Files under temporary names beside their final ones.

    A file is open only while a buffer of it is written, so many shards do not need as many file descriptors.
    """

    def __init__(self, targets: Iterable[Path], buffer_bytes: int = BUFFER_BYTES) -> None:
        """Nothing is created before a buffer is full.

        Raises:
            RecordingError: here and in every method, if the file system refuses.
        """
        token = secrets.token_hex(4)
        self._targets = list(targets)
        self._files = [target.with_name(f".{target.name}.{token}.tmp") for target in self._targets]
        self._buffers = [bytearray() for _ in self._files]
        self._room = min(MAX_BUFFER_BYTES, buffer_bytes // max(len(self._files), 1))

    @property
    def files(self) -> list[Path]:
        """Where the lines are; a file exists once it was flushed."""
        return list(self._files)

    def put(self, number: int, line: bytes) -> None:
        """Append a line, given without its end, to a file."""
        buffer = self._buffers[number]
        buffer += line
        buffer += b"\n"
        if len(buffer) > self._room:
            self._write(number)

    def flush(self) -> None:
        """Write what is buffered; afterwards every file exists."""
        for number in range(len(self._files)):
            self._write(number)

    def publish(self) -> None:
        """Make all files durable, then give them their names, the first file last: who finds it finds all."""
        self.flush()
        with _recording_errors():
            for file in self._files:
                _sync(file, os.O_RDONLY)
            for file, target in reversed(list(zip(self._files, self._targets, strict=True))):
                file.replace(target)
            for folder in {target.parent for target in self._targets}:
                _sync(folder, os.O_RDONLY | os.O_DIRECTORY)

    def discard(self) -> None:
        """Remove what has not got its name."""
        with _recording_errors():
            for file in self._files:
                file.unlink(missing_ok=True)

    @contextmanager
    def reader(self, max_open_files: int = MAX_OPEN_FILES) -> "Iterator[DraftReader]":
        """For reading lines of the flushed files at any place."""
        reader = DraftReader(self._files, max_open_files)
        try:
            yield reader
        finally:
            reader.close()

    def _write(self, number: int) -> None:
        with _recording_errors(self._targets[number]), self._files[number].open("ab") as stream:
            stream.write(self._buffers[number])
        self._buffers[number].clear()


class DraftReader:
    """Reads pieces of files by place; keeps some of the files open."""

    def __init__(self, files: list[Path], max_open_files: int) -> None:
        self._files = files
        self._max_open_files = max_open_files
        self._descriptors: dict[int, int] = {}

    def read(self, number: int, offset: int, length: int) -> bytes:
        """`length` bytes of a file."""
        with _recording_errors():
            descriptor = self._descriptors.get(number)
            if descriptor is None:
                if len(self._descriptors) >= self._max_open_files:
                    os.close(self._descriptors.pop(next(iter(self._descriptors))))
                descriptor = self._descriptors[number] = os.open(self._files[number], os.O_RDONLY)
            return os.pread(descriptor, length, offset)

    def close(self) -> None:
        """Close every file."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


@contextmanager
def _recording_errors(target: Path | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordingError(
            f"{target or error.filename}: the plan cannot be written: {error.strerror}: make room there, or choose "
            "another --output; nothing was sent"
        ) from error


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files of lines that a crash has cut: the last line is completed, or taken off and kept aside.

Invariant: nothing is lost. Bytes leave a file only after they are durable in `<name>.torn-<n>`.
Source: protocol §7.7.1.
"""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gym_ray.recording.atomic import sync_directory

logger = logging.getLogger("gym_ray.recording")

CHUNK_BYTES = 1 << 20

_is_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done to the end of a file."""

    path: Path
    dropped_bytes: int = 0
    kept_in: Path | None = None
    """Where the dropped bytes are; None if the last record was whole and only its line end was missing."""

    def __str__(self) -> str:
        if self.kept_in is None:
            return f"{self.path}: the last record was whole, its line end was added"
        return f"{self.path}: the last {self.dropped_bytes} bytes were no record and are now in {self.kept_in.name}"


def repair_tail(path: Path) -> Repair | None:
    """End a file of records with a whole record; None if it does, is empty or is not there.

    Reads backwards to the last line end, a chunk at a time. Only a last line that may be whole is loaded.

    Raises:
        OSError: the file cannot be repaired; it is as it was, or repaired.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        start = _start_of_tail(fd, size)
        if start == size:
            return None
        if _is_record(fd, start, size):
            os.pwrite(fd, b"\n", size)
            repair = Repair(path)
        else:
            repair = Repair(path, size - start, _keep_aside(path, fd, start, size))
            os.ftruncate(fd, start)
        os.fsync(fd)
    finally:
        os.close(fd)
    logger.warning("%s", repair)
    return repair


def _start_of_tail(fd: int, size: int) -> int:
    """Where the bytes behind the last line end begin."""
    end = size
    while end > 0:
        begin = max(0, end - CHUNK_BYTES)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_record(fd: int, start: int, size: int) -> bool:
    """True if these bytes are one JSON object. A cut one never is, since its last brace is missing."""
    if os.pread(fd, 1, start) != b"{" or os.pread(fd, 1, size - 1) != b"}":
        return False
    line = os.pread(fd, size - start, start)
    try:
        line.decode()
        _is_object(line)
    except UnicodeDecodeError:
        return False
    except (msgspec.MsgspecError, RecursionError):
        return _is_object_slowly(line)
    return True


def _is_object_slowly(line: bytes) -> bool:
    """The standard parser takes escapes of lone surrogates, which are JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _keep_aside(path: Path, fd: int, start: int, size: int) -> Path:
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.torn-{number}")
        try:
            stream = aside.open("xb")
        except FileExistsError:
            number += 1
            continue
        with stream:
            for at in range(start, size, CHUNK_BYTES):
                stream.write(os.pread(fd, min(CHUNK_BYTES, size - at), at))
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(path.parent)
        return aside

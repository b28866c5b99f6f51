"""Files that appear whole or not at all."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gym_ray.recording.refusals import refusals
from gym_ray.recording.write_all import write_all

_BLOCK_BYTES = 1 << 20
"""Chunks are often single records; a write for each would cost more than the records."""


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write beside `path`, have the disk confirm, then take its place; on an error nothing changes.

    Holds about a mebibyte of the chunks at a time.

    Raises:
        RecordingError: the file system refuses. What `chunks` raises is raised.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with refusals(path):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            for block in _blocks(chunks):
                with refusals(path):
                    write_all(fd, block)
            with refusals(path):
                os.fsync(fd)
        finally:
            os.close(fd)
        with refusals(path):
            temporary.replace(path)
            sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json_atomically(path: Path, value: Any) -> None:
    """As `write_atomically`, for a JSON text that people read: indented by two, ASCII.

    Raises:
        ValueError: a number that JSON cannot hold.
    """
    write_atomically(path, [json.dumps(value, indent=2, allow_nan=False).encode(), b"\n"])


def sync_directory(directory: Path) -> None:
    """Make names that were created or changed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _blocks(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _BLOCK_BYTES:
            yield held
            held, size = [], 0
    yield held

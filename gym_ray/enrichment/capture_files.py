"""The files in which model servers capture calls: `<dir>/<key>.capture.jsonl` and its marker. Blocks: for threads.

Source: protocol §8.3.
"""

import fcntl
import re
from pathlib import Path
from typing import NamedTuple

_KEY = re.compile(r"[A-Za-z0-9._-]+")


class CaptureFile(NamedTuple):
    """What was found for one key."""

    lines: list[bytes] | None
    """None if there is no file."""
    is_incomplete: bool
    is_unreadable: bool = False


def read_capture_file(directory: Path, key: str) -> CaptureFile:
    """The captured lines of one attempt; reads under a shared lock, never raises for what is there."""
    file, marker = _paths(directory, key)
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH)
            lines = stream.read().splitlines()
    except FileNotFoundError:
        return CaptureFile(None, marker.exists())
    except OSError:
        return CaptureFile(None, marker.exists(), is_unreadable=True)
    return CaptureFile(lines, marker.exists())


def delete_capture_files(directory: Path, key: str) -> None:
    """Remove what was captured under a key: of an earlier attempt with its number, or after it was merged."""
    for path in _paths(directory, key):
        path.unlink(missing_ok=True)


def _paths(directory: Path, key: str) -> tuple[Path, Path]:
    if _KEY.fullmatch(key) is None or key in (".", ".."):
        raise ValueError(f"expected a capture key, found {key!r}")
    return directory / f"{key}.capture.jsonl", directory / f"{key}.capture.incomplete"

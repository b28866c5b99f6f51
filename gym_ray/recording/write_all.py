"""Writes of many buffers that need not be one."""

import os
from collections.abc import Sequence

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX")

Buffer = bytes | memoryview


def write_all(fd: int, buffers: Sequence[Buffer]) -> None:
    """Write every byte, without joining the buffers first, which would read and write each once more.

    Raises:
        OSError: the file system refuses; a part may have been written.
    """
    for first in range(0, len(buffers), _MAX_BUFFERS):
        part = buffers[first : first + _MAX_BUFFERS]
        written = os.writev(fd, part)
        if written < sum(map(len, part)):  # a signal came between, or the disk is about to refuse
            _write_rest(fd, part, written)


def _write_rest(fd: int, buffers: Sequence[Buffer], written: int) -> None:
    rest = memoryview(b"".join(buffers))[written:]
    while rest:
        rest = rest[os.write(fd, rest) :]

"""Many buffers, and writes that the kernel cuts short."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gym_ray.recording.write_all import write_all


def written(path: Path, buffers: Sequence[bytes | memoryview]) -> bytes:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        write_all(fd, buffers)
    finally:
        os.close(fd)
    return path.read_bytes()


@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 1025, 5000])
def test_every_buffer_is_written_in_order(tmp_path: Path, count: int) -> None:
    buffers = [memoryview(b"%d\n" % number) if number % 2 else b"%d\n" % number for number in range(count)]
    assert written(tmp_path / "f", buffers) == b"".join(buffers)


@pytest.mark.parametrize("taken", [1, 3, 4, 7, 11])
def test_what_the_kernel_did_not_take_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    write = os.write
    monkeypatch.setattr(os, "writev", lambda fd, buffers: write(fd, b"".join(buffers)[:taken]))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))
    assert written(tmp_path / "f", [b"one\n", memoryview(b"two\n"), b"six\n"]) == b"one\ntwo\nsix\n"

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gym_ray.errors import RecordingError, WriterSupersededError
from gym_ray.recording.writer_lock import WriterLock, read_holder

HOLDER = """
import sys, time
from pathlib import Path
from gym_ray.recording.writer_lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
with lock.take():
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_newest_opener_is_named_in_the_locked_file(tmp_path: Path) -> None:
    path = tmp_path / "s.lock"
    assert read_holder(path) is None
    lock = WriterLock(path)
    with lock.take():
        holder = read_holder(path)
    assert holder is not None
    assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
    assert holder.opened_at.endswith("Z")
    lock.close()
    lock.close()


def test_a_superseded_writer_is_told_by_whom(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path / "s.lock"), WriterLock(tmp_path / "s.lock")
    with first.take():
        pass
    with first.held():
        pass
    with second.take():
        pass
    with pytest.raises(WriterSupersededError, match=f"process {os.getpid()} on .* since"), first.held():
        raise AssertionError("entered without the right")
    with second.held():
        pass
    first.close()
    second.close()


def test_the_lock_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.lock"
    inodes = set()
    for _ in range(3):
        lock = WriterLock(path)
        with lock.take():
            inodes.add(path.stat().st_ino)
        lock.close()
    assert {path.stat().st_ino} == inodes


def test_a_writer_that_keeps_the_lock_is_named_after_a_bounded_wait(tmp_path: Path) -> None:
    first = WriterLock(tmp_path / "s.lock")
    second = WriterLock(tmp_path / "s.lock", timeout_s=0.03)
    with first.take(), pytest.raises(RecordingError, match=f"process {os.getpid()}"), second.take():
        raise AssertionError("entered without the lock")
    with second.take():  # free again
        pass
    first.close()
    second.close()


def test_the_lock_is_free_when_its_block_raises(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path / "s.lock"), WriterLock(tmp_path / "s.lock", timeout_s=0)
    with pytest.raises(ZeroDivisionError), first.take():
        raise ZeroDivisionError
    with second.take():
        pass
    first.close()
    second.close()


def test_a_killed_holder_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "s.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        lock = WriterLock(path, timeout_s=0)
        with pytest.raises(RecordingError, match=f"process {child.pid}"), lock.take():
            raise AssertionError("entered without the lock")
        child.send_signal(signal.SIGKILL)
        child.wait()
    with lock.take():
        pass
    lock.close()


def test_an_opener_that_was_killed_before_it_left_its_name_still_supersedes(tmp_path: Path) -> None:
    path = tmp_path / "s.lock"
    lock = WriterLock(path)
    with lock.take():
        pass
    path.write_bytes(b"")
    with pytest.raises(WriterSupersededError, match="left no name"), lock.held():
        raise AssertionError("entered without the right")
    assert read_holder(path) is None
    lock.close()


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    first, second = (WriterLock(tmp_path / "s.lock", flock=refuse) for _ in range(2))
    with caplog.at_level(logging.WARNING, "gym_ray.recording"), first.take():
        pass
    assert "no locks" in caplog.text
    with second.take():
        pass
    with pytest.raises(WriterSupersededError), first.held():
        raise AssertionError("entered without the right")
    first.close()
    second.close()


def test_another_refusal_of_the_file_system_is_told(tmp_path: Path) -> None:
    def refuse(_fd: int, _operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    lock = WriterLock(tmp_path / "s.lock", flock=refuse)
    with pytest.raises(RecordingError, match=r"cannot be locked: Input/output error"), lock.take():
        raise AssertionError("entered without the lock")
    lock.close()

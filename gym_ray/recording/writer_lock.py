"""One writer for each shard: an exclusive file lock, and in the locked file the token of whoever opened it last.

Invariants: the lock file is never removed or replaced, so that all writers lock the same inode; its content changes
only under the lock; a writer that finds another token than its own writes nothing any more.

Source: protocol §7.5. `flock` on a descriptor that stays open costs 0.8 us for each append with the reading of the
token; a lock object that opens the file each time costs 85 us and excludes the same writers.
"""

import errno
import fcntl
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gym_ray.errors import RecordingError, WriterSupersededError

logger = logging.getLogger("gym_ray.recording")

LOCK_TIMEOUT_S = 30.0
"""A writer holds the lock for one append: a few milliseconds, or a few seconds on a struggling network file system."""
_POLL_S = 0.01
_CONTENT_BYTES = 4096
"""More than any content that a writer leaves."""
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})
"""What file systems say that are mounted without locks (some Lustre)."""


class Holder(msgspec.Struct, frozen=True):
    """Who opened a shard last."""

    token: str
    pid: int
    host: str
    opened_at: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.opened_at}"


class WriterLock:
    """The right to write to one shard, until somebody else opens it. `close` it."""

    def __init__(
        self, path: Path, *, timeout_s: float = LOCK_TIMEOUT_S, flock: Callable[[int, int], None] = fcntl.flock
    ) -> None:
        """Open the lock file, and make it if it is not there; the right comes with `take`."""
        self._path = path
        self._timeout_s = timeout_s
        self._flock = flock
        self._content = b""
        self._has_locks = True
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    @contextmanager
    def take(self) -> Iterator[None]:
        """Supersede every earlier writer; the lock is held within the block.

        Raises:
            RecordingError: another writer keeps the lock, or the file system has no room for the token.
        """
        with self._locked():
            holder = Holder(secrets.token_hex(8), os.getpid(), socket.gethostname(), f"{datetime.now(UTC):%FT%TZ}")
            self._content = msgspec.json.encode(holder) + b"\n"
            os.ftruncate(self._fd, 0)  # a kill behind this line leaves no holder: the earlier one is superseded too
            os.pwrite(self._fd, self._content, 0)
            yield

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock is held within the block, and nobody has superseded this writer.

        Raises:
            WriterSupersededError: another writer has opened the shard.
            RecordingError: another writer keeps the lock.
        """
        with self._locked():
            content = os.pread(self._fd, _CONTENT_BYTES, 0)
            if content != self._content:
                raise WriterSupersededError(
                    f"{self._path}: another writer has opened this shard ({_named(content)}); nothing was written: "
                    "end one of the two runs, or give them different outputs"
                )
            yield

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock()
        try:
            yield
        finally:
            if self._has_locks:
                self._flock(self._fd, fcntl.LOCK_UN)

    def _lock(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while self._has_locks:
            try:
                self._flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RecordingError(
                        f"{self._path}: another writer keeps the lock for more than {self._timeout_s:g} s "
                        f"({_named(os.pread(self._fd, _CONTENT_BYTES, 0))}): end it, or choose another output"
                    ) from None
                time.sleep(_POLL_S)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise RecordingError(f"{self._path}: cannot be locked: {error.strerror}") from error
                self._has_locks = False
                logger.warning("%s: the file system has no locks; two writers are told apart by token only", self._path)


def read_holder(path: Path) -> Holder | None:
    """Who opened a shard last; None if nobody has, or if they left no legible token."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _named(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content, type=Holder))
    except msgspec.MsgspecError:
        return "it has left no name"

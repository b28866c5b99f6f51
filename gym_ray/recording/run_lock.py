"""One run in a folder at a time: a lock held for the life of a run, which the kernel lets go when its holder dies."""

import contextlib
import fcntl
import json
import os
import socket
from datetime import UTC, datetime

import filelock

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths

PATIENCE_S = 1.0
"""A holder that was just killed needs a moment to be gone."""


class RunLock:
    """Hold it from the first record to the last file; `release` it, or die."""

    def __init__(self, paths: RunPaths, run_id: str) -> None:
        """Take the lock.

        Raises:
            RunFolderError: another run holds it; the message says which, where and since when.
        """
        path = paths.run_lock
        self._lock = filelock.FileLock(path, timeout=PATIENCE_S, thread_local=False)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise RunFolderError(
                f"{path}: another run writes here: {_holder(paths)}: wait for it, or stop it"
            ) from None
        fact = {
            "run_id": run_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": f"{datetime.now(UTC):%FT%TZ}",
        }
        paths.run_holder.write_text(json.dumps(fact))

    def release(self) -> None:
        """Let the next run in; a second call does nothing."""
        self._lock.release()


def holder_of(paths: RunPaths) -> str | None:
    """Who writes to a run now; None if nobody does."""
    try:
        descriptor = os.open(paths.run_lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that several who look do not take each other for a holder, and reading is all that it needs
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(paths)
    finally:
        os.close(descriptor)
    return None


def _holder(paths: RunPaths) -> str:
    with contextlib.suppress(OSError, ValueError):
        fact = json.loads(paths.run_holder.read_text())
        return f"run {fact['run_id']} on {fact['host']}, process {fact['pid']}, since {fact['since']}"
    return "it does not say which"

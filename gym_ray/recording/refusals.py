"""What a person is told when a file system refuses to write."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gym_ray.errors import RecordingError

_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of the quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "make the file system writable",
    errno.EACCES: "make the folder writable",
    errno.EIO: "check the disk or the network file system",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn what the file system says within the block, in which nothing but `path` is touched, into one error.

    Raises:
        RecordingError: the file system refuses.
    """
    try:
        yield
    except OSError as error:
        raise refused(path, error) from error


def refused(path: Path, error: OSError) -> RecordingError:
    """The error for a file that cannot be written."""
    remedy = _REMEDIES.get(error.errno or 0, "see that the folder is there and may be written")
    reason = error.strerror or str(error)
    return RecordingError(f"{path}: cannot be written: {reason}; earlier records are intact: {remedy}, then continue")

"""Where the command line writes: results to stdout, all else to stderr, also what libraries print."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def results_stream() -> Iterator[TextIO]:
    """The real stdout for our own results; file descriptor 1 leads to stderr meanwhile.

    Ray prints warnings of its processes to descriptor 1, which would corrupt what a program reads from us.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)

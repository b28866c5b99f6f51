"""Where the command line writes: results to stdout, all else to stderr, also what libraries print."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from gym_ray.observe.printable import printable

MAX_MESSAGE_CHARS = 2000
"""A message may quote what a server sent; beyond this it is no message."""


@contextlib.contextmanager
def results_stream() -> Iterator[TextIO]:
    """The real stdout for our own results; file descriptor 1 leads to stderr meanwhile.

    Ray prints warnings of its processes to descriptor 1, which would corrupt what a program reads from us. A reader
    that has gone away is no error: the results are on disk.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    stream = os.fdopen(os.dup(kept), "w", encoding="utf-8", errors="backslashreplace")
    try:
        with contextlib.suppress(BrokenPipeError):
            yield stream
    finally:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def tell(message: str) -> None:
    """Write a message to stderr, each of its lines made printable."""
    sys.stderr.write("".join(f"gym-ray: {printable(line, MAX_MESSAGE_CHARS)}\n" for line in message.splitlines()))


class MessageHandler(logging.Handler):
    """Tells what is logged. Asks for stderr each time, since a live view stands in for it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one message, with the traceback if it has one."""
        try:
            tell(record.getMessage())
            if record.exc_info:
                sys.stderr.write(logging.Formatter().formatException(record.exc_info) + "\n")
        except Exception:  # noqa: BLE001 - the way of every logging handler: a bad message must not end the program
            self.handleError(record)

"""Opens input files as streams of lines, whatever they are compressed with."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gym_ray.errors import InputError
from gym_ray.rows.finding import InputFile

BUFFER_BYTES = 2**20
"""A read this long costs as much for a byte as a longer one, also from an object store."""


@contextmanager
def opened(file: InputFile) -> Iterator[BinaryIO]:
    """The decompressed bytes of a file, by its suffix: `.gz`, `.zst`, else as they are. Closed at the end."""
    with file_errors(file):
        raw = _raw(file)
        with raw:
            if file.path.endswith(".gz"):
                with gzip.open(raw, "rb") as unzipped:
                    yield io.BufferedReader(unzipped, BUFFER_BYTES)
            elif file.path.endswith(".zst"):
                import pyarrow  # noqa: PLC0415  # half a second and 60 MB, for those who need it

                with pyarrow.CompressedInputStream(raw, "zstd") as unzipped:
                    yield io.BufferedReader(unzipped, BUFFER_BYTES)
            else:
                yield io.BufferedReader(raw, BUFFER_BYTES)


@contextmanager
def file_errors(file: InputFile) -> Iterator[None]:
    """Turns what goes wrong with a file into an error that names it."""
    try:
        yield
    except InputError:
        raise
    # A truncated gzip file is an EOFError, a damaged one a zlib.error, and pyarrow's errors are ValueErrors
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{file.name}: cannot be read: {reason}") from None


def _raw(file: InputFile) -> io.RawIOBase:
    if file.filesystem is None:
        return Path(file.path).open("rb", buffering=0)
    stream: io.RawIOBase = file.filesystem.open_input_stream(file.path, compression=None)
    return stream

"""Input files as a stream of rows. Nothing is held but the line at hand."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gym_ray.errors import InputError
from gym_ray.rows.locating import locate
from gym_ray.rows.source_row import SourceRow

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class RowFiles(Iterable[SourceRow]):
    """The rows of files, in the order given. Each iteration opens and reads them anew and closes them."""

    def __init__(self, paths: Sequence[str | Path], environ: Mapping[str, str] = os.environ) -> None:
        """Finds the files.

        Raises:
            InputError: one of them does not exist.
        """
        self._files = [(str(path), locate(path, environ)) for path in paths]
        for name, file in self._files:
            if not file.is_file():
                found = "a folder" if file.is_dir() else "none"
                raise InputError(f"{name}: expected a file with input rows, found {found}")

    def __iter__(self) -> Iterator[SourceRow]:
        position = 0
        for name, file in self._files:
            with file.open("rb") as stream:
                for row in split_lines(stream, name, position):
                    yield row
                    position = row.position + 1


def read_rows(paths: str | Path | Sequence[str | Path]) -> Iterator[SourceRow]:
    """The rows of one or several JSONL files, in order, unparsed: `parse_document` says what is wrong with one.

    Raises:
        InputError: a file does not exist or cannot be read.
    """
    return iter(RowFiles([paths] if isinstance(paths, str | Path) else list(paths)))


def split_lines(stream: Iterable[bytes], name: str, position: int = 0) -> Iterator[SourceRow]:
    """The rows of a binary stream that is read line by line. Lines end at the byte 0x0A and nowhere else; a carriage
    return before it belongs to the line end, and a byte order mark at the start of the file to nobody.
    """
    for number, raw in enumerate(stream, 1):
        line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
        is_terminated = line.endswith(b"\n")
        line = line.removesuffix(b"\n")
        yield SourceRow(line.removesuffix(b"\r"), name, number, position + number - 1, True, is_terminated)

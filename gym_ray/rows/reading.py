"""Input files as a stream of rows. Nothing is held but the row at hand, of Parquet some hundred of them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gym_ray.rows.finding import InputFile, find_files
from gym_ray.rows.opening import opened
from gym_ray.rows.parquet import read_parquet
from gym_ray.rows.source_row import SourceRow

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PARQUET_SUFFIXES = (".parquet", ".pq")


class RowFiles(Iterable[SourceRow]):
    """The rows of files, in the order given. Each iteration opens and reads them anew and closes them."""

    def __init__(self, inputs: Sequence[str | Path], environ: Mapping[str, str] = os.environ) -> None:
        """Finds the files, so that a missing one is known before the first row.

        Raises:
            InputError: a file does not exist, or a pattern has none.
        """
        self._files = find_files(inputs, environ)

    def __iter__(self) -> Iterator[SourceRow]:
        """
        Raises:
            InputError: a file cannot be read.
        """
        position = 0
        for file in self._files:
            for row in _rows(file, position):
                yield row
                position = row.position + 1


def read_rows(inputs: str | Path | Sequence[str | Path]) -> RowFiles:
    """The rows of one or several files, in order, unparsed: `parse_document` says what is wrong with one.

    Each input is a path, a URI of a file system that pyarrow knows, or a pattern of either. Suffixes tell formats
    apart: `.parquet`, `.gz`, `.zst`; everything else is JSONL.

    Raises:
        InputError: a file does not exist; while iterating, that it cannot be read.
    """
    return RowFiles([inputs] if isinstance(inputs, str | Path) else list(inputs))


def split_lines(stream: Iterable[bytes], name: str, position: int = 0) -> Iterator[SourceRow]:
    """The rows of a binary stream that is read line by line. Lines end at the byte 0x0A and nowhere else; a carriage
    return before it belongs to the line end, and a byte order mark at the start of the file to nobody.
    """
    for number, raw in enumerate(stream, 1):
        line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
        is_terminated = line.endswith(b"\n")
        line = line.removesuffix(b"\n")
        yield SourceRow(line.removesuffix(b"\r"), name, number, position + number - 1, True, is_terminated)


def _rows(file: InputFile, position: int) -> Iterator[SourceRow]:
    if file.path.endswith(PARQUET_SUFFIXES):
        yield from read_parquet(file, position)
        return
    with opened(file) as stream:
        yield from split_lines(stream, file.name, position)

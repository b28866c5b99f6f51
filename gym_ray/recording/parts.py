"""Sealed parts: the records of a journal as one Parquet file that any program reads.

Invariants: a part appears whole or not at all; every line comes out as it went in, byte for byte; rows are sorted by
(task, rollout, attempt), and among equals stand as they were given. A part is never changed.
Importing this module loads pyarrow: half a second and 60 MB.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gym_ray.errors import InputError
from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.part_schema import (
    AGENT,
    ATTEMPT,
    FACT_SCHEMA,
    IS_EVIDENCE,
    IS_RESULT,
    NAME_COLUMNS,
    PART_SCHEMA,
    RECORD,
    ROLLOUT_INDEX,
    SERVER,
    SORT_COLUMNS,
    TASK_INDEX,
    Facts,
    Row,
    read_row,
)

MAX_GROUP_ROWS = 1_000
MAX_GROUP_BYTES = 1 << 20
"""Of record text in a row group: what a reader holds for one record, and passes over for the tasks that it does not
want. A record that is larger has a group of its own. A group costs 0.6 ms to write and 3 KB in the file."""
_BATCH_ROWS = 1_000
_DRAFT_BYTES = 64 << 20


def write_part(
    path: Path, results: Iterable[bytes], failures: Iterable[bytes], facts: Mapping[tuple[int, int, int], Facts]
) -> int:
    """Write record lines as one part and have the disk confirm; returns how many. A part at `path` is replaced.

    `facts` are by (task, rollout, attempt). Lines may lack their line end. All are held at once, with about 300 bytes
    for each; an error of an iterator changes nothing.

    Raises:
        InputError: a line is not a JSON object in UTF-8; the message names it by its place among its kind.
        RecordingError: the file system refuses.
    """
    draft = _Draft()
    for is_result, lines in ((True, results), (False, failures)):
        for number, line in enumerate(lines, 1):
            try:
                draft.add(line.removesuffix(b"\n"), is_result, facts)
            except ValueError as error:
                kind = "result" if is_result else "failure"
                raise InputError(
                    f"{path}: {kind} {number}: expected a record, found damage: {error}; nothing was sealed: "
                    "`gym-ray recover` takes damaged lines aside"
                ) from None
    write_atomically(path, _parquet([draft]))
    return len(draft.lines)


def write_sorted(path: Path, records: Iterable[tuple[bool, bytes]], facts: Mapping[tuple[int, int, int], Facts]) -> int:
    """As `write_part`, for any number of (is a result, line) that come sorted; holds 64 MiB of them at a time.

    Raises:
        InputError: a line is not a JSON object in UTF-8.
        RecordingError: the file system refuses.
    """
    written = 0

    def drafts() -> Iterator[_Draft]:
        nonlocal written
        draft, size = _Draft(), 0
        for is_result, line in records:
            try:
                draft.add(line.removesuffix(b"\n"), is_result, facts)
            except ValueError as error:
                raise InputError(f"{path}: record {written + 1}: expected a record, found damage: {error}") from None
            written += 1
            size += len(line)
            if size >= _DRAFT_BYTES:
                yield draft
                draft, size = _Draft(), 0
        yield draft

    write_atomically(path, _parquet(drafts()))
    return written


def read_lines(path: Path) -> Iterator[tuple[bool, bytes]]:
    """(is a result, line with its line end) of every record in the order of the file; holds one row group at a time.

    Raises:
        InputError: the part is damaged, or is none.
    """
    with closing(PartReader(path)) as reader:
        yield from reader.lines()


class PartRow(NamedTuple):
    """What an index needs of a record."""

    position: int
    is_result: bool
    is_evidence: bool
    """False if the record is no evidence of an attempt (protocol §7.6), or a result whose reward is null."""
    task: int | None
    rollout: int | None
    attempt: int
    server: str | None
    agent: str | None


_ROW_COLUMNS = (IS_RESULT, IS_EVIDENCE, TASK_INDEX, ROLLOUT_INDEX, ATTEMPT, SERVER, AGENT)


class PartReader:
    """Random access to one part, for one thread at a time; `close` it. Holds an open file and one row group."""

    def __init__(self, path: Path) -> None:
        """Open a part.

        Raises:
            InputError: it is damaged, or is none.
        """
        self._path = path
        with _damage(path):
            self._file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
            metadata, schema = self._file.metadata, self._file.schema_arrow
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        try:
            _check_schema(path, schema)
        except InputError:
            self.close()
            raise
        self._starts: list[int] = list(accumulate(sizes, initial=0))
        """The position of the first row of every group, and the number of rows."""
        self._held: tuple[int, Any] = (-1, None)
        """The last group of which a line was read, and its records."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many records the part has."""
        return self._starts[-1]

    def scan(self) -> Iterator[PartRow]:
        """The rows in the order of their positions 0, 1, ...; the records themselves are not read.

        Raises:
            InputError: the part is damaged.
        """
        position = 0
        for group in range(len(self._starts) - 1):
            table = self._read(group, _ROW_COLUMNS)
            for values in zip(*(table.column(name).to_pylist() for name in _ROW_COLUMNS), strict=True):
                yield PartRow(position, *values)
                position += 1

    def line(self, position: int) -> bytes:
        """One line, line end included. In sorted order of positions every row group is read once.

        Raises:
            InputError: the part is damaged.
        """
        if not 0 <= position < len(self):
            raise IndexError(f"{self._path}: expected a position below {len(self)}, found {position}")
        group = bisect_right(self._starts, position) - 1
        if self._held[0] != group:
            self._held = (-1, None)  # not two at once
            self._held = (group, self._read(group, (RECORD,)).column(RECORD))
        return _line(self._held[1][position - self._starts[group]])

    def lines(self) -> Iterator[tuple[bool, bytes]]:
        """(is a result, line with its line end) of every record; see `read_lines`."""
        for group in range(len(self._starts) - 1):
            table = self._read(group, (IS_RESULT, RECORD))
            for is_result, record in zip(table.column(IS_RESULT).to_pylist(), table.column(RECORD), strict=True):
                yield is_result, _line(record)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._held = (-1, None)
        self._file.close(force=True)

    def _read(self, group: int, columns: tuple[str, ...]) -> Any:
        with _damage(self._path):
            return self._file.read_row_group(group, columns=list(columns), use_threads=False)


class _Draft:
    """The records of a part that is not written yet: their lines, and their facts in columns."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._batches: list[Any] = []
        self._rows: list[Row] = []
        """Those of the last lines that are not in a batch yet: as Python objects they take five times the memory."""

    def add(self, line: bytes, is_result: bool, facts: Mapping[tuple[int, int, int], Facts]) -> None:
        """Take one line, without its line end.

        Raises:
            ValueError: it is not a JSON object in UTF-8.
        """
        self._rows.append(read_row(line, is_result, facts))
        self.lines.append(line)
        if len(self._rows) >= _BATCH_ROWS:
            self._pack()

    def groups(self) -> Iterator[Any]:
        """The sorted row groups as tables of `PART_SCHEMA`."""
        self._pack()
        table = pa.Table.from_batches(self._batches, FACT_SCHEMA).combine_chunks()
        self._batches.clear()
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in SORT_COLUMNS])
        numbers = order.to_pylist()
        for start, end in pairwise(_cuts(len(self.lines[number]) for number in numbers)):
            records = pa.array([self.lines[number] for number in numbers[start:end]], pa.large_string())
            facts = table.take(order.slice(start, end - start))
            yield pa.table([*facts.columns, records], schema=PART_SCHEMA)

    def _pack(self) -> None:
        if self._rows:
            columns = zip(FACT_SCHEMA.types, zip(*self._rows, strict=True), strict=True)
            arrays = [pa.array(values, kind) for kind, values in columns]
            self._batches.append(pa.record_batch(arrays, schema=FACT_SCHEMA))
            self._rows.clear()


class _Sink:
    """The file that pyarrow writes to, as pieces to take."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """There is nothing to close."""

    def take(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _parquet(drafts: Iterable[_Draft]) -> Iterator[bytes]:
    """The bytes of a part; holds one row group of them."""
    sink = _Sink()
    with pq.ParquetWriter(
        sink,
        PART_SCHEMA,
        compression="zstd",
        use_dictionary=list(NAME_COLUMNS),
        write_statistics=FACT_SCHEMA.names,  # those of records would be records
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(PART_SCHEMA.get_field_index(name)) for name in SORT_COLUMNS],
    ) as writer:
        for group in (group for draft in drafts for group in draft.groups()):
            writer.write_table(group, row_group_size=len(group))
            yield from sink.take()
    yield from sink.take()


def _cuts(sizes: Iterable[int]) -> Iterator[int]:
    """Where row groups begin, and where the last one ends; only 0 if there are no rows."""
    yield 0
    begun, held, number = 0, 0, 0
    for number, size in enumerate(sizes, 1):
        if number - begun > MAX_GROUP_ROWS or (held and held + size > MAX_GROUP_BYTES):
            begun, held = number - 1, 0
            yield begun
        held += size
    if number:
        yield number


def _line(record: Any) -> bytes:
    line: bytes = record.as_buffer().to_pybytes()
    return line + b"\n"


def _check_schema(path: Path, schema: Any) -> None:
    for name in (*_ROW_COLUMNS, RECORD):
        expected = PART_SCHEMA.field(name).type
        found = schema.field(name).type if name in schema.names else "none"
        if found != expected:
            raise InputError(
                f"{path}: expected a part, with a column {name} of {expected}, found {found}: move the file away"
            )


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn what pyarrow says of a file into one error."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"{path}: expected a part, but it cannot be read: {error.strerror}") from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path}: expected a part, found damage: {reason}: restore the file from a copy, or move it away and "
            "continue the run, which does its rollouts again"
        ) from None

"""All records of a run in one file that others read: sorted, one for each rollout, the same bytes for the same records.

Only what the log of attempts knows (latency, time) differs between two runs of the same work, and only Parquet and CSV
hold it.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gym_ray.actors.outputs import read_index
from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_atomically
from gym_ray.recording.attempts import Ended, read_attempts
from gym_ray.recording.found import find_run
from gym_ray.recording.part_schema import FACT_SCHEMA, IS_EVIDENCE, Facts, read_row
from gym_ray.recording.parts import write_sorted
from gym_ray.recording.run_files import record_files

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for a formula; names of others must not become one."""

Record = tuple[bool, bytes]
FactsByAttempt = dict[tuple[int, int, int], Facts]


def export_run(paths: RunPaths, target: Path, *, with_failures: bool = False) -> int:
    """Write the winning records of a run to `target`, a `.jsonl`, `.parquet` or `.csv` file; returns how many.

    Args:
        with_failures: also the failures of rollouts that have no result.

    Raises:
        ConfigError: another suffix, or a target that belongs to the run itself.
        RunFolderError: there is no run with this output.
        InputError: a record file is damaged.
        RecordingError: the file system refuses.
    """
    write = _WRITERS.get(target.suffix)
    if write is None:
        raise ConfigError(f"{target}: expected a name that ends in {', '.join(_WRITERS)}")
    found = find_run(paths)
    if found is None:
        raise RunFolderError(f"{paths.directory}: there is no run named {paths.stem!r}")
    files = record_files(found.paths)
    if target.absolute() in {*files.journals, *files.parts}:
        raise ConfigError(f"{target}: is a record file of the run: choose another name")
    index = read_index(found.paths)
    records = (record for record in index.winning_lines() if with_failures or record[0])
    facts = {
        (event.task, event.rollout, event.attempt): Facts(event.latency_ms, event.at_ms, event.sends)
        for event in read_attempts(found.paths.attempts)
        if isinstance(event, Ended)
    }
    write(target, records, facts)
    return index.results + (index.failures if with_failures else 0)


def _write_jsonl(target: Path, records: Iterable[Record], _facts: FactsByAttempt) -> None:
    write_atomically(target, (line for _, line in records))


def _write_parquet(target: Path, records: Iterable[Record], facts: FactsByAttempt) -> None:
    write_sorted(target, records, facts)


def _write_csv(target: Path, records: Iterable[Record], facts: FactsByAttempt) -> None:
    write_atomically(target, _csv_lines(records, facts))


def _csv_lines(records: Iterable[Record], facts: FactsByAttempt) -> Iterator[bytes]:
    """The columns of a part without the record itself; a quotation mark stands before what looks like a formula."""
    kept = [position for position, name in enumerate(FACT_SCHEMA.names) if name != IS_EVIDENCE]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FACT_SCHEMA.names[position] for position in kept)
    for is_result, line in records:
        row = read_row(line.rstrip(b"\n"), is_result, facts)
        writer.writerow(_cell(row[position]) for position in kept)
        if buffer.tell() > 1 << 20:
            yield buffer.getvalue().encode("utf-8", "backslashreplace")
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return "'" + value
    return "" if value is None else value


_WRITERS: dict[str, Callable[[Path, Iterable[Record], FactsByAttempt], None]] = {
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}

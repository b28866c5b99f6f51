"""Which record counts for each rollout, and where it stands on disk.

Rule: a result beats a failure; among records of one kind the highest attempt wins; among equals the first written:
the one in the file whose path sorts first, and within a file the one that stands first. Paths are sorted here, so the
rule does not depend on the order in which files are named. Equals are rare and alike: attempt numbers are not used
twice, so two files hold the same attempt only where one batch was written again.

Half a million records take 18 MB, and 48 MB more while they are sorted.
"""

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from gym_ray.errors import InputError
from gym_ray.identity import Origin
from gym_ray.recording.stamps import Stamps, read_stamps

if TYPE_CHECKING:
    from gym_ray.recording.parts import PartReader

_BUFFER_BYTES = 1 << 20


class Entry(NamedTuple):
    """The winning record of one rollout."""

    task: int
    rollout: int
    attempt: int
    is_result: bool
    origin: Origin
    number: int
    """Its place in the index."""


class RecordIndex:
    """The winning records of a set of files, by (task, rollout)."""

    def __init__(
        self, files: Iterable[Path], failure_files: Iterable[Path] = (), part_files: Iterable[Path] = ()
    ) -> None:
        results, failures, parts = sorted(set(files)), sorted(set(failure_files)), sorted(set(part_files))
        self._files = (*results, *failures, *parts)
        self._result_files, self._line_files = len(results), len(results) + len(failures)
        self._is_result = bytearray()
        self._tasks, self._rollouts, self._attempts = array("q"), array("q"), array("I")
        self._file_of, self._offsets, self._lengths = array("H"), array("Q"), array("I")
        self._origin_of = array("H")
        self._origin_ids: dict[tuple[str | None, str | None], int] = {}
        self._origins: list[Origin] = []
        self._winners = array("I")
        """Numbers of the winning records, sorted by task and rollout."""
        self.duplicates = 0
        """Results that lost to another result of the same rollout."""
        self.results = 0
        """Rollouts whose record is a result."""
        self.failures = 0
        """Rollouts whose record is a failure, since they have no result."""

    @classmethod
    def read(
        cls,
        files: Iterable[Path],
        failure_files: Iterable[Path] = (),
        part_files: Iterable[Path] = (),
        *,
        separates_servers: bool = False,
    ) -> Self:
        """Scan files of results, files of failures, and sealed parts once; those that do not exist hold none.

        A result whose reward is null is none. With `separates_servers`, rollouts of different environment servers are
        different ones whatever their indices, as in shards of several runs.
        Rows of failure files that are no evidence of an attempt (protocol §7.6), or name no rollout, are passed over.

        Raises:
            InputError: a line is not a record; the message names file and line.
        """
        index = cls((p for p in files if p.exists()), (p for p in failure_files if p.exists()), part_files)
        for number in range(index._line_files):
            index._scan(number)
        for number in range(index._line_files, len(index._files)):
            index._scan_part(number)
        index._choose(separates_servers=separates_servers)
        return index

    def __len__(self) -> int:
        """How many rollouts have a record."""
        return len(self._winners)

    def __iter__(self) -> Iterator[Entry]:
        """The winning records sorted by (task, rollout)."""
        for number in self._winners:
            yield Entry(
                self._tasks[number],
                self._rollouts[number],
                self._attempts[number],
                bool(self._is_result[number]),
                self._origins[self._origin_of[number]],
                number,
            )

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Every origin of a winning result, in the order of (task, rollout)."""
        ids = dict.fromkeys(self._origin_of[number] for number in self._winners if self._is_result[number])
        return tuple(self._origins[origin] for origin in ids)

    def keys(self) -> Iterator[tuple[int, int]]:
        """The rollouts that have a record, as sorted (task, rollout)."""
        return ((self._tasks[number], self._rollouts[number]) for number in self._winners)

    def read_line(self, entry: Entry) -> bytes:
        """The line of a record, line end included. For many records, `lines` is cheaper."""
        if self._file_of[entry.number] >= self._line_files:
            with _part(self._files[self._file_of[entry.number]]) as reader:
                return reader.line(self._offsets[entry.number])
        with self._files[self._file_of[entry.number]].open("rb", 0) as stream:
            return self._line(stream.fileno(), entry.number)

    def lines(self, origins: Iterable[Origin] | None = None) -> Iterator[bytes]:
        """The lines of winning results sorted by (task, rollout), of some origins or of all."""
        return (line for _, line in self.keyed_lines(origins))

    def keyed_lines(self, origins: Iterable[Origin] | None = None) -> Iterator[tuple[tuple[int, int], bytes]]:
        """As `lines`, each with its (task, rollout)."""
        wanted = self._ids(origins)
        results = (n for n in self._winners if self._is_result[n] and self._origin_of[n] in wanted)
        return (((self._tasks[number], self._rollouts[number]), line) for number, line in self._read_lines(results))

    def winning_lines(self) -> Iterator[tuple[bool, bytes]]:
        """(is a result, line) of every rollout that has a record, sorted by (task, rollout)."""
        return ((bool(self._is_result[number]), line) for number, line in self._read_lines(iter(self._winners)))

    def _read_lines(self, numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("rb", 0)) for path in self._files[: self._line_files]]
            parts = [stack.enter_context(_part(path)) for path in self._files[self._line_files :]]
            for number in numbers:
                file = self._file_of[number]
                if file < self._line_files:
                    yield number, self._line(files[file].fileno(), number)
                else:
                    yield number, parts[file - self._line_files].line(self._offsets[number])

    def count(self, origins: Iterable[Origin]) -> int:
        """How many rollouts have a result of one of these origins."""
        wanted = self._ids(origins)
        return sum(self._is_result[number] and self._origin_of[number] in wanted for number in self._winners)

    def _ids(self, origins: Iterable[Origin] | None) -> frozenset[int]:
        if origins is None:
            return frozenset(range(len(self._origins)))
        known = (self._origin_ids.get((origin.server, origin.agent)) for origin in origins)
        return frozenset(origin_id for origin_id in known if origin_id is not None)

    def _line(self, descriptor: int, number: int) -> bytes:
        line = os.pread(descriptor, self._lengths[number], self._offsets[number])
        if len(line) != self._lengths[number]:
            raise InputError(
                f"{self._files[self._file_of[number]]}: expected {self._lengths[number]} bytes at byte "
                f"{self._offsets[number]}, found {len(line)}: the file has changed while it was read; read it again"
            )
        return line if line.endswith(b"\n") else line + b"\n"

    def _scan(self, file: int) -> None:
        path, offset = self._files[file], 0
        is_failure = file >= self._result_files
        with path.open("rb", _BUFFER_BYTES) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    stamps = read_stamps(line)
                    if _is_attempt(stamps) if is_failure else stamps.reward is not None:
                        agent = stamps.agent.name if stamps.agent is not None else None
                        key = stamps.task or 0, stamps.rollout or 0, stamps.attempt or 0
                        self._add(file, offset, len(line), key, (stamps.server, agent), not is_failure)
                except (ValueError, OverflowError) as error:
                    hint = "" if line.endswith(b"\n") else " (the last line, cut off: continuing the run repairs it)"
                    raise InputError(f"{path}:{number}: expected a record, found damage: {error}{hint}") from None
                offset += len(line)

    def _scan_part(self, file: int) -> None:
        with _part(self._files[file]) as reader:
            for row in reader.scan():
                has_key = row.task is not None and row.rollout is not None
                if row.is_evidence and (has_key or row.is_result):
                    key = row.task or 0, row.rollout or 0, row.attempt
                    self._add(file, row.position, 0, key, (row.server, row.agent), row.is_result)

    def _add(
        self,
        file: int,
        offset: int,
        length: int,
        key: tuple[int, int, int],
        origin: tuple[str | None, str | None],
        is_result: bool,
    ) -> None:
        origin_id = self._origin_ids.get(origin)
        if origin_id is None:
            origin_id = self._origin_ids[origin] = len(self._origins)
            self._origins.append(Origin(*origin))
        self._tasks.append(key[0])
        self._rollouts.append(key[1])
        self._attempts.append(key[2])
        self._file_of.append(file)
        self._offsets.append(offset)
        self._lengths.append(length)
        self._origin_of.append(origin_id)
        self._is_result.append(is_result)

    def _choose(self, *, separates_servers: bool) -> None:
        """Sort all records, the best of each rollout first, and keep that one. Sorting is stable."""
        order = list(range(len(self._tasks)))
        order.sort(key=self._attempts.__getitem__, reverse=True)
        order.sort(key=self._is_result.__getitem__, reverse=True)
        if separates_servers:
            names = [origin.server or origin.agent or "" for origin in self._origins]
            order.sort(key=lambda number: names[self._origin_of[number]])
        order.sort(key=self._rollouts.__getitem__)
        order.sort(key=self._tasks.__getitem__)
        key: tuple[int, int, str] | None = None
        for number in order:
            server = names[self._origin_of[number]] if separates_servers else ""
            previous, key = key, (self._tasks[number], self._rollouts[number], server)
            if key != previous:
                self._winners.append(number)
                self.results += self._is_result[number]
            elif not self._is_copy(number, self._winners[-1]):
                self.duplicates += self._is_result[number]
        self.failures = len(self._winners) - self.results

    def _is_copy(self, number: int, winner: int) -> bool:
        """True for a record that was sealed and is still in its journal, because a crash came between."""
        is_sealed = self._file_of[number] >= self._line_files
        return (
            self._attempts[number] == self._attempts[winner]
            and self._is_result[number] == self._is_result[winner]
            and is_sealed != (self._file_of[winner] >= self._line_files)
        )


def part_keys(path: Path) -> Iterator[tuple[int, int]]:
    """The (task, rollout) of every record of a sealed part.

    Raises:
        InputError: the part is damaged.
    """
    with _part(path) as reader:
        yield from ((row.task or 0, row.rollout or 0) for row in reader.scan())


def _part(path: Path) -> "PartReader":
    from gym_ray.recording.parts import PartReader  # noqa: PLC0415 - pyarrow is for runs that have parts

    return PartReader(path)


def _is_attempt(stamps: Stamps) -> bool:
    has_key = stamps.task is not None and stamps.rollout is not None
    return has_key and not (stamps.is_omitted or stamps.is_unrouted)

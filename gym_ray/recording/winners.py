"""Which record counts for each rollout, and where it stands on disk.

Rule: a result beats a failure; among records of one kind the highest attempt wins; among equals the one in the
file that sorts first, then the one that stands earlier. The rule does not depend on the order in which files are named.
Half a million records take about 40 MB.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from gym_ray import keys
from gym_ray.errors import InputError
from gym_ray.identity import Origin


class _Agent(msgspec.Struct):
    name: str | None = None


class _Stamps(
    msgspec.Struct,
    rename={
        "task": keys.TASK_INDEX,
        "rollout": keys.ROLLOUT_INDEX,
        "attempt": keys.ATTEMPT_INDEX,
        "server": keys.ENVIRONMENT_SERVER,
        "agent": keys.AGENT_REF,
    },
):
    task: int = 0
    rollout: int = 0
    attempt: int = 0
    server: str | None = None
    agent: _Agent | None = None


_read_stamps = msgspec.json.Decoder(_Stamps).decode


class RecordIndex:
    """The winning records of a set of files, by (task, rollout)."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        self._offsets, self._lengths = array("Q"), array("I")
        self._file_of, self._origin_of, self._attempts = array("H"), array("H"), array("I")
        self._entry: dict[tuple[int, int], int] = {}
        self._origins: dict[Origin, int] = {}
        self.duplicates = 0
        """Records that lost to another of the same rollout."""

    @classmethod
    def read(cls, files: Iterable[Path]) -> Self:
        """Scan files of records of one kind once; those that do not exist hold none.

        Raises:
            InputError: a line is not a record; the message names file and line.
        """
        index = cls(sorted(path for path in files if path.exists()))
        for number, path in enumerate(index._files):
            index._scan(number, path)
        return index

    def __len__(self) -> int:
        return len(self._entry)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Every origin that occurs, in the order of first sight."""
        return tuple(self._origins)

    def keys(self) -> Iterable[tuple[int, int]]:
        """The rollouts that have a record, as (task, rollout)."""
        return self._entry.keys()

    def lines(self, origins: Iterable[Origin] | None = None) -> Iterator[bytes]:
        """The winning lines sorted by (task, rollout), of some origins or of all."""
        wanted = None if origins is None else {self._origins[origin] for origin in origins}
        streams = [path.open("rb") for path in self._files]
        try:
            for key in sorted(self._entry):
                entry = self._entry[key]
                if wanted is None or self._origin_of[entry] in wanted:
                    stream = streams[self._file_of[entry]]
                    stream.seek(self._offsets[entry])
                    yield stream.read(self._lengths[entry])
        finally:
            for stream in streams:
                stream.close()

    def count(self, origins: Iterable[Origin]) -> int:
        """How many rollouts have these origins."""
        wanted = {self._origins[origin] for origin in origins}
        return sum(self._origin_of[entry] in wanted for entry in self._entry.values())

    def _scan(self, file: int, path: Path) -> None:
        offset = 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    stamps = _read_stamps(line)
                except msgspec.MsgspecError as error:
                    raise InputError(f"{path}:{number}: expected a record, found damage: {error}") from None
                self._offer(file, offset, len(line), stamps)
                offset += len(line)

    def _offer(self, file: int, offset: int, length: int, stamps: _Stamps) -> None:
        key = (stamps.task, stamps.rollout)
        held = self._entry.get(key)
        if held is not None:
            self.duplicates += 1
            if self._attempts[held] >= stamps.attempt:  # earlier in file order, which is the order of the scan
                return
        origin = Origin(stamps.server, stamps.agent.name if stamps.agent else None)
        self._entry[key] = len(self._offsets)
        self._offsets.append(offset)
        self._lengths.append(length)
        self._file_of.append(file)
        self._attempts.append(stamps.attempt)
        self._origin_of.append(self._origins.setdefault(origin, len(self._origins)))

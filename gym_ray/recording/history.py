"""What earlier invocations left of each rollout of a plan: its result, its failures, the attempt numbers it has used.

Invariants: a rollout with a result is never owed again; an attempt number is never given out twice; what was only
interrupted (cancelled, killed, never sent) uses up a number but not one of the attempts that a rollout may have.
Source: protocol §7.6, §7.7.2. A rollout costs about 200 bytes while the files are read, and 40 afterwards.
"""

import json
import math
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gym_ray import keys
from gym_ray.errors import InputError
from gym_ray.outcomes.judge import INTERRUPTIONS
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.outcomes.reply import Delivery
from gym_ray.recording.attempts import Started, read_attempts
from gym_ray.recording.run_files import RecordFiles
from gym_ray.recording.stamps import MAX_ATTEMPTS, check_attempt

_BUFFER_BYTES = 1 << 20
_MAX_COUNT = 255
_NOTHING, _RESULT, _FAILURE = range(3)


class _Metadata(msgspec.Struct):
    elapsed_seconds: Any = None


class _Response(msgspec.Struct):
    metadata: _Metadata | None = None


class _Cause(msgspec.Struct):
    failure_kind: Any = None


class _TypedRecord(msgspec.Struct):
    delivery: Any = None
    failure: _Cause | None = None


class _Record(
    msgspec.Struct,
    kw_only=True,
    rename={
        "task": keys.TASK_INDEX,
        "rollout": keys.ROLLOUT_INDEX,
        "attempt": keys.ATTEMPT_INDEX,
        "failure_class": keys.FAILURE_CLASS,
        "terminal": keys.FAILURE_TERMINAL,
        "counts_as_zero": keys.FAILURE_COUNTS_AS_ZERO,
        "omitted": keys.OMITTED_ROLLOUT,
        "unrouted": keys.UNROUTED_RUN_ERROR,
        "typed": keys.FAILURE_RECORD,
    },
):
    task: Any = None
    rollout: Any = None
    attempt: Any = None
    reward: Any = msgspec.UNSET
    mask_sample: Any = None
    failure_class: Any = None
    terminal: Any = None
    counts_as_zero: Any = None
    omitted: Any = None
    unrouted: Any = None
    elapsed_seconds: Any = None
    reuse_cached_deliverable: Any = None
    response: _Response | None = None
    typed: _TypedRecord | None = None


_decode = msgspec.json.Decoder(_Record).decode


class History:
    """The past of the rollouts `0 .. planned - 1` of one plan."""

    def __init__(self, rollout_keys: Iterable[tuple[int, int]]) -> None:
        """`rollout_keys` are the (task, rollout) of the plan by number."""
        planned = 0
        self._numbers: dict[tuple[int, int], int] = {}
        for planned, key in enumerate(rollout_keys, 1):
            self._numbers.setdefault(key, planned - 1)
        self.planned_twice = planned - len(self._numbers)
        """Rollouts that the plan has more than once, which no plan should."""
        self._states = bytearray(planned)
        self._next_attempts = array("H", bytes(2 * planned))
        self._spent = bytearray(planned)
        self._deciding = array("i", [-1]) * planned
        """The attempt whose record decides so far."""
        self._final = bytearray(planned)
        self._masked = bytearray(planned)
        self._reuses = bytearray(planned)
        self._rewards = array("d", [math.nan]) * planned
        self._durations = array("d", [0.0]) * planned
        self._classes: dict[int, str] = {}
        self._interrupted = bytearray(planned)
        self.duplicates = 0
        """Results that lost to another result of the same rollout."""
        self.failed_attempts = 0
        """Failure rows that are evidence of an attempt."""
        self.lost_results: set[int] = set()
        """Rollouts whose result the log of attempts knows and no file holds: it was removed, or a disk has lost it."""
        self.strangers = 0
        """Records of rollouts that the plan does not have."""

    @classmethod
    def read(
        cls,
        rollout_keys: Iterable[tuple[int, int]],
        files: RecordFiles,
        attempts: Path | None = None,
        *,
        passes_over_cuts: bool = False,
    ) -> "History":
        """Scan the record files once, then the log of attempts.

        With `passes_over_cuts` a last line that a crash has cut is no damage: whoever continues the run mends it.

        Raises:
            InputError: a line is not a record, or a part is damaged; the message names the place.
        """
        history = cls(rollout_keys)
        sealed: set[tuple[int, int, int, bool]] = set()
        for path in files.parts:
            for is_result, line in _sealed_lines(path):
                record = _read(line)
                sealed.add(_identity(record, is_result))
                (history.add_result if is_result else history.add_failure)(record)
        for is_result, paths in ((True, files.results), (False, files.failures)):
            for path in sorted(paths):
                for record in _records(path, passes_over_cuts=passes_over_cuts):
                    if not sealed or _identity(record, is_result) not in sealed:
                        (history.add_result if is_result else history.add_failure)(record)
        if attempts is not None:
            history.add_attempts(attempts)
        return history

    # What a run asks

    def has_result(self, number: int) -> bool:
        return self._states[number] == _RESULT

    def has_failure(self, number: int) -> bool:
        """True if failures are all that it has."""
        return self._states[number] == _FAILURE

    def was_interrupted(self, number: int) -> bool:
        """True if an attempt was handed out of which there is no record."""
        return bool(self._interrupted[number])

    def is_final(self, number: int, max_attempts: int) -> bool:
        """True if its failure stands: terminal, counted as a zero, or the last of the attempts that it may have."""
        return self.has_failure(number) and (bool(self._final[number]) or self._spent[number] >= max_attempts)

    def next_attempt(self, number: int) -> int:
        """The lowest attempt number that was never given out."""
        return self._next_attempts[number]

    def spent(self, number: int) -> int:
        """Attempts that count against the most that it may have."""
        return self._spent[number]

    def failure_class(self, number: int) -> str:
        """The class of the failure that decides."""
        return self._classes.get(number, "unclassified")

    def reward(self, number: int) -> float | None:
        """The reward of its result."""
        reward = self._rewards[number]
        return None if math.isnan(reward) else reward

    def is_masked(self, number: int) -> bool:
        return bool(self._masked[number])

    def reuses_deliverable(self, number: int) -> bool:
        """True if a server has kept something that its next attempt shall use."""
        return bool(self._reuses[number])

    def duration_s(self, number: int) -> float:
        """The longest that an earlier attempt took; 0 if nothing is known."""
        return self._durations[number]

    def __len__(self) -> int:
        return len(self._states)

    # Reading

    def add_result(self, record: _Record) -> None:
        number = self._number(record)
        if number is None:
            return
        attempt = _count(record.attempt)
        self._use(number, attempt)
        if record.reward is None:
            return  # what servers write for a reward that is no number: run it again
        if self._states[number] == _RESULT:
            self.duplicates += 1
            if attempt <= self._deciding[number]:
                return
        self._states[number] = _RESULT
        self._deciding[number] = attempt
        self._rewards[number] = _finite(record.reward)
        self._masked[number] = record.mask_sample is True
        self._note_duration(number, record)

    def add_failure(self, record: _Record) -> None:
        if record.unrouted:
            return
        number = self._number(record)
        if number is None:
            return
        attempt = _count(record.attempt)
        if record.omitted:
            return
        self.failed_attempts += 1
        self._use(number, attempt)
        self._note_duration(number, record)
        self._reuses[number] |= bool(record.reuse_cached_deliverable)
        if not _is_interruption(record):
            self._spent[number] = min(self._spent[number] + 1, _MAX_COUNT)
        if self._states[number] == _RESULT or attempt < self._deciding[number]:
            return
        self._states[number] = _FAILURE
        self._deciding[number] = attempt
        self._final[number] = bool(record.terminal) or bool(record.counts_as_zero)
        if isinstance(record.failure_class, str):
            self._classes[number] = record.failure_class

    def add_attempts(self, log: Path) -> None:
        """Take over numbers that were given out and durations; call it after the records are in."""
        for event in read_attempts(log):
            number = self._numbers.get((event.task, event.rollout))
            if number is None or not 0 <= event.attempt < MAX_ATTEMPTS:
                continue
            if isinstance(event, Started):
                self._interrupted[number] |= event.attempt >= self._next_attempts[number]  # no record of it was seen
            else:
                self._interrupted[number] = False
                if event.kind == OutcomeKind.RESULT and self._states[number] != _RESULT:
                    self.lost_results.add(number)
                self._durations[number] = max(self._durations[number], event.latency_ms / 1000)
            self._use(number, event.attempt)

    def _number(self, record: _Record) -> int | None:
        if type(record.task) is not int or type(record.rollout) is not int:
            return None
        number = self._numbers.get((record.task, record.rollout))
        self.strangers += number is None
        return number

    def _use(self, number: int, attempt: int) -> None:
        self._next_attempts[number] = max(self._next_attempts[number], attempt + 1)

    def _note_duration(self, number: int, record: _Record) -> None:
        metadata = record.response.metadata if record.response is not None else None
        for value in (record.elapsed_seconds, metadata.elapsed_seconds if metadata is not None else None):
            duration = _finite(value)
            self._durations[number] = max(self._durations[number], duration)


def _sealed_lines(path: Path) -> Iterator[tuple[bool, bytes]]:
    from gym_ray.recording.parts import read_lines  # noqa: PLC0415 - pyarrow is for runs that have parts

    return read_lines(path)


def _identity(record: _Record, is_result: bool) -> tuple[int, int, int, bool]:
    """By what a record of a journal is known again in a part."""
    return _count(record.task), _count(record.rollout), _count(record.attempt), is_result


def _records(path: Path, *, passes_over_cuts: bool) -> Iterator[_Record]:
    with path.open("rb", _BUFFER_BYTES) as stream:
        for number, line in enumerate(stream, 1):
            if passes_over_cuts and not line.endswith(b"\n"):
                return
            try:
                yield _read(line)
            except ValueError as error:
                raise InputError(
                    f"{path}:{number}: expected a record, found damage: {error}: nothing was started; "
                    "`gym-ray recover` takes damaged lines aside, so that what they held is run again"
                ) from None


def _read(line: bytes) -> _Record:
    """The fields of a record line.

    Raises:
        ValueError: the line is not a JSON object in UTF-8; says what is wrong with it.
    """
    if not line.isascii():
        line.decode()
    try:
        record = _decode(line)
    except (msgspec.MsgspecError, RecursionError):
        record = _read_slowly(line)
    if record.attempt:
        check_attempt(record.attempt)
    return record


def _read_slowly(line: bytes) -> _Record:
    """For escapes of lone surrogates, which are JSON, and for objects of an unusual type, which count as absent."""
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    known = {
        field.name: record[field.encode_name]
        for field in msgspec.structs.fields(_Record)
        if field.encode_name in record and field.name not in ("response", "typed")
    }
    return _Record(**known)


def _is_interruption(record: _Record) -> bool:
    typed = record.typed
    kind = typed.failure.failure_kind if typed is not None and typed.failure is not None else None
    is_unsent = typed is not None and typed.delivery == Delivery.NOT_SENT
    return is_unsent or any(isinstance(name, str) and name in INTERRUPTIONS for name in (record.failure_class, kind))


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


def _finite(value: Any) -> float:
    """A number, or NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan

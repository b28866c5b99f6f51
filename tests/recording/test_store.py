"""The store against a dumb model: appends, kills in the middle of a write, and continuations, in any order."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gym_ray.recording.attempts import AttemptLog, Ended, Started
from gym_ray.recording.history import History
from gym_ray.recording.journal import Recorder
from gym_ray.recording.merge import merge_results
from gym_ray.recording.run_files import record_files
from gym_ray.recording.winners import RecordIndex
from tests.recording.files import record, run_paths

PLANNED, SHARDS, MAX_ATTEMPTS = 8, 3, 3


class Store(RuleBasedStateMachine):
    """Invariant: what was acknowledged is there after any kill, and what was not is there whole or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.paths = run_paths(Path(self._folder.name))
        self.recorder: Recorder | None = None
        self.log: AttemptLog | None = None
        self.results: dict[int, bytes] = {}
        self.failures: dict[int, int] = {}
        """Rollout -> failures that are recorded."""
        self.next_attempt = dict.fromkeys(range(PLANNED), 0)
        self.leased: dict[int, int] = {}

    @initialize()
    def begin(self) -> None:
        self.resume()

    @precondition(lambda self: self.recorder is None)
    @rule()
    def resume(self) -> None:
        """Open the folder as a continued run does, and compare what it finds with the model."""
        self.recorder = Recorder.open(self.paths, SHARDS)
        history = History.read(((n, 0) for n in range(PLANNED)), record_files(self.paths), self.paths.attempts)
        self.log = AttemptLog(self.paths.attempts)
        for number in range(PLANNED):
            assert history.has_result(number) == (number in self.results)
            assert history.next_attempt(number) == self.next_attempt[number], "no attempt number is given out twice"
            assert history.spent(number) == self.failures.get(number, 0)
            final = number not in self.results and self.failures.get(number, 0) >= MAX_ATTEMPTS
            assert history.is_final(number, MAX_ATTEMPTS) == final
        self.leased = {}

    @precondition(lambda self: self.recorder is not None)
    @rule(numbers=st.sets(st.integers(0, PLANNED - 1), max_size=4))
    def lease(self, numbers: set[int]) -> None:
        free = [n for n in sorted(numbers) if n not in self.results and n not in self.leased]
        assert self.log is not None
        self.log.started([Started(0, n, 0, self.next_attempt[n]) for n in free])
        for number in free:
            self.leased[number] = self.next_attempt[number]
            self.next_attempt[number] += 1

    @precondition(lambda self: self.recorder is not None and self.leased)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        """A batch that is acknowledged."""
        batch = self._batch(data)
        assert self.recorder is not None
        assert self.log is not None
        self.recorder.append((number % SHARDS, is_result, line) for number, is_result, line in batch)
        self.log.ended([Ended(0, number, 0, 0, 0 if is_result else 1, 1.0, 1) for number, is_result, _ in batch])
        for number, is_result, line in batch:
            self._count(number, is_result, line)

    @precondition(lambda self: self.recorder is not None and self.leased)
    @rule(data=st.data())
    def die_while_writing(self, data: st.DataObject) -> None:
        """A kill after any byte of a batch: files are written one after the other, each with one write."""
        batch = self._batch(data)
        files: dict[Path, list[tuple[int, bool, bytes]]] = {}
        for item in batch:
            names = self.paths.shard(item[0] % SHARDS)
            files.setdefault(names.results if item[1] else names.failures, []).append(item)
        left = data.draw(st.integers(0, sum(len(line) for _, _, line in batch)), "bytes written")
        for path, items in files.items():
            content = b"".join(line for _, _, line in items)[:left]
            with path.open("ab") as stream:
                stream.write(content)
            for number, is_result, line in items:
                if left >= len(line) - 1:  # only its line end may be missing: it is whole
                    self._count(number, is_result, line)
                left = max(0, left - len(line))
        self.die(data)

    @precondition(lambda self: self.recorder is not None)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A kill between two calls; the log of attempts may have lost a piece of its last line."""
        assert self.recorder is not None
        assert self.log is not None
        self.recorder.close()
        self.log.close()
        self.recorder = self.log = None
        if data.draw(st.booleans(), "the log is cut"):
            with self.paths.attempts.open("ab") as stream:
                stream.write(b"started,0,0,0,99"[: data.draw(st.integers(0, 15))])

    @precondition(lambda self: self.recorder is not None)
    @invariant()
    def merged_results_are_the_model(self) -> None:
        merge_results(RecordIndex.read(record_files(self.paths)[0]), self.paths.merged)
        lines = self.paths.merged.read_bytes().splitlines(keepends=True)
        assert lines == [self.results[number] for number in sorted(self.results)]

    def teardown(self) -> None:
        if self.recorder is not None:
            self.recorder.close()
        if self.log is not None:
            self.log.close()
        self._folder.cleanup()

    def _batch(self, data: st.DataObject) -> list[tuple[int, bool, bytes]]:
        numbers = data.draw(st.lists(st.sampled_from(sorted(self.leased)), unique=True, min_size=1), "ended")
        batch = []
        for number in numbers:
            is_result, attempt = data.draw(st.booleans(), "result"), self.leased.pop(number)
            fields = {} if is_result else {"_ng_failure_class": "agent_run_error"}
            batch.append((number, is_result, record(number, 0, attempt, text="é" * (number + 1), **fields)))
        return batch

    def _count(self, number: int, is_result: bool, line: bytes) -> None:
        assert json.loads(line)
        if is_result:
            self.results[number] = line
        else:
            self.failures[number] = self.failures.get(number, 0) + 1


TestStore = Store.TestCase
TestStore.settings = settings(deadline=None, max_examples=30, stateful_step_count=25)

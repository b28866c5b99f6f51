"""What a caller has got of a run, so that a new driver can go on where a dead one stopped."""

from collections.abc import Iterator

from gym_ray.actors.outputs import read_index
from gym_ray.actors.spec import RunSpec
from gym_ray.identity import read_identity
from gym_ray.recording.attempts import Started, read_attempts
from gym_ray.recording.plan_files import PlanFiles

_MAX_NAMED = 20

Key = tuple[int, int]


class Delivered:
    """The rollouts whose outcomes were handed to a caller."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()

    def is_new(self, line: bytes) -> bool:
        """Note the rollout of a materialized row; False if it was delivered before."""
        key = _key(line)
        if key in self._keys:
            return False
        self._keys.add(key)
        return True

    def missed(self, spec: RunSpec, log_start: int) -> list[tuple[bytes, bytes]]:
        """(row, record) of rollouts that were recorded and that nobody was told of; they count as delivered now.

        `log_start` is where in the log of attempts this invocation begins; what stood before is nobody's news.

        Raises:
            InputError: a file is damaged.
        """
        assert spec.paths is not None
        plan = PlanFiles.open(spec.paths, spec.record_shards, lambda _: 0)
        try:
            numbers = {plan.key(number): number for number in range(len(plan))}
            return list(self._missed(spec, plan, numbers, log_start))
        finally:
            plan.close()

    def _missed(
        self, spec: RunSpec, plan: PlanFiles, numbers: dict[Key, int], log_start: int
    ) -> Iterator[tuple[bytes, bytes]]:
        assert spec.paths is not None
        events = read_attempts(spec.paths.attempts, log_start)
        started = {(event.task, event.rollout, event.attempt) for event in events if isinstance(event, Started)}
        index = read_index(spec.paths)
        for entry in index:
            key = entry.task, entry.rollout
            if key not in self._keys and key in numbers and (*key, entry.attempt) in started:
                self._keys.add(key)
                yield plan.line(numbers[key]), index.read_line(entry)

    def unsettled(self, lines: list[bytes]) -> str:
        """Which of these rows were not delivered, for a person."""
        owed = [key for key in map(_key, lines) if key not in self._keys]
        named = ", ".join(f"{task}-{rollout}" for task, rollout in owed[:_MAX_NAMED])
        more = f" and {len(owed) - _MAX_NAMED} more" if len(owed) > _MAX_NAMED else ""
        return f"{len(self._keys)} outcomes were delivered, {len(owed)} rollouts are unsettled ({named}{more})"


def _key(line: bytes) -> Key:
    identity = read_identity(line)
    return identity.task_index or 0, identity.rollout_index or 0

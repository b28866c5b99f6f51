"""Records that only metrics see: failures and gaps that a policy counts as zeros, made when they are sent."""

import heapq
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from gym_ray import keys
from gym_ray.actors.plan import Plan
from gym_ray.aggregation.policy import Policy, counts_as_zero, with_dataset_fields, zero_of_failure, zero_of_missing
from gym_ray.identity import Origin
from gym_ray.recording.winners import Entry, RecordIndex
from gym_ray.rows.splicing import encode

_SAMPLED = 50
"""Real records whose fields tell which fields records of a group carry."""

Key = tuple[int, int]


class Addition(NamedTuple):
    """One zero."""

    key: Key
    origin: Origin
    number: int
    """Of its rollout in the plan."""
    failure: Callable[[], bytes] | None = None
    """Reads the failure row that it stands for; None for a rollout without any record."""
    is_final: bool = False
    """The environment itself says that the failure is a zero."""


class Additions:
    """The zeros of a run, sorted by (task, rollout)."""

    def __init__(self, index: RecordIndex, plan: Plan, policy: Policy) -> None:
        """`index` holds results and failures."""
        self._index, self._plan = index, plan
        self._zeros: list[Addition] = []
        numbers = {plan.key(number): number for number in range(len(plan))}
        for entry in index:
            key = entry.task, entry.rollout
            number = numbers.pop(key, None)
            if entry.is_result or number is None:
                continue
            failure = json.loads(index.read_line(entry))
            if counts_as_zero(failure, policy):
                is_final = bool(failure.get(keys.FAILURE_COUNTS_AS_ZERO))
                self._zeros.append(Addition(key, entry.origin, number, _reader(index, entry), is_final))
        if policy.missing_as_zero:
            for key, number in numbers.items():
                row = json.loads(plan.line(number))
                agent = row.get(keys.AGENT_REF) or {}
                origin = Origin(row.get(keys.ENVIRONMENT_SERVER), agent.get(keys.NAME))
                self._zeros.append(Addition(key, origin, number))
        self._zeros.sort(key=lambda zero: zero.key)

    def __len__(self) -> int:
        return len(self._zeros)

    @property
    def final_zeros(self) -> int:
        """How many settle their rollout, because the environment says so."""
        return sum(zero.is_final for zero in self._zeros)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Every origin of a result or a zero."""
        return tuple(dict.fromkeys((*self._index.origins, *(zero.origin for zero in self._zeros))))

    def lines(self, origins: tuple[Origin, ...]) -> Iterator[bytes]:
        """The results and zeros of some origins, sorted by (task, rollout)."""
        wanted = [zero for zero in self._zeros if zero.origin in origins]
        if not wanted:
            return self._index.lines(origins)
        sample = (json.loads(line) for line in islice(self._index.lines(origins), _SAMPLED))
        carried = list(dict.fromkeys(key for record in sample for key in record))
        zeros = ((zero.key, self._made(zero, carried)) for zero in wanted)
        return (line for _, line in heapq.merge(self._index.keyed_lines(origins), zeros, key=lambda item: item[0]))

    def _made(self, zero: Addition, carried: list[str]) -> bytes:
        row = json.loads(self._plan.line(zero.number))
        record = zero_of_missing(row) if zero.failure is None else zero_of_failure(json.loads(zero.failure()))
        return encode(with_dataset_fields(record, row, carried)) + b"\n"


def _reader(index: RecordIndex, entry: Entry) -> Callable[[], bytes]:
    return lambda: index.read_line(entry)

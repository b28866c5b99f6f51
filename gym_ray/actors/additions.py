"""Records that only metrics see: failures and gaps that a policy counts as zeros, made when they are sent."""

import heapq
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from gym_ray import keys
from gym_ray.actors.plan import Plan
from gym_ray.aggregation.policy import Policy, counts_as_zero, with_dataset_fields, zero_of_failure, zero_of_missing
from gym_ray.identity import Origin
from gym_ray.recording.winners import RecordIndex
from gym_ray.rows.splicing import encode

_SAMPLED = 50
"""Real records whose fields tell which fields records of a group carry."""

Key = tuple[int, int]


class Addition(NamedTuple):
    """One zero."""

    key: Key
    origin: Origin
    row: Callable[[], bytes]
    """Reads its materialized row."""
    failure: Callable[[], bytes] | None = None
    """Reads the failure row that it stands for; None for a rollout without any record."""
    is_final: bool = False
    """The environment itself says that the failure is a zero."""


def zeros_of(index: RecordIndex, plan: Plan, policy: Policy) -> list[Addition]:
    """The zeros that a policy makes of the failures and gaps of a plan; `index` holds its results and failures."""
    zeros: list[Addition] = []
    if not index.failures and not policy.missing_as_zero:
        return zeros
    numbers = {plan.key(number): number for number in range(len(plan))}
    for entry in index:
        key = entry.task, entry.rollout
        number = numbers.pop(key, None)
        if entry.is_result or number is None:
            continue
        failure = json.loads(index.read_line(entry))
        if counts_as_zero(failure, policy):
            is_final = bool(failure.get(keys.FAILURE_COUNTS_AS_ZERO))
            row, read = partial(plan.line, number), partial(index.read_line, entry)
            zeros.append(Addition(key, entry.origin, row, read, is_final))
    if policy.missing_as_zero:
        for key, number in numbers.items():
            row = json.loads(plan.line(number))
            agent = row.get(keys.AGENT_REF) or {}
            origin = Origin(row.get(keys.ENVIRONMENT_SERVER), agent.get(keys.NAME))
            zeros.append(Addition(key, origin, partial(plan.line, number)))
    return zeros


class Additions:
    """The results of an index with zeros among them."""

    def __init__(self, index: RecordIndex, zeros: Iterable[Addition]) -> None:
        self._index = index
        self._zeros = sorted(zeros, key=lambda zero: zero.key)

    def __len__(self) -> int:
        """How many zeros there are."""
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
        zeros = ((zero.key, _made(zero, carried)) for zero in wanted)
        return (line for _, line in heapq.merge(self._index.keyed_lines(origins), zeros, key=lambda item: item[0]))


def _made(zero: Addition, carried: list[str]) -> bytes:
    row = json.loads(zero.row())
    record = zero_of_missing(row) if zero.failure is None else zero_of_failure(json.loads(zero.failure()))
    return encode(with_dataset_fields(record, row, carried)) + b"\n"

"""One record as metrics see it: who it is, whether it counts, and its numbers.

Source: protocol §9.1 (identity, masks), §9.2 (which values are metrics).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gym_ray import keys
from gym_ray.example.metrics.statistic import Number


@dataclass(frozen=True, slots=True)
class MeasuredRollout:
    """The part of a record that metrics read."""

    task: int
    rollout: int
    masked: bool
    own: Mapping[str, Number]
    """Its top-level numbers by name; booleans are 0 or 1."""
    usage: Mapping[str, Number]
    """The numbers of `response.usage` by name."""
    has_reward: bool
    reward: Any
    """The reward as stored, number or not; meaningless without `has_reward`."""
    perf: Mapping[str, Any] | None

    def value(self, name: str) -> Number | None:
        """The number under `name`; usage wins over a top-level field of the same name."""
        found = self.usage.get(name)
        return self.own.get(name) if found is None else found


def measured_rollouts(records: Iterable[Mapping[str, Any]]) -> list[MeasuredRollout]:
    """Every record, ascending by task and rollout.

    Raises:
        ValueError: two records have the same task and rollout, or an index is not a whole number.
    """
    rollouts = sorted((_measure(record) for record in records), key=lambda each: (each.task, each.rollout))
    for before, after in pairwise(rollouts):
        if (before.task, before.rollout) == (after.task, after.rollout):
            raise ValueError(f"task {after.task}, rollout {after.rollout} has several records; expected one")
    return rollouts


def column_names(rollouts: Sequence[MeasuredRollout]) -> list[str]:
    """The name of every metric, in the order of first appearance."""
    names: dict[str, None] = {}
    for rollout in rollouts:
        names.update(dict.fromkeys(rollout.own))
        names.update(dict.fromkeys(rollout.usage))
    return list(names)


def column(rollouts: Sequence[MeasuredRollout], name: str) -> list[Number]:
    """The numbers under `name`, without the rollouts that have none."""
    return [value for rollout in rollouts if (value := rollout.value(name)) is not None]


def numbers_of(fields: Mapping[str, Any]) -> dict[str, Number]:
    """The finite numbers of an object whose names are public; booleans become 0 or 1."""
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in fields.items()
        if isinstance(value, int | float) and math.isfinite(value) and not name.startswith("_")
    }


def _measure(record: Mapping[str, Any]) -> MeasuredRollout:
    own = numbers_of(record)
    own.pop(keys.MASK_SAMPLE, None)
    response = record.get(keys.RESPONSE)
    usage = response.get(keys.USAGE) if isinstance(response, Mapping) else None
    perf = record.get(keys.PERF)
    return MeasuredRollout(
        task=_index(record, keys.TASK_INDEX),
        rollout=_index(record, keys.ROLLOUT_INDEX),
        masked=bool(record.get(keys.MASK_SAMPLE)),
        own=own,
        usage=numbers_of(usage) if isinstance(usage, Mapping) else {},
        has_reward=keys.REWARD in record,
        reward=record.get(keys.REWARD),
        perf=perf if isinstance(perf, Mapping) else None,
    )


def _index(record: Mapping[str, Any], key: str) -> int:
    index = record.get(key)
    if index is None:
        return 0
    if not isinstance(index, int):
        raise ValueError(f"{key}: expected a whole number, found {index!r}")
    return index

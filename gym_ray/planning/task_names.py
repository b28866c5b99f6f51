"""By which ids a task can be named. Pure. Source: protocol §5.7."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gym_ray import keys


class TaskName(NamedTuple):
    """The ids of one task."""

    inner: str
    full: str
    """`<taskset>/<id>` of a materialized task, else its id."""


def task_name(row: Mapping[str, Any]) -> TaskName | None:
    """The name of a row's task, None if it has none."""
    task_id = row.get(keys.TASK_ID)
    if isinstance(task_id, Mapping):
        inner, taskset = task_id.get(keys.TASK_ID), task_id.get(keys.TASKSET)
        if inner is None:
            return None
        return TaskName(_text(inner), f"{taskset}/{_text(inner)}" if taskset else _text(inner))
    for key in (keys.TASK_ID, keys.PROBLEM_ID, keys.INSTANCE_ID):
        if (value := row.get(key)) is not None:
            return TaskName(_text(value), _text(value))
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)

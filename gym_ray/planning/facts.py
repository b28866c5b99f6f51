"""What a row says about where it wants to run, apart from everything else in it. Pure.

Source: protocol §2.2 (materialized rows), §5.3 (what routing reads).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gym_ray import keys
from gym_ray.identity import ends_in_attempt_suffix, is_rollout_id

MAX_INTEGER = 2**63 - 1
"""Servers read JSON with parsers that take no more."""


class RowFacts(NamedTuple):
    """Rows with equal facts take the same way."""

    agent: str | None
    source: str | None
    """`task_source`."""
    taskset: str | None
    """The taskset of a materialized row that has one."""
    is_materialized: bool
    server: str | None
    """The environment server that the row already carries."""


def read_facts(row: Mapping[str, Any]) -> RowFacts:
    """The facts of a row.

    Raises:
        ValueError: a key that decides the way has a value of the wrong type; the message names the key.
    """
    task_id = row.get(keys.TASK_ID)
    taskset, is_materialized = None, False
    if keys.TASK_INPUT in row and isinstance(task_id, Mapping):
        taskset, is_materialized = task_id.get(keys.TASKSET), True
    return RowFacts(
        agent=_agent(row.get(keys.AGENT_REF)),
        source=_name(row, keys.TASK_SOURCE) or None,
        taskset=taskset if isinstance(taskset, str) and taskset else None,
        is_materialized=is_materialized,
        server=_name(row, keys.ENVIRONMENT_SERVER) or None,
    )


def given_task_index(row: Mapping[str, Any]) -> int | None:
    """The task index that a row brings, or None.

    Raises:
        ValueError: not an index.
    """
    index = row.get(keys.TASK_INDEX)
    if index is not None and not _is_index(index):
        raise ValueError(f"{keys.TASK_INDEX}: expected an integer from 0, found {_shown(index)}")
    return index


def check_stamps(row: Mapping[str, Any], *, is_materialized: bool) -> None:
    """Refuses an attempt number or a rollout id that no server would take.

    Raises:
        ValueError: which key is wrong, and how.
    """
    attempt = row.get(keys.ATTEMPT_INDEX)
    if attempt is not None and not _is_index(attempt):
        raise ValueError(f"{keys.ATTEMPT_INDEX}: expected an integer from 0, found {_shown(attempt)}")
    rollout_id = row.get(keys.ROLLOUT_ID)
    if rollout_id is None:
        return
    if not isinstance(rollout_id, str) or not is_rollout_id(rollout_id):
        raise ValueError(
            f"{keys.ROLLOUT_ID}: expected letters, digits, '.', '_' and '-' after a letter or digit, "
            f"found {_shown(rollout_id)}"
        )
    if is_materialized and ends_in_attempt_suffix(rollout_id):
        raise ValueError(
            f"{keys.ROLLOUT_ID}: the ending -a<number> is reserved for attempts, found {_shown(rollout_id)}"
        )


def _agent(reference: Any) -> str | None:
    if reference is None:
        return None
    if not isinstance(reference, dict | Mapping):  # `dict` first: asking the abstract class costs five times as much
        raise ValueError(f"{keys.AGENT_REF}: expected an object with a name, found {_shown(reference)}")
    name = reference.get(keys.NAME)
    if name is not None and not isinstance(name, str):
        raise ValueError(f"{keys.AGENT_REF}.{keys.NAME}: expected a name, found {_shown(name)}")
    return name or None


def _name(row: Mapping[str, Any], key: str) -> str | None:
    name = row.get(key)
    if name is not None and not isinstance(name, str):
        raise ValueError(f"{key}: expected a name, found {_shown(name)}")
    return name


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

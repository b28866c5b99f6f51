"""What an index needs of a record, read from its line without building it.

Source: protocol §0.1 (stamps), §7.6 (rows that are no evidence of an attempt).
"""

import json
from typing import Any, NoReturn

import msgspec

from gym_ray import keys


class Agent(msgspec.Struct):
    """The agent that a record names."""

    name: str | None = None


class Stamps(
    msgspec.Struct,
    kw_only=True,
    rename={
        "task": keys.TASK_INDEX,
        "rollout": keys.ROLLOUT_INDEX,
        "attempt": keys.ATTEMPT_INDEX,
        "server": keys.ENVIRONMENT_SERVER,
        "agent": keys.AGENT_REF,
        "is_omitted": keys.OMITTED_ROLLOUT,
        "is_unrouted": keys.UNROUTED_RUN_ERROR,
    },
):
    """The stamps of one record; None where it has none that is legible."""

    task: int | None = None
    rollout: int | None = None
    attempt: int | None = None
    server: str | None = None
    agent: Agent | None = None
    is_omitted: bool | None = None
    is_unrouted: bool | None = None
    reward: Any = msgspec.UNSET
    """None is what servers write for a reward that is no number; such a record is no result."""


_read = msgspec.json.Decoder(Stamps).decode

MAX_ATTEMPTS = 65_535
"""Attempt numbers that one rollout can use up; a higher one in a file is damage."""


def check_attempt(attempt: object) -> None:
    """Refuse an attempt that is a number and cannot be one of an attempt.

    Raises:
        ValueError: says which.
    """
    if type(attempt) is int and not 0 <= attempt < MAX_ATTEMPTS:
        raise ValueError(f"{keys.ATTEMPT_INDEX} is {attempt:.6g}, expected 0 to {MAX_ATTEMPTS - 1}")


def read_stamps(line: bytes) -> Stamps:
    """The stamps of a JSON object line; less than a microsecond for a kilobyte.

    Raises:
        ValueError: the line is not a JSON object in UTF-8; says what is wrong with it.
    """
    if not line.isascii():
        line.decode()
    try:
        stamps = _read(line)
    except (msgspec.MsgspecError, RecursionError):
        stamps = _read_slowly(line)
    if stamps.attempt:
        check_attempt(stamps.attempt)
    return stamps


def _read_slowly(line: bytes) -> Stamps:
    """For escapes of lone surrogates, which are JSON, and for stamps of an unusual type, which count as absent."""
    try:
        record = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    agent = record.get(keys.AGENT_REF)
    return Stamps(
        task=_typed(int, record.get(keys.TASK_INDEX)),
        rollout=_typed(int, record.get(keys.ROLLOUT_INDEX)),
        attempt=_typed(int, record.get(keys.ATTEMPT_INDEX)),
        server=_typed(str, record.get(keys.ENVIRONMENT_SERVER)),
        agent=Agent(_typed(str, agent.get(keys.NAME))) if isinstance(agent, dict) else None,
        is_omitted=bool(record.get(keys.OMITTED_ROLLOUT)),
        is_unrouted=bool(record.get(keys.UNROUTED_RUN_ERROR)),
        reward=record.get(keys.REWARD, msgspec.UNSET),
    )


def _typed(kind: type[Any], value: Any) -> Any:
    return value if type(value) is kind else None


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a number in JSON")

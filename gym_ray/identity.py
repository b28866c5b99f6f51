"""Who a rollout is: the identity stamps of a materialized row, read without building the row.

Source: protocol §0.1 (stamps), §0.2 (ids), §2.2 (materialized tasks), §8.2 (capture keys).
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from gym_ray import keys

ABSENT = msgspec.Raw(b"")
"""Stands for a key that the row does not have; compare with `is`."""

_ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPT_SUFFIX = re.compile(r"-a[1-9][0-9]*$")


class _Named(msgspec.Struct):
    name: str | None = None


class RowIdentity(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "task_index": keys.TASK_INDEX,
        "rollout_index": keys.ROLLOUT_INDEX,
        "attempt_index": keys.ATTEMPT_INDEX,
        "explicit_id": keys.ROLLOUT_ID,
        "environment_server": keys.ENVIRONMENT_SERVER,
        "agent_ref": keys.AGENT_REF,
        "task_source": keys.TASK_SOURCE,
        "skills_ref": keys.SKILLS_REF,
        "task_id": keys.TASK_ID,
        "task_input": keys.TASK_INPUT,
    },
):
    """The stamps of one row. Raw fields hold the row's own JSON bytes, or `ABSENT`."""

    task_index: int | None = None
    rollout_index: int | None = None
    attempt_index: int = 0
    explicit_id: str | None = None
    environment_server: str | None = None
    agent_ref: msgspec.Raw = ABSENT
    task_source: msgspec.Raw = ABSENT
    skills_ref: msgspec.Raw = ABSENT
    task_id: msgspec.Raw = ABSENT
    task_input: msgspec.Raw = ABSENT

    @property
    def is_materialized(self) -> bool:
        """True for a row that is sent as an episode request: an object `task_id` beside a `task_input`."""
        return self.task_input is not ABSENT and bytes(memoryview(self.task_id)[:1]) == b"{"

    @property
    def agent_name(self) -> str | None:
        """The agent that the row names, or None."""
        return msgspec.json.decode(self.agent_ref, type=_Named).name if self.agent_ref is not ABSENT else None

    @property
    def own_id(self) -> str | None:
        """The explicit rollout id, else `<task>-<rollout>`, else None. Never carries an attempt suffix."""
        if self.explicit_id is not None:
            return self.explicit_id
        if self.task_index is None or self.rollout_index is None:
            return None
        return f"{self.task_index}-{self.rollout_index}"


_decode = msgspec.json.Decoder(RowIdentity).decode


def read_identity(line: bytes) -> RowIdentity:
    """The identity of one JSON object line; costs about a microsecond for a kilobyte.

    Raises:
        msgspec.ValidationError: a stamp has the wrong type.
        msgspec.DecodeError: the line is not a JSON object.
    """
    try:
        return _decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\u" not in line:
            raise
        return _read_slowly(line)


def _read_slowly(line: bytes) -> RowIdentity:
    """Lone surrogate escapes are legal JSON and real text, but only the standard parser takes them."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    if not isinstance(row, dict):
        raise msgspec.DecodeError("the line is not a JSON object")
    stamps, texts = dict[str, Any](), dict[str, msgspec.Raw]()
    for field in msgspec.structs.fields(RowIdentity):
        if field.encode_name in row:
            value = row[field.encode_name]
            if field.type is msgspec.Raw:
                texts[field.name] = msgspec.Raw(json.dumps(value).encode())
            else:
                stamps[field.encode_name] = value
    return msgspec.structs.replace(msgspec.convert(stamps, RowIdentity), **texts)


def capture_key(own_id: str, attempt: int) -> str:
    """The id under which the model calls of one attempt are captured (protocol §0.2)."""
    return own_id if attempt == 0 else f"{own_id}-a{attempt}"


def is_rollout_id(text: str) -> bool:
    """True if `text` may stand as an explicit rollout id."""
    return _ROLLOUT_ID.fullmatch(text) is not None


def ends_in_attempt_suffix(text: str) -> bool:
    """True if `text` ends in the suffix that is reserved for attempts, so that an episode id must not use it."""
    return _ATTEMPT_SUFFIX.search(text) is not None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record came from: the environment server stamped on it and the agent that it names."""

    server: str | None
    agent: str | None

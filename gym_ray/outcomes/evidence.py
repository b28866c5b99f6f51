"""Sidecar rows that are evidence and no attempt: of rollouts that ended without a record, and of failures that a caller
raised. Pure. Source: protocol §7.6.
"""

from typing import Any

import msgspec

from gym_ray import keys
from gym_ray.outcomes.attempt import Attempt
from gym_ray.outcomes.envelope import rebuild
from gym_ray.rows.splicing import append


class _Typed(msgspec.Struct):
    source: Any = None


class _Row(msgspec.Struct, rename={"typed": keys.FAILURE_RECORD}):
    typed: _Typed | None = None


_decode = msgspec.json.Decoder(_Row).decode
_UNROUTED = b'"%b":true,"%b":true' % (keys.OMITTED_ROLLOUT.encode(), keys.UNROUTED_RUN_ERROR.encode())


def omitted_row(this: Attempt, failure_class: str, message: str, *, is_drained: bool = False) -> bytes:
    """The row of a rollout that ended without a record, or never started."""
    fields: dict[str, Any] = {
        keys.FAILURE_CLASS: failure_class,
        keys.OMITTED_ROLLOUT: True,
        keys.ERROR_MESSAGE: message,
    }
    if is_drained:
        fields[keys.DISPATCH_DRAINED] = True
    return rebuild({key: msgspec.json.encode(value) for key, value in fields.items()}, this.stamps())


def is_reported(record: bytes) -> bool:
    """True for the row of a failure that an environment reported in an answer, not one that the runner saw."""
    try:
        row = _decode(record)
    except msgspec.MsgspecError:
        return False
    return row.typed is not None and row.typed.source == "environment"


def unrouted(record: bytes) -> bytes:
    """The row of a failure that is raised in the caller: readers pass over it, and the rollout stays owed."""
    return append(record.rstrip(b"\n"), _UNROUTED) + b"\n"

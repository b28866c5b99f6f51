"""Bodies of `POST /run`, made from materialized rows without re-encoding what rows hold. Pure.

Source: protocol §2.1 (flat rows), §2.2 (materialized tasks), §5.11 #18 (errors).
"""

import msgspec

from gym_ray import keys
from gym_ray.identity import RowIdentity, ends_in_attempt_suffix, is_rollout_id

_ATTEMPT_INDEX = keys.ATTEMPT_INDEX.encode()
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def run_body(line: bytes, identity: RowIdentity, attempt: int) -> bytes:
    """The body of one attempt: the row itself, or the episode request of a materialized task.

    `identity` is what `read_identity` says of `line`. At attempt 0 the body of a flat row is its line, byte for byte
    but for the line's end; later attempts carry their number.

    Raises:
        ValueError: the attempt is not a count, or the row's rollout id cannot be sent.
    """
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise ValueError(f"{keys.ATTEMPT_INDEX} must be an integer of at least 0, found {attempt!r}")
    if identity.explicit_id is not None and not is_rollout_id(identity.explicit_id):
        raise ValueError(_bad_id(identity.explicit_id))
    if identity.is_materialized:
        return _episode_request(identity, attempt)
    row = line.strip()
    return row if attempt == identity.attempt_index else _with_attempt(row, identity, attempt)


def _with_attempt(row: bytes, identity: RowIdentity, attempt: int) -> bytes:
    if identity.attempt_index or _ATTEMPT_INDEX in row:
        fields = {**_raw_fields(row), keys.ATTEMPT_INDEX: msgspec.Raw(b"%d" % attempt)}
        return msgspec.json.encode(fields)
    own = row[:-1].rstrip()
    return b'%b%b"%b":%d}' % (own, b"" if own.endswith(b"{") else b",", _ATTEMPT_INDEX, attempt)


def _episode_request(identity: RowIdentity, attempt: int) -> bytes:
    """Two keys and nothing else: servers refuse more. The id never carries the attempt, which stands beside it."""
    own_id = identity.own_id
    if own_id is None:
        raise ValueError(
            f"a materialized task needs {keys.ROLLOUT_ID}, or both {keys.TASK_INDEX} and {keys.ROLLOUT_INDEX}"
        )
    if not is_rollout_id(own_id) or ends_in_attempt_suffix(own_id):
        raise ValueError(_bad_id(own_id))
    return b'{"%b":{"%b":"%b","%b":%d},"%b":{"%b":%b,"%b":%b}}' % (
        keys.EPISODE_ID.encode(),
        keys.EPISODE_ROLLOUT_ID.encode(),
        own_id.encode(),
        keys.EPISODE_ATTEMPT.encode(),
        attempt,
        keys.TASK.encode(),
        keys.TASK_ID.encode(),
        bytes(identity.task_id),
        keys.TASK_INPUT.encode(),
        bytes(identity.task_input),
    )


def _bad_id(own_id: str) -> str:
    return (
        f"{keys.ROLLOUT_ID} {own_id!r} cannot be used: it must start with a letter or digit, hold nothing but letters, "
        "digits, '.', '_' and '-', and in a materialized task not end in -a<number>"
    )

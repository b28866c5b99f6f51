"""Bodies of `POST /run`, made from materialized rows without re-encoding what rows hold.

Source: protocol §2.1 (flat rows), §2.2 (materialized tasks).
"""

import msgspec

from gym_ray import keys
from gym_ray.identity import RowIdentity, ends_in_attempt_suffix, is_rollout_id

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def run_body(line: bytes, identity: RowIdentity, attempt: int) -> bytes:
    """The body of one attempt: the row itself, or the episode request of a materialized task.

    Raises:
        ValueError: the row's rollout id cannot stand in an episode request.
    """
    if identity.is_materialized:
        return _episode(identity, attempt)
    row = line.strip()
    if attempt == identity.attempt_index:
        return row
    stamp = b'"%b":%d' % (keys.ATTEMPT_INDEX.encode(), attempt)
    if keys.ATTEMPT_INDEX.encode() in row:
        fields = {**_raw_fields(row), keys.ATTEMPT_INDEX: msgspec.Raw(b"%d" % attempt)}
        return msgspec.json.encode(fields)
    return b"%b,%b}" % (row[:-1], stamp)


def _episode(identity: RowIdentity, attempt: int) -> bytes:
    own_id = identity.own_id
    if own_id is None:
        raise ValueError("a materialized task needs a rollout id, or task and rollout indices")
    if not is_rollout_id(own_id) or ends_in_attempt_suffix(own_id):
        raise ValueError(
            f"rollout id {own_id!r} cannot be used: letters, digits, '.', '_', '-', and no -a<number> at its end"
        )
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

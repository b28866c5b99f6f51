"""The materialized line of a rollout: the row's own text, with the stamps and changes of the plan spliced in.

Pure. A member that the row has is replaced in its place, a new one is appended, the rest is not touched; so planning a
materialized line again gives the same bytes. Source: protocol §2.1, §5.3, §5.4, §7.2.
"""

import json
from collections.abc import Mapping
from typing import Any

from gym_ray import keys
from gym_ray.planning.routing import Destination
from gym_ray.rows.document import RowDocument
from gym_ray.rows.splicing import Json, append, encode, encode_text, members, splice, splice_members

METADATA = "metadata"
EXTRA_BODY = "extra_body"
SEED = "seed"


class RowTemplate:
    """One row on its way to one destination; `line` fills in the numbers of a rollout."""

    def __init__(
        self,
        document: RowDocument,
        destination: Destination,
        params: Mapping[str, Json],
        stamps: Mapping[str, Json | None],
        *,
        seeded: bool,
    ) -> None:
        """Splices in what all rollouts of the row share: `params` into its `responses_create_params`, and `stamps`.

        Raises:
            ValueError: the row cannot take a seed.
        """
        row, self._row = document.values, document.line
        changes = {**_stamps_of(row, destination), **stamps}
        if changes or params:
            present = members(document.line)
            if params:
                own = present.get(keys.RESPONSES_CREATE_PARAMS, b"")
                changes[keys.RESPONSES_CREATE_PARAMS] = splice(own if own.startswith(b"{") else b"{}", params)
            self._row = splice_members(present, changes)
        self._has_indices = keys.TASK_INDEX in row or keys.ROLLOUT_INDEX in row
        self._params = members(self._row)[keys.RESPONSES_CREATE_PARAMS] if seeded else None
        if self._params is not None:
            seeded_params(self._params, 0)

    def line(self, task: int, rollout: int) -> bytes:
        """The materialized line, without a line end."""
        if self._params is None and not self._has_indices:
            return append(self._row, b'"%b":%d,"%b":%d' % (_TASK_INDEX, task, _ROLLOUT_INDEX, rollout))
        changes: dict[str, Json | None] = {keys.TASK_INDEX: b"%d" % task, keys.ROLLOUT_INDEX: b"%d" % rollout}
        if self._params is not None:
            changes = {keys.RESPONSES_CREATE_PARAMS: seeded_params(self._params, rollout), **changes}
        return splice(self._row, changes)


def episode_bytes(line: bytes) -> int:
    """The length of the first request for a materialized row with one-digit numbers, without building it."""
    row = members(line)
    frame = b'{"episode_id":{"rollout_id":"0-0","attempt":0},"task":{"task_id":,"task_input":}}'
    return len(frame) + len(row[keys.TASK_ID]) + len(row[keys.TASK_INPUT])


def seeded_params(params: Json, seed: int) -> Json:
    """A `responses_create_params` whose `metadata.extra_body`, a JSON string, holds the seed beside what it has.

    Raises:
        ValueError: metadata is not an object, or extra_body not a string with an object.
    """
    metadata = members(params).get(METADATA, b"{}")
    metadata = b"{}" if metadata == b"null" else metadata
    if not metadata.startswith(b"{"):
        raise ValueError(f"{keys.RESPONSES_CREATE_PARAMS}.{METADATA}: expected an object")
    extra_body = json.loads(members(metadata).get(EXTRA_BODY, b"null"))
    return splice(params, {METADATA: splice(metadata, {EXTRA_BODY: encode_text(seeded_extra_body(extra_body, seed))})})


def seeded_extra_body(extra_body: Any, seed: int) -> str:
    """The JSON string with `seed` set; the row's own is kept besides.

    Raises:
        ValueError: it is not a string with a JSON object.
    """
    text = "{}" if extra_body is None else extra_body
    try:
        is_object = isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        is_object = False
    if not is_object:
        where = f"{keys.RESPONSES_CREATE_PARAMS}.{METADATA}.{EXTRA_BODY}"
        raise ValueError(f"{where}: expected a string with a JSON object in it")
    return splice(text.strip().encode(), {SEED: b"%d" % seed}).decode()


_TASK_INDEX = keys.TASK_INDEX.encode()
_ROLLOUT_INDEX = keys.ROLLOUT_INDEX.encode()


def _stamps_of(row: Mapping[str, Any], destination: Destination) -> dict[str, Json | None]:
    """What the destination writes into a row."""
    changes: dict[str, Json | None] = {}
    if destination.is_new_agent and row.get(keys.AGENT_REF) != (reference := {keys.NAME: destination.agent}):
        changes[keys.AGENT_REF] = encode(reference)
    if destination.stamp is not None and row.get(keys.ENVIRONMENT_SERVER) != destination.stamp:
        changes[keys.ENVIRONMENT_SERVER] = encode_text(destination.stamp)
    return changes

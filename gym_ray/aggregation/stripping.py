"""What of a record an aggregation needs. Pure. Source: protocol §3.1."""

import msgspec

from gym_ray import keys
from gym_ray.rows.splicing import encode_text, members

DROPPED = frozenset(
    {
        keys.RESPONSE,
        keys.RESPONSES_CREATE_PARAMS,
        keys.AGENT_OBSERVATIONS,
        keys.MODEL_CALL_CAPTURE,
        keys.TRAJECTORY,
    }
)
KEPT_OF_RESPONSE = (keys.USAGE, keys.INCOMPLETE_DETAILS)

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def stripped(line: bytes) -> bytes:
    """The record, a JSON object, without what no metric reads; every other value stays byte for byte."""
    fields = _fields(line)
    kept = [(key, bytes(value)) for key, value in fields.items() if key not in DROPPED]
    response = fields.get(keys.RESPONSE)
    if response is not None and _is_object(response):
        inner = _fields(response)
        parts = [(key, bytes(inner[key])) for key in KEPT_OF_RESPONSE if key in inner]
        if parts := [(key, value) for key, value in parts if value != b"null"]:
            kept.append((keys.RESPONSE, _joined(parts)))
    return _joined(kept)


def _fields(line: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | dict[str, bytes]:
    try:
        return _decode(line)
    except (msgspec.MsgspecError, RecursionError):  # escapes of lone surrogates are JSON that msgspec does not take
        return members(bytes(line).strip())


def _is_object(value: bytes | msgspec.Raw) -> bool:
    return bytes(memoryview(value)[:1]) == b"{"


def _joined(fields: list[tuple[str, bytes]]) -> bytes:
    return b"{%b}" % b",".join([b"%b:%b" % (encode_text(key), value) for key, value in fields])

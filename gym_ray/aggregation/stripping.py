"""What of a record an aggregation needs. Source: protocol §3.1."""

import json

import msgspec

from gym_ray import keys

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

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def stripped(line: bytes) -> bytes:
    """The record without what no metric reads; every other value stays byte for byte."""
    try:
        fields = _fields(line)
        kept = [(key, bytes(value)) for key, value in fields.items() if key not in DROPPED]
        response = fields.get(keys.RESPONSE)
        inner = _fields(response) if response is not None and bytes(memoryview(response)[:1]) == b"{" else {}
        parts = [(key, bytes(inner[key])) for key in KEPT_OF_RESPONSE if key in inner]
    except msgspec.DecodeError:
        return _stripped_slowly(line)
    parts = [(key, value) for key, value in parts if value != b"null"]
    if parts:
        kept.append((keys.RESPONSE, _joined(parts)))
    return _joined(kept)


def _joined(fields: list[tuple[str, bytes]]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(key), value) for key, value in fields)


def _stripped_slowly(line: bytes) -> bytes:
    """Lone surrogate escapes are legal JSON that only the standard parser takes."""
    record = json.loads(line)
    response = record.get(keys.RESPONSE)
    kept = {key: value for key, value in record.items() if key not in DROPPED}
    if isinstance(response, dict):
        parts = {key: response[key] for key in KEPT_OF_RESPONSE if response.get(key) is not None}
        if parts:
            kept[keys.RESPONSE] = parts
    return json.dumps(kept).encode()

"""What of a record an aggregation needs. Source: protocol §3.1."""

import json
from functools import lru_cache

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

_NULL = msgspec.Raw(b"null")


class _Response(msgspec.Struct):
    usage: msgspec.Raw = _NULL
    incomplete_details: msgspec.Raw = _NULL


_NOTHING = _Response()
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_response = msgspec.json.Decoder(_Response).decode


def stripped(line: bytes) -> bytes:
    """The record without what no metric reads; every other value stays byte for byte."""
    try:
        fields = _fields(line)
        kept = [_member(key) + bytes(value) for key, value in fields.items() if key not in DROPPED]
        response = fields.get(keys.RESPONSE)
        inner = _response(response) if response is not None and bytes(memoryview(response)[:1]) == b"{" else _NOTHING
    except msgspec.DecodeError:
        return _stripped_slowly(line)
    facts = ((keys.USAGE, bytes(inner.usage)), (keys.INCOMPLETE_DETAILS, bytes(inner.incomplete_details)))
    if parts := [_member(key) + value for key, value in facts if value != b"null"]:
        kept.append(b"%b{%b}" % (_member(keys.RESPONSE), b",".join(parts)))
    return b"{%b}" % b",".join(kept)


@lru_cache(4096)
def _member(key: str) -> bytes:
    """`"key":` as JSON; records of one environment have the same keys."""
    return msgspec.json.encode(key) + b":"


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

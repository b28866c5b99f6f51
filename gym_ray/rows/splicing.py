"""Edits of a JSON object that leave everything else in it as it is written.

Pure. `splice` replaces, adds and removes top-level members of one object text; the text of every other value is taken
over byte for byte. Nested edits are a splice of a splice.
"""

import json
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import msgspec

Json = bytes
"""A JSON text."""

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_text = msgspec.json.Encoder().encode
_WHITE_SPACE = " \t\r\n"


def members(line: bytes) -> dict[str, Json]:
    """The top-level members of a valid JSON object in order, each value as its own text."""
    try:
        return {key: bytes(value) for key, value in _decode(line).items()}
    except msgspec.MsgspecError:
        return _scan_members(line.decode())


def splice(line: bytes, changes: Mapping[str, Json | None]) -> bytes:
    """The object with these members: a text replaces a value in its place or is appended, None removes.

    `line` is a valid JSON object without white space around it.
    """
    return splice_members(members(line), changes)


def splice_members(present: dict[str, Json], changes: Mapping[str, Json | None]) -> bytes:
    """As `splice`, for an object whose members are known; uses `present` up."""
    for key, value in changes.items():
        if value is None:
            present.pop(key, None)
        else:
            present[key] = value
    return b"{" + b",".join([encode_text(key) + b":" + value for key, value in present.items()]) + b"}"


def append(line: bytes, additions: bytes) -> bytes:
    """The object with `additions`, the text of one or more members whose keys it does not have."""
    opened = line[:-1].rstrip()
    return b"%b%b%b}" % (opened, b"" if opened == b"{" else b",", additions)


def encode(value: Any) -> Json:
    """A JSON text of a plain value, compact.

    Raises:
        ValueError: a float that JSON cannot write.
        TypeError: not a plain value.
    """
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:  # a lone surrogate exists as an escape only
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def encode_text(text: str) -> Json:
    """A JSON string."""
    try:
        return _encode_text(text)
    except (UnicodeEncodeError, msgspec.MsgspecError):
        return json.dumps(text).encode()


def _scan_members(text: str) -> dict[str, Json]:
    """As `members`, for what msgspec refuses though it is JSON: escapes of lone surrogates, deep nesting."""
    found: dict[str, Json] = {}
    at = _skip(text, 1)
    while text[at] != "}":
        key, at = scanstring(text, at + 1, True)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _scan(text, start)
        found[key] = text[start:end].encode()
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITE_SPACE:
        at += 1
    return at

"""The top level of a reply: the values that are judged, as the server's own bytes; nothing else in it is built.

A reply is validated and skipped in one pass; integers of any size, number formats and key order survive, since the
record is made of the same bytes. The only copy of a flat reply is its record. What msgspec cannot take although it is
JSON (escapes of lone surrogates, which models do write) is read with the standard parser, and keeps its bytes too.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from gym_ray import keys
from gym_ray.identity import ABSENT
from gym_ray.rows.splicing import encode_text, members

Json = bytes | msgspec.Raw
"""One JSON text; `ABSENT` stands for a key that is not there."""


class NotJSONError(ValueError):
    """A body is not UTF-8, or not JSON (a bare NaN is not), or more than the parsers of Python take."""


class NotAnObjectError(ValueError):
    """A body is JSON of another type than an object."""


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None


class Envelope(
    msgspec.Struct,
    kw_only=True,
    rename={
        "reward": keys.REWARD,
        "mask_sample": keys.MASK_SAMPLE,
        "instance_config": keys.INSTANCE_CONFIG,
        "no_persist": keys.NO_PERSIST,
        "failure_class": keys.FAILURE_CLASS,
        "failure_terminal": keys.FAILURE_TERMINAL,
        "failure_record": keys.FAILURE_RECORD,
        "task_index": keys.TASK_INDEX,
        "rollout_index": keys.ROLLOUT_INDEX,
        "attempt_index": keys.ATTEMPT_INDEX,
        "rollout_id": keys.ROLLOUT_ID,
        "agent_ref": keys.AGENT_REF,
        "task_source": keys.TASK_SOURCE,
        "skills_ref": keys.SKILLS_REF,
        "environment_server": keys.ENVIRONMENT_SERVER,
        "result_type": keys.RESULT_TYPE,
        "sends": keys.SENDS,
        "agent_observations": keys.AGENT_OBSERVATIONS,
    },
):
    """What is read of a flat reply: the values that decide, and the keys that it shares with stamps."""

    reward: msgspec.Raw = ABSENT
    mask_sample: msgspec.Raw = ABSENT
    instance_config: msgspec.Raw = ABSENT
    no_persist: msgspec.Raw = ABSENT
    failure_class: msgspec.Raw = ABSENT
    failure_terminal: msgspec.Raw = ABSENT
    failure_record: msgspec.Raw = ABSENT
    task_index: msgspec.Raw = ABSENT
    rollout_index: msgspec.Raw = ABSENT
    attempt_index: msgspec.Raw = ABSENT
    rollout_id: msgspec.Raw = ABSENT
    agent_ref: msgspec.Raw = ABSENT
    task_source: msgspec.Raw = ABSENT
    skills_ref: msgspec.Raw = ABSENT
    environment_server: msgspec.Raw = ABSENT
    result_type: msgspec.Raw = ABSENT
    sends: msgspec.Raw = ABSENT
    agent_observations: msgspec.Raw = ABSENT
    response: _Response | None = None

    @property
    def tokens(self) -> int | None:
        """`response.usage.total_tokens`, where it is a count."""
        return _tokens(self.response)

    def written(self, key: str) -> msgspec.Raw:
        """The value that the reply has under the key of a stamp."""
        raw: msgspec.Raw = getattr(self, _ATTRIBUTES[key])
        return raw


class _OddEnvelope(Envelope, kw_only=True):
    """For a `response` of a shape that has no usage, and for replies that msgspec cannot read."""

    response: msgspec.Raw = ABSENT  # type: ignore[assignment]

    @property
    def tokens(self) -> int | None:
        return read_tokens(self.response)


class Episode(msgspec.Struct, kw_only=True):
    """What is read of the reply to an episode request; null and absent are the same (protocol §2.4)."""

    episode_id: msgspec.Raw = ABSENT
    task_id: msgspec.Raw = ABSENT
    result: dict[str, msgspec.Raw] | None = None
    failure: dict[str, msgspec.Raw] | None = None


MAX_DIGITS = 4_300
"""Python's own parser refuses integers that are longer: one of them in a file would hide every record from it."""


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


def _check_length(integer: str) -> None:
    if len(integer.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"an integer has more than {MAX_DIGITS} digits")


_ATTRIBUTES = {field.encode_name: field.name for field in msgspec.structs.fields(Envelope)}
_PREFIXES = {key: b'"%b":' % key.encode() for key in _ATTRIBUTES}
_Kind = TypeVar("_Kind")
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_odd_envelope = msgspec.json.Decoder(_OddEnvelope).decode
_decode_episode = msgspec.json.Decoder(Episode).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_validate = json.JSONDecoder(parse_constant=_refuse, parse_int=_check_length, parse_float=len).decode


def read_envelope(body: bytes) -> Envelope:
    """What the top level of a flat reply says; about 70 us for 200 KB, and up to 170 us for dense non-ASCII.

    Raises:
        NotJSONError, NotAnObjectError: see there.
    """
    try:
        try:
            return _read(_decode_envelope, body)
        except msgspec.ValidationError:
            return _read(_decode_odd_envelope, body)
    except msgspec.ValidationError:
        raise NotAnObjectError(_what_it_is(body)) from None
    except _UnreadableError:
        found = _read_slowly(body)
        return _OddEnvelope(**{_ATTRIBUTES[key]: msgspec.Raw(raw) for key, raw in found.items() if key in _ATTRIBUTES})


def read_episode(body: bytes) -> Episode:
    """What the reply to an episode request says.

    Raises:
        NotJSONError, NotAnObjectError: see there.
        msgspec.ValidationError: `result` or `failure` is neither null nor an object.
    """
    try:
        return _read(_decode_episode, body)
    except msgspec.ValidationError:
        if body.lstrip(_WHITE_SPACE)[:1] != b"{":
            raise NotAnObjectError(_what_it_is(body)) from None
        raise
    except _UnreadableError:
        found = _read_slowly(body)
        return Episode(
            episode_id=msgspec.Raw(found[keys.EPISODE_ID]) if keys.EPISODE_ID in found else ABSENT,
            task_id=msgspec.Raw(found[keys.TASK_ID]) if keys.TASK_ID in found else ABSENT,
            result=_object_or_null(keys.RESULT, found),
            failure=_object_or_null(keys.FAILURE, found),
        )


def read_value(raw: Json) -> Any:
    """The value of one JSON text; numbers that no double holds are infinite, as everywhere in Python.

    Raises:
        RecursionError: it is nested deeper than the parsers go.
    """
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return json.loads(bytes(raw), parse_int=_parse_int)


def read_tokens(response: Json) -> int | None:
    """`usage.total_tokens` of a `response`, where it is a count."""
    if response is ABSENT:
        return None
    try:
        return _tokens(_decode_response(response))
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        value = read_value(response)
    try:
        return _tokens(msgspec.convert(value, _Response | None))
    except msgspec.ValidationError:
        return None


def one_line(body: bytes) -> bytes:
    """A valid body on one line: in JSON a raw line break can only stand between tokens."""
    if b"\n" in body or b"\r" in body:
        body = body.replace(b"\n", b" ").replace(b"\r", b" ")
    return body.strip(b" \t")


def extend(body: bytes, stamps: Mapping[str, bytes]) -> tuple[bytes, int]:
    """An object on one line with `stamps` behind its own keys and a line's end, and where its own keys end."""
    end = len(body) - 1
    while body[end - 1] in b" \t":
        end -= 1
    separator = b"" if end == 1 or not stamps else b","
    tail = b",".join([_PREFIXES[key] + value for key, value in stamps.items()])
    return b"".join((memoryview(body)[:end], separator, tail, b"}\n")), end


def rebuild(fields: Mapping[str, Json], stamps: Mapping[str, Json]) -> bytes:
    """A line of `fields`, overridden and followed by `stamps`; no value may hold a line break."""
    parts: list[Json] = [b"{"]
    for key, value in {**fields, **stamps}.items():
        parts += (encode_text(key), b":", value, b",")
    return b"".join((*parts[: len(parts) - 1 or 1], b"}\n"))


class _UnreadableError(Exception):
    """Only Python's parser can tell whether a text may be taken: msgspec refuses it, or takes more than Python does."""


_WHITE_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_run_of_digits = re.compile(rb"[0-9]*").match


def _read(decode: Callable[[bytes], _Kind], body: bytes) -> _Kind:
    try:
        if not body.isascii():
            body.decode()  # msgspec does not look into text that it skips
        found = decode(body)
    except UnicodeDecodeError as error:
        raise NotJSONError(f"the body is not UTF-8 ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise NotJSONError("the body is nested too deeply") from None
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        if b"\\u" not in body:
            raise NotJSONError(f"the body is not JSON: {error}") from None
        raise _UnreadableError from None
    if len(body) > MAX_DIGITS and _may_hold_a_long_integer(body):
        raise _UnreadableError
    return found


def _may_hold_a_long_integer(body: bytes) -> bool:
    """True if there is a run of so many digits, be it in a string: it would meet one of every `MAX_DIGITS` bytes."""
    met = body[MAX_DIGITS :: MAX_DIGITS + 1]
    if len(met.translate(None, _DIGITS)) == len(met):
        return False
    for at in range(MAX_DIGITS, len(body), MAX_DIGITS + 1):
        start = at
        while start > 0 and body[start - 1] in _DIGITS:
            start -= 1
        run = _run_of_digits(body, start)
        if run is not None and run.end() - start > MAX_DIGITS:
            return True
    return False


def _read_slowly(body: bytes) -> dict[str, bytes]:
    try:
        value = _validate(body.decode())
        if isinstance(value, dict):
            return members(body.strip(_WHITE_SPACE))
    except (ValueError, RecursionError) as error:
        raise NotJSONError(f"the body is not JSON: {error}") from None
    raise NotAnObjectError(_what_it_is(body))


def _object_or_null(key: str, found: Mapping[str, bytes]) -> dict[str, msgspec.Raw] | None:
    raw = found.get(key, b"null")
    if raw == b"null":
        return None
    if not raw.startswith(b"{"):
        raise msgspec.ValidationError(f"Expected `object | null` - at `$.{key}`")
    return {name: msgspec.Raw(value) for name, value in members(raw).items()}


def _tokens(response: _Response | None) -> int | None:
    if response is None or response.usage is None:
        return None
    tokens = response.usage.total_tokens
    return tokens if tokens is not None and tokens >= 0 else None


def _parse_int(digits: str) -> int | float:
    """That an integer of so many digits is too large for anything is all that is asked here."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _what_it_is(body: bytes) -> str:
    kinds = {b"[": "an array", b'"': "a string", b"n": "null", b"t": "a boolean", b"f": "a boolean"}
    return f"the body is {kinds.get(body.lstrip(_WHITE_SPACE)[:1], 'a number')}, not a JSON object"

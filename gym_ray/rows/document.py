"""What a row says: its JSON object, checked and parsed once.

The parsed values serve decisions only. What is sent is the row's own text, so a number of any size or format, the
order of keys, and a lone surrogate's escape are never re-encoded (source: protocol §2, "keys must be strings ...").

A duplicate key is refused at any depth: parsers disagree on which of two values counts.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from gym_ray.errors import InputError
from gym_ray.rows.source_row import SourceRow


@dataclass(frozen=True, slots=True)
class RowDocument:
    """One row, parsed."""

    line: bytes
    """One JSON object as UTF-8, without white space around it and without any carriage return or newline in it."""
    values: dict[str, Any]
    """What it says. Integers beyond 4,300 digits are their digits; no float is exact."""


class _DuplicateKey(ValueError):
    pass


class _NotJson(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _DuplicateKey(twice)
    return found


def _constant(name: str) -> Any:
    raise _NotJson(name)


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # longer than Python converts by default
        return digits


_fast = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).decode
_any_size = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer).decode
_WHITE_SPACE = b" \t\r\n"


def parse_document(row: SourceRow) -> RowDocument:
    """The row's object; costs about 3 µs per kilobyte.

    Raises:
        InputError: blank, not UTF-8, not JSON, not an object, or a key is given twice; the message says where.
    """
    line = row.line.strip(_WHITE_SPACE)
    if not line:
        raise InputError(f"{row.where}: expected a JSON object, found a blank line: remove it")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{row.where}: expected UTF-8, found byte {line[error.start]:#04x} at {error.start}") from None
    values = _decode(text, row.where)
    if not isinstance(values, dict):
        raise InputError(f"{row.where}: expected a JSON object, found {_kind(values)}")
    if b"\r" in line or b"\n" in line:
        # Inside of strings JSON has them escaped only, so these are white space between tokens
        line = re.sub(rb"[\r\n]", b" ", line)
    return RowDocument(line, values)


def _decode(text: str, where: str) -> Any:
    try:
        try:
            return _fast(text)
        except (json.JSONDecodeError, _DuplicateKey, _NotJson):
            raise
        except ValueError:
            return _any_size(text)
    except _DuplicateKey as error:
        raise InputError(f"{where}: the key {error.args[0]!r} is given twice in one object: keep one of them") from None
    except _NotJson as error:
        raise InputError(f"{where}: {error} is not JSON: write null or a number") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: expected JSON, but {_complaint(error, text)}") from None
    except RecursionError:
        raise InputError(f"{where}: objects and lists are nested too deeply to be read") from None


def _complaint(error: json.JSONDecodeError, text: str) -> str:
    """What is wrong at which character; the text itself may be long or private."""
    place = "at the end" if error.pos >= len(text) else f"at character {error.pos + 1}"
    return f"{error.msg[:1].lower()}{error.msg[1:]} {place}"


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return {list: "a list", str: "a string", int: "a number", float: "a number"}.get(type(value), "something else")

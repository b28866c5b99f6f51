"""Arrow values as the JSON that they most probably came from.

A column has one type for all rows, so a table cannot tell `{"a": null}` from `{}`: a key that some rows lack is stored
as a null in them. What can be known is: a null in a list or as the value of a map entry was written by somebody, for
lists and maps have no missing entries, and an object that is not null but has only null fields was an object without
these keys. So nulls of columns and of struct fields are left out, nulls of lists and maps stay, and empty objects stay.
NaN counts as null, because data frames write it for what is missing and JSON has no such number.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from gym_ray.errors import InputError

Converter = Callable[[Any], Any]
"""Takes a non-null Python value of an Arrow type; gives None for what counts as null."""


def row_converter(schema: pa.Schema, where: str) -> Converter:
    """Turns the Python dict of a table's row into what orjson writes as the row's JSON.

    Raises:
        InputError: a column's type has no JSON form, or two columns share a name.
    """
    if len(set(schema.names)) != len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InputError(f"{where}: the column {twice!r} exists twice: keep one of them")
    return _struct([(field.name, _converter(field.type, f"{where}: column {field.name}")) for field in schema])


def _converter(kind: pa.DataType, where: str) -> Converter | None:
    """None for types whose Python values are JSON values already."""
    if _extension_name(kind) == "arrow.json":
        return _json
    if isinstance(kind, pa.BaseExtensionType):
        return _converter(kind.storage_type, where)
    if pa.types.is_dictionary(kind):
        return _converter(kind.value_type, where)
    return _nested_converter(kind, where) if pa.types.is_nested(kind) else _scalar_converter(kind, where)


def _nested_converter(kind: pa.DataType, where: str) -> Converter | None:
    types = pa.types
    if types.is_struct(kind):
        return _struct([(field.name, _converter(field.type, f"{where}.{field.name}")) for field in kind])
    if types.is_map(kind):
        if not _is_text(kind.key_type):
            raise InputError(f"{where}: the keys of a map have to be text, but are {kind.key_type}")
        return _map(_converter(kind.item_type, where))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _converter(kind.value_type, f"{where}[]")
        return None if inner is None else _list(inner)
    raise _no_json_form(kind, where)


def _scalar_converter(kind: pa.DataType, where: str) -> Converter | None:
    types = pa.types
    if types.is_floating(kind):
        return _float
    if types.is_decimal(kind):
        return _decimal
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return _iso
    if _is_text(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind):
        return None
    raise _no_json_form(kind, where)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _no_json_form(kind: pa.DataType, where: str) -> InputError:
    return InputError(f"{where}: the type {kind} has no JSON form: convert it to text or numbers")


def _extension_name(kind: pa.DataType) -> str | None:
    return getattr(kind, "extension_name", None)


def _struct(fields: list[tuple[str, Converter | None]]) -> Converter:
    def convert(value: Any) -> Any:
        found = {}
        for name, inner in fields:
            item = value[name]
            if item is not None and inner is not None:
                item = inner(item)
            if item is not None:
                found[name] = item
        return found

    return convert


def _list(inner: Converter) -> Converter:
    return lambda value: [None if item is None else inner(item) for item in value]


def _map(inner: Converter | None) -> Converter:
    return lambda value: {key: item if item is None or inner is None else inner(item) for key, item in value}


def _float(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decimal(value: Decimal) -> Any:
    return orjson.Fragment(format(value, "f").encode())


def _json(value: str) -> Any:
    return orjson.Fragment(value.encode())


def _iso(value: Any) -> str:
    return str(value.isoformat())

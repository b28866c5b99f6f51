"""Rows that a program hands over, as the same JSON texts that a file would hold.

Input rows are read, never changed. NaN and infinities become null, as NeMo Gym's own client writes them (source:
protocol §2); numpy values become plain numbers and lists.
"""

import math
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import orjson

from gym_ray.errors import InputError
from gym_ray.rows.source_row import SourceRow
from gym_ray.rows.splicing import Json, encode

SOURCE = "rows"
"""What messages call them: `rows[3]`."""


class Dataset(Protocol):
    """What a Ray Dataset offers: it cannot be iterated, but its rows can."""

    def iter_rows(self) -> Iterable[Mapping[str, Any]]: ...


def rows_of(examples: Iterable[Mapping[str, Any]] | Dataset) -> Iterable[SourceRow]:
    """One row for each mapping, numbered from 0; can be iterated again if `examples` can.

    Of a Dataset, whose rows come out of Arrow columns, nulls of columns and struct fields are left out, because those
    were most probably never written; see `arrow_values`.

    Raises:
        InputError: while iterating, that something in a row has no JSON form.
    """
    return _rows(examples) if isinstance(examples, Iterator) else _RepeatableRows(examples)


class _RepeatableRows(Iterable[SourceRow]):
    def __init__(self, examples: Iterable[Mapping[str, Any]] | Dataset) -> None:
        self._examples = examples

    def __iter__(self) -> Iterator[SourceRow]:
        return _rows(self._examples)


def _rows(examples: Iterable[Mapping[str, Any]] | Dataset) -> Iterator[SourceRow]:
    # Asked for first: a Ray Dataset has an `__iter__` too, which only says that it cannot be iterated
    iter_rows = getattr(examples, "iter_rows", None)
    if iter_rows is not None:
        for number, example in enumerate(iter_rows()):
            yield source_row(_without_nulls(example), number)
    else:
        for number, example in enumerate(cast(Iterable[Mapping[str, Any]], examples)):
            yield source_row(example, number)


async def rows_of_async(examples: AsyncIterable[Mapping[str, Any]]) -> AsyncIterator[SourceRow]:
    """As `rows_of`, for rows that arrive."""
    number = 0
    async for example in examples:
        yield source_row(example, number)
        number += 1


def source_row(example: Mapping[str, Any], number: int) -> SourceRow:
    """The row of one mapping.

    Raises:
        InputError: it is not a mapping, or something in it has no JSON form.
    """
    if not isinstance(example, Mapping):
        raise InputError(f"{SOURCE}[{number}]: expected a mapping, found {type(example).__name__}")
    try:
        line, text = _encode(example), _encode(example, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{SOURCE}[{number}]: cannot be written as JSON: {error}") from None
    return SourceRow(line, SOURCE, number, number, is_line=False, identity_text=text)


def _encode(example: Mapping[str, Any], *, sort_keys: bool = False) -> Json:
    option = orjson.OPT_SERIALIZE_NUMPY | (orjson.OPT_SORT_KEYS if sort_keys else 0)
    try:
        return orjson.dumps(example if isinstance(example, dict) else dict(example), _plain_container, option)
    except TypeError:  # integers beyond 64 bits, lone surrogates, or nothing that JSON can hold
        return encode(_plain(example, sort_keys=sort_keys))


def _plain_container(value: Any) -> Any:
    """What orjson does not know by itself."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if hasattr(value, "tolist"):  # numpy arrays that orjson refuses, and scalars of foreign libraries
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    if hasattr(value, "tolist") and str(value.dtype) == "object":  # how Ray gives lists of objects
        return [_without_nulls(item) for item in value.tolist()]
    return value


def _plain(value: Any, *, sort_keys: bool) -> Any:
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        if wrong := next((key for key in value if not isinstance(key, str)), None):
            raise TypeError(f"the key {wrong!r} is not a string")
        items = sorted(value.items()) if sort_keys else value.items()
        return {key: _plain(item, sort_keys=sort_keys) for key, item in items}
    if isinstance(value, list):
        return [_plain(item, sort_keys=sort_keys) for item in value]
    return _plain(_plain_container(value), sort_keys=sort_keys)

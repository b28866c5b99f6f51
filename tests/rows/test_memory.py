import json
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from gym_ray.errors import InputError
from gym_ray.rows.memory import rows_of, rows_of_async, source_row


def line(row: Mapping[str, Any]) -> bytes:
    return source_row(row, 0).line


def test_a_row_is_written_as_compact_json_in_its_own_order() -> None:
    assert (
        line({"b": 1, "a": {"z": [1.5, None, True], "y": "ä"}}) == '{"b":1,"a":{"z":[1.5,null,true],"y":"ä"}}'.encode()
    )


class Array:
    """Stands for arrays and scalars of libraries that JSON encoders do not know."""

    def __init__(self, value: Any, dtype: str = "int64") -> None:
        self.value, self.dtype = value, dtype

    def tolist(self) -> Any:
        return self.value


def test_arrays_and_scalars_become_plain_values() -> None:
    assert (
        line({"i": Array(3), "a": Array([1, 2]), "o": Array(["x", Array(None)])}) == b'{"i":3,"a":[1,2],"o":["x",null]}'
    )


def test_numpy_values_become_plain_ones() -> None:
    np = pytest.importorskip("numpy")
    row = {"i": np.int64(3), "f": np.float64(0.5), "a": np.array([1, 2]), "o": np.array(["x", None], dtype=object)}
    assert json.loads(line(row)) == {"i": 3, "f": 0.5, "a": [1, 2], "o": ["x", None]}
    assert json.loads(line({**row, "n": 10**30})) == {"i": 3, "f": 0.5, "a": [1, 2], "o": ["x", None], "n": 10**30}


def test_integers_beyond_64_bits_and_lone_surrogates_are_written() -> None:
    row = {"n": 10**30, "s": "\ud800", "t": (1, 2), "inf": float("inf"), "m": MappingProxyType({"k": Array(1)})}
    assert json.loads(line(row)) == {"n": 10**30, "s": "\ud800", "t": [1, 2], "inf": None, "m": {"k": 1}}


def test_nan_becomes_null() -> None:
    assert line({"x": float("nan"), "y": float("-inf")}) == b'{"x":null,"y":null}'


def test_mappings_that_are_not_dicts_are_rows_too() -> None:
    assert line(MappingProxyType({"a": MappingProxyType({"b": 1})})) == b'{"a":{"b":1}}'


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": object()}, "cannot be written as JSON"),
        ({1: "x"}, "cannot be written as JSON"),
        ({"a": {1: 10**30}}, "cannot be written as JSON"),
        ([1], "expected a mapping, found list"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(row: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"^rows\[1\]: {message}"):
        list(rows_of([{}, row]))


def test_rows_with_the_same_content_have_the_same_identity_whatever_the_order_of_keys() -> None:
    first, second, third = rows_of([{"a": 1, "b": [{"c": 2, "d": 3}]}, {"b": [{"d": 3, "c": 2}], "a": 1}, {"a": 1}])
    assert first.identity_text == second.identity_text != third.identity_text
    assert first.line != second.line


def test_rows_of_a_list_can_be_read_again_and_those_of_a_generator_cannot() -> None:
    rows = rows_of([{}])
    assert list(rows) == list(rows) != []
    once = rows_of(iter([{}]))
    assert iter(once) is once


def test_rows_are_not_changed() -> None:
    row = {"a": [1, {"b": 2}]}
    list(rows_of([row]))
    assert row == {"a": [1, {"b": 2}]}


def test_a_dataset_is_read_row_by_row_without_the_nulls_of_its_columns() -> None:
    class Dataset:
        def __iter__(self) -> Iterator[Mapping[str, Any]]:
            raise TypeError("`Dataset` objects aren't iterable")  # as the real one, which has the method all the same

        def iter_rows(self) -> Iterator[Mapping[str, Any]]:
            yield {"a": None, "b": {"c": None, "d": [None, {"e": None}]}, "n": Array(1)}
            yield {"l": Array([{"x": None, "y": 1}], "object")}

    assert [json.loads(row.line) for row in rows_of(Dataset())] == [{"b": {"d": [None, {}]}, "n": 1}, {"l": [{"y": 1}]}]


async def test_rows_may_arrive() -> None:
    async def arriving() -> AsyncIterator[Mapping[str, Any]]:
        yield {"n": 1}
        yield {"n": 2}

    rows = [row async for row in rows_of_async(arriving())]
    assert [(row.line, row.position, row.where) for row in rows] == [
        (b'{"n":1}', 0, "rows[0]"),
        (b'{"n":2}', 1, "rows[1]"),
    ]

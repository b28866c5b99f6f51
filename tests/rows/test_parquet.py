import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gym_ray.errors import InputError
from gym_ray.rows.reading import read_rows
from gym_ray.rows.source_row import SourceRow


def written(tmp_path: Path, table: pa.Table) -> Path:
    file = tmp_path / "rows.parquet"
    pq.write_table(table, file, row_group_size=3)
    return file


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def read(tmp_path: Path, table: pa.Table) -> list[Any]:
    return [json.loads(row.line) for row in read_rows(written(tmp_path, table))]


def test_rows_have_the_json_that_they_have_in_a_jsonl_file(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "params": {"input": [{"role": "user", "content": "ä"}], "temperature": 0.5}, "tags": ["a", "b"]},
        {"id": 2**62, "params": {"input": [{"role": "system", "content": "x", "name": "n"}], "top_p": 1.0}, "tags": []},
        {"params": {"input": []}, "flag": True},
    ]
    assert read(tmp_path, table_of(rows)) == rows


def test_keys_that_a_row_lacks_are_not_invented(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": {"x": 1, "deep": {"p": 1}}}, {"a": {"y": 2}}, {"b": 3}, {"a": {"deep": {}}}]
    assert read(tmp_path, table_of(rows)) == rows


def test_nulls_that_somebody_wrote_stay(tmp_path: Path) -> None:
    table = pa.table(
        {
            "list": pa.array([[1, None, 3]], pa.list_(pa.int64())),
            "map": pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
            "objects": pa.array([[{"x": 1}, None]], pa.list_(pa.struct({"x": pa.int64()}))),
        }
    )
    assert read(tmp_path, table) == [{"list": [1, None, 3], "map": {"a": 1, "b": None}, "objects": [{"x": 1}, None]}]


def test_the_nan_of_data_frames_counts_as_missing(tmp_path: Path) -> None:
    table = pa.table({"a": [1.5, float("nan")], "b": [[1.0, float("inf")], None]})
    assert read(tmp_path, table) == [{"a": 1.5, "b": [1.0, None]}, {}]


def test_other_types_are_written_as_plain_json(tmp_path: Path) -> None:
    table = pa.table(
        {
            "price": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
            "day": pa.array([datetime.date(2026, 1, 5)]),
            "at": pa.array([datetime.datetime(2026, 1, 5, 10, tzinfo=datetime.UTC)]),
            "kind": pa.array(["x"]).dictionary_encode(),
            "big": pa.array([2**64 - 1], pa.uint64()),
            "small": pa.array([3], pa.int8()),
            "nothing": pa.nulls(1),
            "text": pa.array(["t"], pa.large_string()),
        }
    )
    (row,) = read_rows(written(tmp_path, table))
    assert row.line == (
        b'{"price":1.10,"day":"2026-01-05","at":"2026-01-05T10:00:00+00:00","kind":"x","big":18446744073709551615,'
        b'"small":3,"text":"t"}'
    )


def test_a_column_of_json_is_taken_over_as_it_is(tmp_path: Path) -> None:
    texts = ['{"n": 123456789012345678901234567890, "x": null}', None]
    table = pa.table({"params": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(texts))})
    assert [row.line for row in read_rows(written(tmp_path, table))] == [b'{"params":%b}' % texts[0].encode(), b"{}"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"x"]), "column data: the type binary has no JSON form"),
        (pa.array([datetime.timedelta(1)]), "column data: the type duration"),
        (pa.array([{"x": [b"y"]}]), r"column data\.x\[\]: the type binary"),
        (pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())), "the keys of a map have to be text"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_column(tmp_path: Path, column: pa.Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, pa.table({"data": column}))


def test_two_columns_with_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the column 'a' exists twice"):
        read(tmp_path, pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_rows_are_numbered_and_stream_through_row_groups(tmp_path: Path) -> None:
    file = written(tmp_path, pa.table({"n": range(1000)}))
    rows = list(read_rows(file))
    assert [json.loads(row.line)["n"] for row in rows] == list(range(1000))
    assert rows[7].where == f"{file}[7]"
    assert rows[999].position == 999


def test_a_file_that_is_not_parquet_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"no parquet at all, but long enough")
    with pytest.raises(InputError, match=r"rows\.parquet: cannot be read: "):
        list(read_rows(tmp_path / "rows.parquet"))


def test_a_parquet_file_is_opened_by_uri_as_well(tmp_path: Path) -> None:
    written(tmp_path, pa.table({"n": [1]}))
    rows: list[SourceRow] = list(read_rows(f"{tmp_path.as_uri()}/*.parquet"))
    assert [row.line for row in rows] == [b'{"n":1}']

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray import keys
from gym_ray.errors import InputError, RecordingError
from gym_ray.recording.part_schema import PART_SCHEMA, Facts
from gym_ray.recording.parts import MAX_GROUP_BYTES, MAX_GROUP_ROWS, PartReader, PartRow, read_lines, write_part
from tests.recording.files import on_disk, record

AllFacts = Mapping[tuple[int, int, int], Facts]


def sealed(
    folder: Path, results: Iterable[bytes] = (), failures: Iterable[bytes] = (), facts: AllFacts | None = None
) -> Path:
    """A part with these lines."""
    path = folder / "part.parquet"
    write_part(path, results, failures, facts or {})
    return path


def row_of(folder: Path, line: bytes, *, is_result: bool = True, facts: AllFacts | None = None) -> dict[str, Any]:
    """What the columns say of one record."""
    path = sealed(folder, [line], facts=facts) if is_result else sealed(folder, (), [line], facts)
    (row,) = pq.read_table(path).to_pylist()
    assert row.pop("record").encode() == line.removesuffix(b"\n")
    return dict(row)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STAMPED = st.dictionaries(
    st.sampled_from(
        [
            keys.TASK_INDEX,
            keys.ROLLOUT_INDEX,
            keys.ATTEMPT_INDEX,
            keys.ENVIRONMENT_SERVER,
            keys.AGENT_REF,
            keys.FAILURE_CLASS,
            keys.FAILURE_RECORD,
            keys.FAILURE_SENDS,
            keys.SENDS,
            "reward",
            "response",
            "usage",
            "mask_sample",
            "instance_config",
        ]
    ),
    JSON | st.text(alphabet=st.characters(categories=["Cs", "L"])) | st.sampled_from([2**63, -(2**63), 2**31, 1e300]),
    max_size=8,
)
LINES = st.lists(
    st.tuples(st.booleans(), STAMPED | st.dictionaries(st.text(), JSON, max_size=4), st.booleans(), st.booleans()),
    max_size=12,
)


@on_disk
@given(LINES)
def test_every_line_comes_out_as_it_went_in(records: list[tuple[bool, dict[str, Any], bool, bool]]) -> None:
    lines = []
    for is_result, value, is_ascii, has_blanks in records:
        text = json.dumps(value, ensure_ascii=is_ascii or not is_text(value))
        lines.append((is_result, f" {text}\t\r".encode() if has_blanks else text.encode()))
    with tempfile.TemporaryDirectory() as folder:
        path = sealed(
            Path(folder),
            [line for is_result, line in lines if is_result],
            [line + b"\n" for is_result, line in lines if not is_result],
        )
        found = list(read_lines(path))
        assert sorted(found) == sorted((is_result, line + b"\n") for is_result, line in lines)
        assert pq.read_schema(path) == PART_SCHEMA
        with PartReader(path) as reader:
            assert [reader.line(row.position) for row in reader.scan()] == [line for _, line in found]
            assert [row.is_result for row in reader.scan()] == [is_result for is_result, _ in found]


def is_text(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_the_columns_say_what_the_record_and_the_driver_say(tmp_path: Path) -> None:
    line = record(
        7,
        2,
        1,
        reward=0.5,
        mask_sample=True,
        response={"usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}},
        **{keys.ENVIRONMENT_SERVER: "env", keys.AGENT_REF: {"name": "agent"}, keys.SENDS: 3},
    )
    facts = {(7, 2, 1): Facts(latency_ms=12.5, ended_at_ms=1_767_225_600_123, sends=4)}
    row = row_of(tmp_path, line, facts=facts)
    assert row.pop("ended_at").isoformat() == "2026-01-01T00:00:00.123000+00:00"
    assert row == {
        "task_index": 7,
        "rollout_index": 2,
        "attempt": 1,
        "is_result": True,
        "is_evidence": True,
        "environment_server": "env",
        "agent": "agent",
        "reward": 0.5,
        "mask_sample": True,
        "failure_class": None,
        "failure_kind": None,
        "terminal": False,
        "latency_ms": 12.5,
        "sends": 4,
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
    }
    assert row_of(tmp_path, line)["sends"] == 3


def test_a_failure_has_its_class_kind_and_finality(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        keys.FAILURE_CLASS: "agent_run_error",
        keys.FAILURE_TERMINAL: True,
        keys.FAILURE_SENDS: 2,
        keys.FAILURE_RECORD: {"failure": {"failure_kind": "agent_timeout"}},
    }
    row = row_of(tmp_path, record(0, failure_kind="own", **fields), is_result=False)
    assert (row["failure_class"], row["failure_kind"], row["terminal"], row["sends"]) == (
        "agent_run_error",
        "agent_timeout",
        True,
        2,
    )
    assert row_of(tmp_path, record(0, failure_kind="own"), is_result=False)["failure_kind"] == "own"


def test_tokens_of_chat_completions_and_of_usage_beside_the_response_count(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    for line in (record(0, response={"usage": usage}), record(0, response={"usage": None}, usage=usage)):
        row = row_of(tmp_path, line)
        assert (row["input_tokens"], row["output_tokens"], row["total_tokens"]) == (10, 5, 15)


def test_a_sample_that_its_instance_config_masks_is_masked(tmp_path: Path) -> None:
    assert row_of(tmp_path, record(0, instance_config={"mask_sample": True}))["mask_sample"] is True
    assert row_of(tmp_path, record(0, instance_config={"mask_sample": False}))["mask_sample"] is False


@pytest.mark.parametrize(
    ("fields", "is_result", "is_evidence"),
    [
        (b'"reward":1', True, True),
        (b'"reward":null', True, False),
        (b'"reward":"high"', True, True),
        (b'"reward":1e999', True, True),
        (b'"a":1', True, True),
        (b'"a":1', False, True),
        (b'"reward":null', False, True),
        (b'"_ng_omitted_rollout":true', False, False),
        (b'"_ng_unrouted_run_error":true', False, False),
    ],
)
def test_what_is_no_evidence_of_an_attempt_is_told_apart(
    tmp_path: Path, fields: bytes, is_result: bool, is_evidence: bool
) -> None:
    row = row_of(tmp_path, b"{%b}" % fields, is_result=is_result)
    assert row["is_evidence"] is is_evidence
    assert row["reward"] == (1.0 if fields == b'"reward":1' else None)


def test_values_of_an_unusual_type_count_as_absent(tmp_path: Path) -> None:
    usual = {keys.TASK_INDEX: 3, keys.ROLLOUT_INDEX: 4, "reward": 0.5}
    unusual = {
        keys.ATTEMPT_INDEX: 2**31,
        keys.ENVIRONMENT_SERVER: ["env"],
        keys.AGENT_REF: {"name": "\ud800"},
        keys.FAILURE_CLASS: {"a": 1},
        "response": ["text"],
        "mask_sample": {},
        "instance_config": 5,
    }
    row = row_of(tmp_path, json.dumps(usual | unusual).encode())
    held = {name: value for name, value in row.items() if value is not None and value is not False}
    assert held == {
        "task_index": 3,
        "rollout_index": 4,
        "attempt": 0,
        "reward": 0.5,
        "is_result": True,
        "is_evidence": True,
    }
    assert row_of(tmp_path, b'{"_ng_task_index":9223372036854775808}')["task_index"] is None
    assert row_of(tmp_path, b'{"_ng_task_index":true}')["task_index"] is None


@pytest.mark.parametrize("lines", [[], [b"{}"], [b'{"response":null}', record(0)]])
def test_the_schema_is_the_same_whatever_records_lack(tmp_path: Path, lines: list[bytes]) -> None:
    path = sealed(tmp_path, lines)
    assert pq.read_schema(path) == PART_SCHEMA
    assert pq.read_table(path).num_rows == len(lines)
    assert [line for _, line in read_lines(path)] == [line.removesuffix(b"\n") + b"\n" for line in reversed(lines)]


def test_rows_are_sorted_and_equals_stand_as_they_were_given(tmp_path: Path) -> None:
    results = [record(2, number=1), record(1, 1), record(2, number=2), record(1, 0, 1), b'{"number":3}\n']
    failures = [record(2, number=4), record(1, 0), record(-5)]
    assert list(read_lines(sealed(tmp_path, results, failures))) == [
        (False, record(-5)),
        (False, record(1, 0)),
        (True, record(1, 0, 1)),
        (True, record(1, 1)),
        (True, record(2, number=1)),
        (True, record(2, number=2)),
        (False, record(2, number=4)),
        (True, b'{"number":3}\n'),
    ]


def test_row_groups_are_bounded_in_rows_and_in_bytes(tmp_path: Path) -> None:
    def groups(lines: list[bytes]) -> list[int]:
        metadata = pq.read_metadata(sealed(tmp_path, lines))
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    assert groups([record(task) for task in range(2 * MAX_GROUP_ROWS + 1)]) == [MAX_GROUP_ROWS, MAX_GROUP_ROWS, 1]
    half = "x" * (MAX_GROUP_BYTES // 2 - 100)
    assert groups([record(task, text=half) for task in range(5)]) == [2, 2, 1]
    assert groups([record(0), record(1, text="x" * 2 * MAX_GROUP_BYTES), record(2)]) == [1, 1, 1]


def test_a_look_up_by_task_touches_one_row_group(tmp_path: Path) -> None:
    path = sealed(tmp_path, [record(task) for task in reversed(range(5_000))], [record(2_500, attempt=1)])
    (fragment,) = ds.dataset(path).get_fragments()
    assert len(fragment.row_groups) == 6
    assert len(fragment.subset(ds.field("task_index") == 1_234).row_groups) == 1
    found = ds.dataset(path).to_table(filter=ds.field("task_index") == 2_500, columns=["attempt", "is_result"])
    assert found.to_pylist() == [{"attempt": 0, "is_result": True}, {"attempt": 1, "is_result": False}]
    column = pq.read_metadata(path).row_group(0).column(0)
    assert column.has_offset_index
    assert column.has_column_index


def test_an_index_scans_a_part_without_its_records(tmp_path: Path) -> None:
    fields = {keys.ENVIRONMENT_SERVER: "env", keys.AGENT_REF: {"name": "agent"}}
    path = sealed(tmp_path, [record(1, 2, 3, **fields)], [record(0), b'{"_ng_omitted_rollout":true}\n'])
    with PartReader(path) as reader:
        assert len(reader) == 3
        assert list(reader.scan()) == [
            PartRow(0, False, True, 0, 0, 0, None, None),
            PartRow(1, True, True, 1, 2, 3, "env", "agent"),
            PartRow(2, False, False, None, None, 0, None, None),
        ]
        reader.close()


def test_lines_are_read_in_any_order(tmp_path: Path) -> None:
    lines = [record(task) for task in range(2_500)]
    with PartReader(sealed(tmp_path, lines)) as reader:
        assert [reader.line(position) for position in (2_499, 0, 999, 1_000, 1)] == [
            lines[position] for position in (2_499, 0, 999, 1_000, 1)
        ]
        for position in (-1, 2_500):
            with pytest.raises(IndexError, match=f"expected a position below 2500, found {position}"):
                reader.line(position)


@pytest.mark.parametrize(
    ("line", "damage"),
    [
        (b'{"a":"\xff"}', "can't decode byte 0xff"),
        (b'{"a":NaN}', "NaN is not a number"),
        (b'{"a":1', "delimiter"),
        (b"[1]", "it is not an object"),
        (b"\n", "Expecting value"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_nothing_is_sealed(tmp_path: Path, line: bytes, damage: str) -> None:
    path = tmp_path / "part.parquet"
    with pytest.raises(InputError, match=rf"part\.parquet: failure 2: expected a record, found damage: .*{damage}"):
        write_part(path, [record(0)], [record(1), line], {})
    assert list(tmp_path.iterdir()) == []


def test_an_error_on_the_way_leaves_the_old_part_and_nothing_else(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield record(1)
        raise KeyboardInterrupt

    path = sealed(tmp_path, [record(0)])
    with pytest.raises(KeyboardInterrupt):
        write_part(path, broken(), [], {})
    assert list(read_lines(path)) == [(True, record(0))]
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(RecordingError, match=r"part\.parquet: cannot be written: File too large"):
            sealed(tmp_path, [record(task, text=os.urandom(500).hex()) for task in range(2_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


SEALING = """
import sys
from itertools import count
from pathlib import Path
from gym_ray.recording.parts import write_part
lines = [b'{"_ng_task_index":%d,"text":"%d"}' % (n, n * n) for n in range(3000)]
for number in count():
    write_part(Path(sys.argv[1]) / f"{number % 5}.parquet", lines, [], {})
"""


def test_a_kill_at_any_moment_leaves_no_half_part(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SEALING, str(tmp_path)])
    deadline = time.monotonic() + 60
    while not (tmp_path / "4.parquet").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in tmp_path.glob("*.parquet"):
        assert sum(1 for _ in read_lines(path)) == 3000


def test_damage_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = sealed(tmp_path, [record(task, text=os.urandom(50).hex()) for task in range(3_000)])
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (
        b"",
        whole[:-1],
        whole[:middle],
        whole[: middle - 1] + bytes([whole[middle - 1] ^ 1]) + whole[middle:],
        record(0) * 10,
    ):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"part\.parquet: expected a part, found damage: .*: restore the file"):
            list(read_lines(path))


def test_a_file_that_is_not_there_and_another_parquet_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    with pytest.raises(InputError, match=r"part\.parquet: expected a part, but it cannot be read: .*No such file"):
        PartReader(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match=r"expected a part, with a column is_result of bool, found none"):
        PartReader(path)


@pytest.fixture
def folder_of_parts(tmp_path: Path) -> Path:
    """Two parts, one without any name and one without any number."""
    write_part(tmp_path / "0.parquet", [b'{"_ng_task_index":1,"text":"\xc3\xa4"}'], [], {})
    fields = {keys.ENVIRONMENT_SERVER: "env", keys.AGENT_REF: {"name": "agent"}, keys.FAILURE_CLASS: "lost"}
    write_part(tmp_path / "1.parquet", [], [orjson.dumps(fields)], {})
    return tmp_path


def test_pyarrow_reads_the_parts_of_a_folder(folder_of_parts: Path) -> None:
    table = ds.dataset(folder_of_parts, format="parquet").to_table()
    assert table.schema == PART_SCHEMA
    assert table.column("record").to_pylist()[0] == '{"_ng_task_index":1,"text":"ä"}'


def test_polars_reads_the_parts_of_a_folder(folder_of_parts: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(folder_of_parts / "*.parquet").filter(polars.col("task_index") == 1).collect()
    assert frame["record"].to_list() == ['{"_ng_task_index":1,"text":"ä"}']
    assert polars.read_parquet(folder_of_parts / "*.parquet")["agent"].to_list() == [None, "agent"]


def test_duckdb_reads_the_parts_of_a_folder(folder_of_parts: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    query = f"select record->>'text', agent from '{folder_of_parts}/*.parquet' order by task_index nulls last"
    assert duckdb.sql(query).fetchall() == [("ä", None), (None, "agent")]

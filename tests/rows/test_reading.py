import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from gym_ray.errors import InputError
from gym_ray.rows.reading import RowFiles, read_rows, split_lines
from gym_ray.rows.source_row import SourceRow


def lines(*inputs: str | Path) -> list[bytes]:
    return [row.line for row in read_rows(inputs)]


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def test_lines_end_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    text = '{"a":"\u2028\u0085\x0b\x0c\x1c"}\n{"b":1}\r\n{"c":2}'
    file = tmp_path / "rows.jsonl"
    file.write_bytes(text.encode())
    rows = list(read_rows(file))
    assert [row.line.decode() for row in rows] == ['{"a":"\u2028\u0085\x0b\x0c\x1c"}', '{"b":1}', '{"c":2}']
    assert [row.where for row in rows] == [f"{file}:1", f"{file}:2", f"{file}:3"]
    assert [row.position for row in rows] == [0, 1, 2]
    assert [row.is_terminated for row in rows] == [True, True, False]


def test_a_byte_order_mark_belongs_to_the_start_of_a_file_only(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    (tmp_path / "rows.jsonl").write_bytes(mark + b"{}\n" + mark + b"{}\n")
    assert lines(tmp_path / "rows.jsonl") == [b"{}", mark + b"{}"]


def test_a_carriage_return_is_taken_from_the_end_only_once() -> None:
    assert next(iter(split_lines([b"{}\r\r\n"], "f"))).line == b"{}\r"


def test_blank_lines_are_rows_too_so_that_they_can_be_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n\n{}\n")
    assert lines(tmp_path / "rows.jsonl") == [b"{}", b"", b"{}"]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"")
    assert lines(tmp_path / "rows.jsonl") == []


def test_files_follow_each_other_and_positions_go_on(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_bytes(b'{"n":1}\n{"n":2}')
    (tmp_path / "a.jsonl").write_bytes(b'{"n":3}\n')
    rows = list(read_rows([tmp_path / "b.jsonl", tmp_path / "a.jsonl"]))
    assert [(row.number, row.position) for row in rows] == [(1, 0), (2, 1), (1, 2)]


def test_rows_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n")
    rows = read_rows(tmp_path / "rows.jsonl")
    assert list(rows) == list(rows) != []


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_compressed_files_are_read_by_their_suffix(tmp_path: Path, suffix: str, pack) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / f"rows.jsonl{suffix}"
    file.write_bytes(pack(b'{"n":1}\n') + pack(b'{"n":2}\n'))
    assert lines(file) == [b'{"n":1}', b'{"n":2}']


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_a_damaged_compressed_file_is_refused_by_name(tmp_path: Path, suffix: str, pack) -> None:  # type: ignore[no-untyped-def]
    whole = pack(b"".join(b'{"n":%d}\n' % number for number in range(10_000)))
    for damaged in (whole[: len(whole) // 2], b"this is not compressed"):
        (tmp_path / f"rows.jsonl{suffix}").write_bytes(damaged)
        with pytest.raises(InputError, match=r"rows\.jsonl\.(gz|zst): cannot be read: "):
            lines(tmp_path / f"rows.jsonl{suffix}")


def test_a_pattern_gives_its_files_sorted(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        (tmp_path / name).write_bytes(b'{"n":"%b"}\n' % name.encode())
    assert lines(tmp_path / "*.jsonl") == [b'{"n":"a.jsonl"}', b'{"n":"b.jsonl"}']


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "rows[1].jsonl").write_bytes(b"{}\n")
    assert lines(tmp_path / "rows[1].jsonl") == [b"{}"]


def test_relative_paths_are_searched_in_the_extra_roots_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("one", "two", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.jsonl").write_bytes(b'{"in":"%b"}\n' % folder.encode())
    (tmp_path / "two" / "here.jsonl").write_bytes(b'{"in":"two"}\n')
    monkeypatch.chdir(tmp_path / "here")
    environ = {"NEMO_GYM_EXTRA_ROOTS": f"{tmp_path / 'one'}:{tmp_path / 'two'}"}

    def read(name: str) -> list[bytes]:
        return [row.line for row in RowFiles([name], environ)]

    assert read("two.jsonl") == [b'{"in":"two"}']
    assert read("here.jsonl") == [b'{"in":"two"}']
    assert read("h*.jsonl") == [b'{"in":"two"}']
    assert [row.line for row in RowFiles(["here.jsonl"], {})] == [b'{"in":"here"}']


@pytest.mark.parametrize("name", ["missing.jsonl", "*.missing", "", "file:///nowhere/missing.jsonl"])
def test_a_missing_input_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="expected"):
        read_rows(name if "://" in name else str(tmp_path / name))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found a folder: name its files"):
        read_rows(tmp_path)


def test_an_unknown_kind_of_uri_is_refused() -> None:
    with pytest.raises(InputError, match=r"nosuch://bucket/rows\.jsonl: cannot be opened"):
        read_rows("nosuch://bucket/rows.jsonl")


def test_uris_and_their_patterns_are_opened_through_arrow(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.jsonl").write_bytes(b'{"n":1}\n')
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"n":2}\n'))
    (tmp_path / "other.txt").write_bytes(b"no")
    uri = tmp_path.as_uri()
    assert lines(f"{uri}/a.jsonl") == [b'{"n":1}']
    rows = list(read_rows(f"{uri}/*.jsonl*"))
    assert [row.line for row in rows] == [b'{"n":1}', b'{"n":2}']
    assert rows[0].where == f"{uri}/a.jsonl:1"


def test_what_a_consumer_raises_is_not_taken_for_a_fault_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n")

    def consume(_: SourceRow) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        for row in read_rows(tmp_path / "rows.jsonl"):
            consume(row)

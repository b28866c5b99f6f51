from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.recording.repair import CHUNK_BYTES, repair_tail
from tests.recording.files import on_disk, record

LINES = [record(0), record(1, note="café ☕ done"), record(2, nested={"a": ["}", "\\"]})]


def test_a_file_that_ends_with_a_line_end_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b"".join(LINES))
    assert repair_tail(file) is None
    assert file.read_bytes() == b"".join(LINES)


def test_a_missing_or_empty_file_needs_no_repair(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    assert repair_tail(file) is None
    assert not file.exists()
    file.touch()
    assert repair_tail(file) is None


def test_a_cut_at_any_byte_leaves_whole_records_and_loses_nothing(tmp_path: Path) -> None:
    whole = b"".join(LINES)
    for cut in range(len(whole) + 1):
        file = tmp_path / f"{cut}.jsonl"
        file.write_bytes(whole[:cut])
        repair = repair_tail(file)
        kept = file.read_bytes()
        assert b"".join(LINES).startswith(kept)
        assert kept == b"" or kept.endswith(b"\n")
        if repair is None:
            assert kept == whole[:cut]
        elif repair.kept_in is None:
            assert kept == whole[:cut] + b"\n"
        else:
            torn = repair.kept_in.read_bytes()
            assert kept + torn == whole[:cut]
            assert repair.dropped_bytes == len(torn) > 0
            assert str(repair.dropped_bytes) in str(repair)
            assert repair.kept_in.name in str(repair)
        assert repair_tail(file) is None


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 64, b" ", b"17", b'"x"', b"[1]", b'{"a":1}x', b'{"a":"caf\xc3"}', b'{"a":NaN', b"{" * 4000 + b"}" * 4000],
    ids=["zeros", "blank", "number", "string", "array", "more behind", "no UTF-8", "cut", "too deep"],
)
def test_what_is_no_record_is_kept_aside(tail: bytes, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(LINES[0] + tail)
    repair = repair_tail(file)
    assert repair is not None
    assert repair.kept_in is not None
    assert repair.kept_in.read_bytes() == tail
    assert file.read_bytes() == LINES[0]


def test_a_whole_record_with_an_escaped_lone_surrogate_is_completed(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(rb'{"text":"\ud800"}')
    repair = repair_tail(file)
    assert repair is not None
    assert repair.kept_in is None
    assert "line end" in str(repair)
    assert file.read_bytes() == rb'{"text":"\ud800"}' + b"\n"


def test_torn_bytes_of_an_earlier_crash_are_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    for tail in (b"one", b"two"):
        file.write_bytes(LINES[0] + tail)
        repair_tail(file)
    assert (tmp_path / "r.jsonl.torn-1").read_bytes() == b"one"
    assert (tmp_path / "r.jsonl.torn-2").read_bytes() == b"two"


@on_disk
@given(st.integers(-2, 2), st.integers(-2, 2))
def test_a_tail_longer_than_a_chunk_is_found(before: int, behind: int) -> None:
    head, tail = b"x" * (CHUNK_BYTES + before) + b"\n", b"{" + b"y" * (CHUNK_BYTES + behind)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "r.jsonl"
        file.write_bytes(head + tail)
        repair = repair_tail(file)
        assert repair is not None
        assert repair.kept_in is not None
        assert repair.kept_in.read_bytes() == tail
        assert file.read_bytes() == head

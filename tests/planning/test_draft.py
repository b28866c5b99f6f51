"""Files that appear together or not at all."""

from pathlib import Path

import pytest

from gym_ray.errors import RecordingError
from gym_ray.planning.draft import Draft


def targets(tmp_path: Path, count: int) -> list[Path]:
    return [tmp_path / f"file-{number}" for number in range(count)]


def test_files_get_their_names_together_and_replace_earlier_ones(tmp_path: Path) -> None:
    files = targets(tmp_path, 2)
    files[0].write_text("earlier")
    draft = Draft(files)
    draft.put(1, b"a")
    draft.put(1, b"b")
    assert files[0].read_text() == "earlier"
    draft.publish()
    assert [file.read_bytes() for file in files] == [b"", b"a\nb\n"]
    assert sorted(tmp_path.iterdir()) == files


def test_discarded_files_leave_nothing(tmp_path: Path) -> None:
    draft = Draft(targets(tmp_path, 2))
    draft.put(0, b"a")
    draft.flush()
    assert all(file.name.endswith(".tmp") for file in tmp_path.iterdir())
    draft.discard()
    assert list(tmp_path.iterdir()) == []


def test_what_is_published_is_not_discarded(tmp_path: Path) -> None:
    draft = Draft(targets(tmp_path, 1))
    draft.publish()
    draft.discard()
    assert list(tmp_path.iterdir()) == targets(tmp_path, 1)


def test_full_buffers_are_written_before_the_end(tmp_path: Path) -> None:
    draft = Draft(targets(tmp_path, 2), buffer_bytes=20)
    draft.put(0, b"x" * 8)
    assert list(tmp_path.iterdir()) == []
    draft.put(0, b"y" * 8)
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b"x" * 8 + b"\n" + b"y" * 8 + b"\n"


def test_lines_are_read_back_with_few_files_open(tmp_path: Path) -> None:
    draft = Draft(targets(tmp_path, 5))
    for number in range(5):
        draft.put(number, b"line %d" % number)
    draft.flush()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with draft.reader(max_open_files=2) as reader:
        for number in (0, 1, 2, 3, 4, 0, 4, 1):
            assert reader.read(number, 5, 1) == b"%d" % number
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_the_file_system_refuses_is_told(tmp_path: Path) -> None:
    draft = Draft([tmp_path / "nowhere" / "file"])
    with pytest.raises(RecordingError, match=r"nowhere.*cannot be written: No such file"):
        draft.publish()

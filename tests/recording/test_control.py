"""Requests to a running run: each is taken once, a cancellation is not taken back, damage asks for nothing."""

from pathlib import Path

import pytest

from gym_ray.paths import RunPaths
from gym_ray.recording.control import NOTHING, Control, is_taken, request, take_control


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path, "r")


def test_a_request_is_taken_once(paths: RunPaths) -> None:
    request(paths, Control(stop="drain"))
    assert not is_taken(paths)
    assert take_control(paths) == Control(stop="drain")
    assert is_taken(paths)
    assert take_control(paths) == NOTHING


def test_requests_add_up_until_they_are_taken(paths: RunPaths) -> None:
    request(paths, Control(shards=3))
    request(paths, Control(stop="cancel"))
    request(paths, Control(stop="drain"))
    request(paths, Control(shards=5))
    assert take_control(paths) == Control(stop="cancel", shards=5)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"stop":"now"}', b'{"shards":"many"}', b"\xff"])
def test_damage_asks_for_nothing_and_is_said(paths: RunPaths, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    paths.control.write_bytes(text)
    assert take_control(paths) == NOTHING
    assert "expected requests to the run" in caplog.text
    assert is_taken(paths)

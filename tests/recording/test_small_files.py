"""Files that are replaced whole: the atomic writer, the manifest, the status and the folder token."""

import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from gym_ray.errors import RecordingError, RunFolderError
from gym_ray.recording.atomic import write_atomically, write_json_atomically
from gym_ray.recording.folder_token import has_token, remove_token, write_token
from gym_ray.recording.manifest import Digest, Identity, ShardManifest, read_manifest, write_manifests
from gym_ray.recording.status import AgentStatus, RunState, RunStatus, read_status, write_status
from tests.recording.files import record, run_paths, write_plan


def test_a_file_appears_whole(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_atomically(file, (b"%d\n" % number for number in range(500_000)))
    assert file.read_bytes() == b"".join(b"%d\n" % number for number in range(500_000))
    write_atomically(file, [])
    assert file.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [file]


def test_a_source_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"new" * 1_000_000
        raise OSError("cannot read")

    file = tmp_path / "f"
    file.write_bytes(b"old")
    with pytest.raises(OSError, match="cannot read"):
        write_atomically(file, broken())
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_refuses_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"gone/f: cannot be written: No such file.*see that the folder is there"):
        write_atomically(tmp_path / "gone" / "f", [b"x"])


def test_json_is_written_for_people_and_never_with_what_json_has_not(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    write_json_atomically(file, {"a": ["\ud800é"]})
    assert file.read_text() == '{\n  "a": [\n    "\\ud800\\u00e9"\n  ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_atomically(file, float("nan"))


def test_a_manifest_knows_its_plan_again(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0), record(2)], [record(1)])
    write_manifests(
        paths, run_id="r9f2c1", shards=2, created_at="2026-01-05T10:00:00Z", identity=Identity(), max_rollout_attempts=3
    )
    content = record(0) + record(2)
    assert read_manifest(paths.shard(0).manifest) == ShardManifest(
        run_id="r9f2c1",
        created_at="2026-01-05T10:00:00Z",
        shard=0,
        shards=2,
        materialized=Digest(sha256(content).hexdigest(), 2),
    )
    assert Digest.of_file(paths.shard(1).materialized) == Digest(sha256(record(1)).hexdigest(), 1)
    written = json.loads(paths.shard(1).manifest.read_text())
    assert written["format_version"] == 1
    assert written["materialized"]["rows"] == 1
    assert read_manifest(paths.shard(2).manifest) is None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"{", "found damage"),
        (b'{"run_id": 1}', "found damage"),
        (
            b'{"run_id":"r","created_at":"","shard":0,"shards":1,"materialized":{"sha256":"","rows":0},'
            b'"format_version":2}',
            "found 2",
        ),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(content: bytes, found: str, tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_bytes(content)
    with pytest.raises(RunFolderError, match=found):
        read_manifest(file)


def test_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0)])
    write_manifests(paths, run_id="r", shards=1, created_at="now", identity=Identity(), max_rollout_attempts=3)
    file = paths.shard(0).manifest
    before = read_manifest(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"reserved_attempts": {"0-0": 1}}))
    assert read_manifest(file) == before


def test_a_status_has_the_documented_keys_and_comes_back(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    assert read_status(paths) is None
    status = RunStatus(
        state=RunState.RUNNING,
        updated_at="2026-01-05T10:11:12Z",
        run_id="r9f2c1",
        output="rollouts-0.jsonl",
        expected=240,
        completed=117,
        failed=3,
        omitted=2,
        remaining=118,
        failures_by_kind={"transport_unreachable": 2, "agent_timeout": 1},
        by_agent={"maze_agent": AgentStatus(240, 117, 3)},
        shards=4,
    )
    write_status(paths, status)
    assert read_status(paths) == status
    assert json.loads(paths.run_status.read_text()) == {
        "schema_version": 1,
        "state": "running",
        "updated_at": "2026-01-05T10:11:12Z",
        "run_id": "r9f2c1",
        "output": "rollouts-0.jsonl",
        "expected": 240,
        "completed": 117,
        "failed": 3,
        "omitted": 2,
        "remaining": 118,
        "failures_by_kind": {"transport_unreachable": 2, "agent_timeout": 1},
        "by_agent": {"maze_agent": {"expected": 240, "completed": 117, "failed": 3}},
        "aggregation": None,
        "shards": 4,
    }
    write_status(paths, msgspec.structs.replace(status, state=RunState.COMPLETE))
    again = read_status(paths)
    assert again is not None
    assert again.state is RunState.COMPLETE


@pytest.mark.parametrize("content", [b"", b"[]", b'{"state":"odd"}'])
def test_a_status_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    paths.run_status.write_bytes(content)
    with pytest.raises(RunFolderError, match="found damage"):
        read_status(paths)


def test_two_processes_know_the_same_folder_by_its_token(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    token, other = write_token(paths), write_token(paths)
    assert has_token(paths, token)
    assert has_token(paths, other)
    assert not has_token(replace(paths, directory=tmp_path / "elsewhere"), token)
    assert not has_token(replace(paths, stem="another"), token)
    remove_token(paths, token)
    remove_token(paths, token)
    assert not has_token(paths, token)
    remove_token(paths, other)
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_never_taken_for_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a token"):
        has_token(run_paths(tmp_path), "../x")

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.errors import InputError
from gym_ray.identity import RowIdentity
from gym_ray.recording.plan_files import PlanFiles
from tests.recording.files import on_disk, record, run_paths, write_plan


def server_zero(_: RowIdentity) -> int:
    return 0


def test_rollouts_are_numbered_by_the_shards_taking_turns(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0), record(1), record(2)], [record(3)], [record(4), record(5)])
    plan = PlanFiles.open(paths, 3, server_zero)
    assert [plan.key(number)[0] for number in range(len(plan))] == [0, 3, 4, 1, 5, 2]
    assert [plan.owner(number) for number in range(len(plan))] == [0, 1, 2, 0, 2, 0]
    plan.close()


@on_disk
@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=5), min_size=1, max_size=4))
def test_every_line_comes_back_byte_for_byte(texts: Sequence[Sequence[str]]) -> None:
    shards = [[record(shard, at, text=text) for at, text in enumerate(part)] for shard, part in enumerate(texts)]
    with TemporaryDirectory() as folder:
        paths = run_paths(Path(folder))
        write_plan(paths, *shards)
        plan = PlanFiles.open(paths, len(shards), server_zero)
        expected = [line for turn in zip_longest(*shards) for line in turn if line is not None]
        assert [plan.line(number) for number in range(len(plan))] == expected
        assert [plan.key(number) for number in range(len(plan))] == [
            (shard, at) for at in range(5) for shard, part in enumerate(shards) if at < len(part)
        ]
        plan.close()


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    odd = record(0, text="a\u2028b\u0085c") + record(1)
    write_plan(paths, [odd])
    plan = PlanFiles.open(paths, 1, server_zero)
    assert len(plan) == 2
    plan.close()


def test_each_row_keeps_the_server_that_it_is_given(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0, agent_ref={"name": "b"}), record(1, agent_ref={"name": "a"})])
    plan = PlanFiles.open(paths, 1, lambda identity: ["a", "b"].index(identity.agent_name or ""))
    assert [plan.server(0), plan.server(1)] == [1, 0]
    plan.close()


@pytest.mark.parametrize(
    "damage", [b"{\n", b"\n", b"[]\n", b'{"_ng_task_index": "0"}\n', b'{"_ng_task_index": 0}\n', b"\0\0\0"]
)
def test_a_line_that_is_no_row_is_named_by_file_and_line(damage: bytes, tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0)], [record(1), damage])
    with pytest.raises(InputError, match=r"rollouts-1_materialized_inputs\.jsonl:2: expected a materialized row"):
        PlanFiles.open(paths, 2, server_zero)


def test_a_shard_without_a_file_is_an_error(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0)])
    with pytest.raises(FileNotFoundError):
        PlanFiles.open(paths, 2, server_zero)


def test_a_plan_that_shrinks_during_the_run_is_not_read_as_something_else(tmp_path: Path) -> None:
    paths = run_paths(tmp_path)
    write_plan(paths, [record(0), record(1)])
    plan = PlanFiles.open(paths, 1, server_zero)
    write_plan(paths, [record(0)])
    with pytest.raises(InputError, match="changed the file"):
        plan.line(1)
    plan.close()
    plan.close()

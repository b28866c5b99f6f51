"""The files of a plan."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_ray.errors import InputError, RecordingError, RoutingError
from gym_ray.identity import read_identity
from gym_ray.paths import RunPaths
from gym_ray.planning.in_memory import plan_rows
from gym_ray.planning.planner import PlanSummary
from gym_ray.planning.shaping import Shaping
from gym_ray.planning.writing import PlanWriter, write_plan
from gym_ray.rows.memory import rows_of
from gym_ray.rows.reading import read_rows
from gym_ray.rows.source_row import SourceRow
from tests.planning.planned import Row, deployment, indices, lines_of, row, shaping, task


def write(tmp_path: Path, rows: Any, shards: int = 2, **fields: Any) -> tuple[list[list[Row]], PlanSummary]:
    """What is in each shard's file, and the summary."""
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    found = write_plan(rows_of(rows), shaping(**fields), deployment(), paths, shards)
    return [materialized(paths, shard) for shard in range(shards)], found


def materialized(paths: RunPaths, shard: int) -> list[Row]:
    text = paths.shard(shard).materialized.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def rows_of_agents(count: int) -> list[Row]:
    return [row("ab"[number % 2], "games", x=number) for number in range(count)]


def test_every_rollout_is_in_one_file_and_tasks_stay_together(tmp_path: Path) -> None:
    shards, found = write(tmp_path, rows_of_agents(5), num_repeats=3)
    assert [indices(rows) for rows in shards] == [
        [(task, rollout) for task in (0, 2, 4) for rollout in range(3)],
        [(task, rollout) for task in (1, 3) for rollout in range(3)],
    ]
    assert found.rows == found.tasks == 5
    assert found.rollouts == 15
    assert found.rollouts_by_shard == (9, 6)
    assert found.rollouts_by_server == {"a_environment": 9, "b_environment": 6}
    assert found.rollouts_by_agent == {"a": 9, "b": 6}
    assert found.warnings == ()


def test_a_shard_without_rollouts_has_an_empty_file(tmp_path: Path) -> None:
    shards, found = write(tmp_path, rows_of_agents(1), shards=3)
    assert [len(rows) for rows in shards] == [1, 0, 0]
    assert found.rollouts_by_shard == (1, 0, 0)


def test_only_the_files_of_the_plan_are_left(tmp_path: Path) -> None:
    write(tmp_path, rows_of_agents(3), interleave_repeats=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "run-0_materialized_inputs.jsonl",
        "run-1_materialized_inputs.jsonl",
    ]


def test_a_selection_is_written_beside_the_plan(tmp_path: Path) -> None:
    write(tmp_path, [row("a", task_id="x"), row("a", task_id="é")], task_ids=["é"])
    found = json.loads((tmp_path / "run_task_selection.json").read_text())
    assert found["task_ids"] == ["é"]
    assert (found["selected"], found["input_rows"]) == (1, 2)


@pytest.mark.parametrize("rows", [[*rows_of_agents(4), row("nobody")], [row("nobody"), *rows_of_agents(4)]])
def test_a_plan_with_a_problem_leaves_nothing_and_touches_nothing(tmp_path: Path, rows: list[Row]) -> None:
    earlier = tmp_path / "run-0_materialized_inputs.jsonl"
    earlier.write_text("earlier\n")
    with pytest.raises(RoutingError, match="nobody"):
        write(tmp_path, rows)
    assert list(tmp_path.iterdir()) == [earlier]
    assert earlier.read_text() == "earlier\n"


def test_an_error_while_rows_are_read_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[SourceRow]:
        yield from rows_of(rows_of_agents(3))
        raise InputError("the disk is gone")

    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    with pytest.raises(InputError, match="the disk is gone"):
        write_plan(broken(), Shaping(), deployment(), paths, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths = RunPaths.of_output(tmp_path / "file" / "run.jsonl")
    with pytest.raises(RecordingError, match="cannot be made"):
        write_plan(rows_of([]), Shaping(), deployment(), paths, 1)


def test_a_folder_that_vanishes_is_told(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "gone" / "run.jsonl")
    with PlanWriter(Shaping(), deployment(), paths, 1) as writer:
        (tmp_path / "gone").rmdir()
        with pytest.raises(RecordingError, match="cannot be written: No such file"):
            writer.publish()


def test_folders_are_made(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "a" / "b" / "run.jsonl")
    write_plan(rows_of(rows_of_agents(1)), Shaping(), deployment(), paths, 1)
    assert len(materialized(paths, 0)) == 1


def test_no_file_is_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    write(tmp_path, rows_of_agents(20), interleave_repeats=True)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Order


def test_within_each_file_repeats_are_interleaved(tmp_path: Path) -> None:
    shards, _ = write(tmp_path, rows_of_agents(4), num_repeats=2, interleave_repeats=True)
    assert [indices(rows) for rows in shards] == [[(0, 0), (2, 0), (0, 1), (2, 1)], [(1, 0), (3, 0), (1, 1), (3, 1)]]


def test_within_each_file_agents_take_turns(tmp_path: Path) -> None:
    rows = [row(name, "games", x=x) for x, name in enumerate("aaaabb")]
    (planned_rows,), _ = write(tmp_path, rows, shards=1, interleave_by_agent=True)
    assert [each["x"] for each in planned_rows] == [0, 4, 1, 5, 2, 3]


def test_shards_are_balanced_even_when_tasks_grow_late(tmp_path: Path) -> None:
    # As they stream by, tasks 0, 2 and 4 go to shard 0; then each of them has a second row
    order = [0, 1, 2, 3, 4, 5, 0, 2, 4]
    shards, found = write(tmp_path, [row("a", "games", x=x) for x in order])
    assert sorted(found.rollouts_by_shard) == [4, 5]
    assert found.rollouts_by_shard == tuple(len(rows) for rows in shards)
    owners: dict[int, set[int]] = {}
    for shard, rows in enumerate(shards):
        for each in rows:
            owners.setdefault(each["_ng_task_index"], set()).add(shard)
    assert all(len(shards_of_task) == 1 for shards_of_task in owners.values())


# The text of rows


def test_nothing_but_the_stamps_changes_in_a_row(tmp_path: Path) -> None:
    odd = (
        rb'{"z": 1.10, "responses_create_params": {"input" : "\ud83d\ude00 \ud800 \u00e9 '
        + "é\u2028".encode()
        + rb'"},'
        rb' "n":123456789012345678901234567890, "f": 1.0e+2, "neg": -0.0, "a": {"b":[ 1 ,2]}, "agent_ref":{"name":"a"}}'
    )
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    write_plan(lines_of(odd + b"\n"), Shaping(), deployment(), paths, 1)
    expected = odd[:-1] + b',"_ng_task_index":0,"_ng_rollout_index":0}\n'
    assert paths.shard(0).materialized.read_bytes() == expected


def test_changes_touch_only_what_they_change(tmp_path: Path) -> None:
    odd = (
        rb'{"z":1.10,"responses_create_params":{"input":"\ud800","top_p":0.10,"temperature":1},"_ng_task_index":  3,'
        rb'"n":123456789012345678901234567890,"agent_ref":{"name":"x"},"_ng_attempt_index":1,"w":-0.0}'
    )
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    changes = shaping(agent_name="a", responses_create_params={"temperature": 0.25}, num_repeats_add_seed=True)
    write_plan(lines_of(odd + b"\n"), changes, deployment(), paths, 1)
    assert paths.shard(0).materialized.read_bytes() == (
        rb'{"z":1.10,"responses_create_params":{"input":"\ud800","top_p":0.10,"temperature":0.25,'
        rb'"metadata":{"extra_body":"{\"seed\":0}"}},"_ng_task_index":3,'
        rb'"n":123456789012345678901234567890,"agent_ref":{"name":"a"},"w":-0.0,"_ng_rollout_index":0}' + b"\n"
    )


def test_a_raw_line_end_inside_of_a_row_does_not_break_its_line(tmp_path: Path) -> None:
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    text = b'{\r"responses_create_params":{},\r"agent_ref":{"name":"a"}}\r\n'
    write_plan(lines_of(text), Shaping(), deployment(), paths, 1)
    written = paths.shard(0).materialized.read_bytes()
    assert written.count(b"\n") == 1
    assert b"\r" not in written


def test_the_estimate_of_bytes_is_that_of_the_bodies(tmp_path: Path) -> None:
    shards, found = write(tmp_path, rows_of_agents(3), num_repeats=2)
    paths = RunPaths.of_output(tmp_path / "run.jsonl")
    assert found.body_bytes == sum(paths.shard(k).materialized.stat().st_size - len(shards[k]) for k in range(2))


def test_the_estimate_for_a_materialized_task_is_that_of_its_episode_request(tmp_path: Path) -> None:
    rows = [task("games:eval", "m-1", task_source="games", note="x" * 500)]
    ((planned_row,),), found = write(
        tmp_path, rows, shards=1, environment_server_routes={"games:eval": "a_environment"}
    )
    body = {
        "episode_id": {"rollout_id": "0-0", "attempt": 0},
        "task": {"task_id": planned_row["task_id"], "task_input": planned_row["task_input"]},
    }
    assert found.body_bytes == len(json.dumps(body, separators=(",", ":")))


def test_rows_of_a_file_are_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"responses_create_params":{},"agent_ref":{"name":"a"}}\nnot json\n')
    with pytest.raises(InputError, match=rf"{tmp_path}/in\.jsonl:2: expected JSON"):
        write_plan(
            read_rows(tmp_path / "in.jsonl"), Shaping(), deployment(), RunPaths.of_output(tmp_path / "out/run.jsonl"), 1
        )


# Laws of whole plans

ROWS = st.lists(
    st.builds(
        lambda agent, x, index: row(agent, "games", x=x, **({} if index is None else {"_ng_task_index": index})),
        st.sampled_from("ab"),
        st.integers(0, 5),
        st.none() | st.none() | st.integers(100, 104),
    ),
    max_size=25,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "num_repeats": st.integers(1, 4) | st.fixed_dictionaries({"a": st.integers(1, 4), "b": st.integers(1, 4)}),
        "fan_out": st.just({"a": ["a", "b"]}),
        "agent_map": st.just({"b": "a"}),
        "interleave_repeats": st.booleans(),
        "interleave_by_agent": st.booleans(),
        "num_repeats_add_seed": st.booleans(),
    },
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, fields=SETTINGS, shards=st.integers(1, 5))
def test_laws_of_a_plan(tmp_path_factory: pytest.TempPathFactory, rows: list[Row], fields: Row, shards: int) -> None:
    tmp_path = tmp_path_factory.mktemp("plan")
    files, found = write(tmp_path, rows, shards, **fields)
    everything = [each for file in files for each in file]

    # Every rollout once, and each task's rollouts are 0 .. n - 1
    keys = indices(everything)
    assert len(set(keys)) == len(keys) == found.rollouts == sum(found.rollouts_by_shard)
    sizes: dict[int, int] = {}
    for task_index, _ in keys:
        sizes[task_index] = sizes.get(task_index, 0) + 1
    assert set(keys) == {(task_index, number) for task_index, size in sizes.items() for number in range(size)}
    assert len(sizes) == found.tasks

    # As many copies of a row as its targets are repeated
    targets = {
        name: fields.get("fan_out", {}).get(name, [fields.get("agent_map", {}).get(name, name)]) for name in "ab"
    }
    repeats = fields.get("num_repeats", 1)
    expected = sum(
        repeats if isinstance(repeats, int) else repeats[target]
        for each in rows
        for target in targets[each["agent_ref"]["name"]]
    )
    assert found.rollouts == expected

    # A task has one shard, and shards differ by at most one task
    owners = {(each["_ng_task_index"], shard) for shard, file in enumerate(files) for each in file}
    assert len(owners) == len(sizes)
    assert max(found.rollouts_by_shard) - min(found.rollouts_by_shard) <= max(sizes.values(), default=0)
    assert sum(found.rollouts_by_agent.values()) == sum(found.rollouts_by_server.values()) == found.rollouts

    # Order within a file
    if not fields.get("interleave_by_agent"):
        for file in files:
            numbers = [each["_ng_rollout_index"] for each in file]
            if fields.get("interleave_repeats"):
                assert numbers == sorted(numbers)
            else:
                for task_index in sizes:
                    own = [each["_ng_rollout_index"] for each in file if each["_ng_task_index"] == task_index]
                    assert own == sorted(own)

    # The same plan again
    paths = RunPaths.of_output(tmp_path / "run")
    before = [paths.shard(shard).materialized.read_bytes() for shard in range(shards)]
    write(tmp_path, rows, shards, **fields)
    assert [paths.shard(shard).materialized.read_bytes() for shard in range(shards)] == before

    # The plan of a file of the plan. Turns of agents may change which rollout of a task comes first, so its number too
    if not fields.get("interleave_by_agent"):
        again = RunPaths.of_output(tmp_path / "again")
        for shard in range(shards):
            write_plan(read_rows(paths.shard(shard).materialized), Shaping(), deployment(), again, 1)
            assert again.shard(0).materialized.read_bytes() == before[shard]


@given(x=st.lists(st.integers(), max_size=5))
def test_materialized_lines_are_read_as_identities(x: list[int]) -> None:
    lines, _ = plan_rows(rows_of([row("a", x=each) for each in x]), Shaping(), deployment())
    identities = [read_identity(line) for line in lines]
    assert all(identity.agent_name == "a" and identity.attempt_index == 0 for identity in identities)
    assert [identity.own_id for identity in identities] == [
        f"{each.task_index}-{each.rollout_index}" for each in identities
    ]

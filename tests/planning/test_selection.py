"""Which tasks run: protocol §5.7; patterns and samples are ours."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.errors import ConfigError, InputError
from gym_ray.planning.patterns import Patterns
from gym_ray.planning.sampling import Sample
from gym_ray.planning.task_names import TaskName, task_name
from tests.planning.planned import Row, plan, planned, row, summary, task

ROUTES = {"games:eval": "a_environment", "puzzles:eval": "solo_environment"}


def names(rows: list[Row]) -> list[Any]:
    return [each["task_id"] for each in rows]


def tasks(*ids: Any) -> list[Row]:
    return [row("a", "games", task_id=each) for each in ids]


# Names


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"task_id": "t", "problem_id": "p", "instance_id": "i"}, ("t", "t")),
        ({"task_id": None, "problem_id": "p", "instance_id": "i"}, ("p", "p")),
        ({"instance_id": 7}, ("7", "7")),
        ({"task_id": {"taskset": "s", "task_id": "m"}, "task_input": {}}, ("m", "s/m")),
        ({"task_id": {"task_id": "m"}}, ("m", "m")),
        ({"task_id": {}}, None),
        ({"uuid": "u"}, None),
    ],
)
def test_a_task_is_named_by_the_first_id_that_its_row_has(fields: Row, name: tuple[str, str] | None) -> None:
    assert task_name(fields) == (None if name is None else TaskName(*name))


# By id


def test_only_the_named_tasks_run_in_the_order_of_the_input() -> None:
    assert names(plan(tasks("c", "b", "a"), task_ids=["a", "c"])) == ["c", "a"]


def test_a_selected_task_runs_once_before_it_is_repeated() -> None:
    rows = plan([*tasks("a", "b", "a"), *tasks("a")], task_ids=["a"], num_repeats=2)
    assert names(rows) == ["a", "a"]


def test_rows_that_differ_only_in_stamps_are_the_same_task() -> None:
    first, second = tasks("a")[0], {**tasks("a")[0], "_ng_task_index": 4, "_ng_rollout_index": 1}
    assert len(plan([first, second], task_ids=["a"])) == 1


def test_an_id_of_two_rows_with_different_content_is_refused() -> None:
    rows = [*tasks("a"), {**tasks("a")[0], "answer": 2}]
    with pytest.raises(InputError, match=r"the id 'a' is also that of an earlier row with other content: rows\[1\]"):
        plan(rows, task_ids=["a"])
    assert len(plan(rows)) == 2


def test_every_id_that_no_row_has_is_told_with_a_suggestion() -> None:
    with pytest.raises(InputError) as caught:
        plan(tasks("maze-1", "maze-2"), task_ids=["maze-1", "mase-2", "zzz"])
    assert "2 tasks are asked for, but not in the input:" in str(caught.value)
    assert "task_ids: no row has the id 'mase-2': did you mean 'maze-2'?" in str(caught.value)
    assert "no row has the id 'zzz'" in str(caught.value)


def test_a_row_without_an_id_is_refused_when_tasks_are_named() -> None:
    choices: list[Row] = [{"task_ids": ["a"]}, {"task_id": ["*"]}, {"exclude_task_id": ["a"]}]
    for settings in choices:
        with pytest.raises(InputError, match=r"no task_id, problem_id or instance_id to select the row by: rows\[1\]"):
            plan([*tasks("a"), row("a")], **settings)


def test_a_materialized_task_is_named_with_or_without_its_taskset() -> None:
    rows = [task("games:eval", "m-1"), task("puzzles:eval", "m-1"), task("games:eval", "m-2")]
    assert len(plan(rows, task_ids=["games:eval/m-1"], environment_server_routes=ROUTES)) == 1
    assert len(plan(rows, task_ids=["m-2"], environment_server_routes=ROUTES)) == 1
    assert len(plan(rows, task_ids=["games:eval/m-1", "puzzles:eval/m-1"], environment_server_routes=ROUTES)) == 2


def test_a_task_may_be_named_both_ways_at_once() -> None:
    rows = [task("games:eval", "m-1"), task("games:eval", "m-1")]
    found = summary(rows, task_ids=["m-1", "games:eval/m-1"], environment_server_routes=ROUTES)
    assert found.rollouts == 1
    assert (found.selection or {})["task_ids"] == ["games:eval/m-1"]


def test_an_id_of_tasks_in_two_tasksets_is_refused() -> None:
    rows = [task("games:eval", "m-1"), task("puzzles:eval", "m-1")]
    with pytest.raises(InputError, match="'m-1' is also that of games:eval/m-1: ask for puzzles:eval/m-1"):
        plan(rows, task_ids=["m-1"], environment_server_routes=ROUTES)


def test_numbers_and_truth_values_from_a_command_line_are_ids() -> None:
    assert names(plan(tasks(17, "true", "x"), task_ids=[17, True])) == [17, "true"]


def test_fractions_are_no_ids() -> None:
    with pytest.raises(ValueError, match="task_ids"):
        plan(tasks("1.5"), task_ids=[1.5])


def test_ids_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("# the hard ones\na\n\n  c  \r\n#b\n")
    assert names(plan(tasks("a", "b", "c"), task_ids_fpath=str(tmp_path / "ids.txt"))) == ["a", "c"]


def test_a_file_of_ids_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("# none\n")
    for name in ("ids.txt", "nowhere.txt"):
        with pytest.raises(ConfigError, match=rf"task_ids_fpath: .*{name}"):
            plan(tasks("a"), task_ids_fpath=str(tmp_path / name))


def test_both_ways_to_name_ids_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="task_ids and task_ids_fpath"):
        plan(tasks("a"), task_ids=["a"], task_ids_fpath="x")


def test_rows_that_are_not_selected_need_no_route() -> None:
    assert names(plan([row("nobody", task_id="x"), *tasks("a")], task_ids=["a"])) == ["a"]


def test_tasks_are_selected_within_the_limit() -> None:
    with pytest.raises(InputError, match="no row has the id 'b'"):
        plan(tasks("a", "b"), task_ids=["b"], limit=1)


# The record


def test_a_selection_is_recorded_with_the_digest_of_its_ids() -> None:
    found = summary(tasks("m-2", "x", "m-1", "m-2"), task_ids=["m-1", "m-2"])
    assert found.selection == {
        "source": "task_ids",
        "selected": 2,
        "input_rows": 4,
        "task_ids": ["m-1", "m-2"],
        "digest": hashlib.sha256(b"m-1\nm-2\n").hexdigest(),
    }


def test_the_record_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("a")
    assert (summary(tasks("a"), task_ids_fpath=str(tmp_path / "ids")).selection or {})["source"] == "task_ids_fpath"
    assert (summary(tasks("a"), task_id=["*"]).selection or {})["source"] == "task_id"


def test_a_run_of_everything_has_no_record() -> None:
    assert summary(tasks("a")).selection is None
    assert summary(tasks("a", "b"), exclude_task_id=["b"]).selection is None


# By pattern


def test_patterns_select_and_exclude() -> None:
    rows = tasks("maze-1", "maze-2", "chess-1", "maze-10")
    assert names(plan(rows, task_id=["maze-*"])) == ["maze-1", "maze-2", "maze-10"]
    assert names(plan(rows, task_id=["maze-?", "chess-[0-9]"])) == ["maze-1", "maze-2", "chess-1"]
    assert names(plan(rows, exclude_task_id=["maze-1*"])) == ["maze-2", "chess-1"]
    assert names(plan(rows, task_id=["maze-*"], exclude_task_id=["*-2"])) == ["maze-1", "maze-10"]


def test_patterns_narrow_the_named_tasks() -> None:
    assert names(plan(tasks("a1", "a2", "b1"), task_ids=["a1", "a2"], task_id=["*1"], exclude_task_id=["b*"])) == ["a1"]


def test_a_pattern_that_selects_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"task_id: no row has an id like 'mase-\*'"):
        plan(tasks("maze-1"), task_id=["maze-*", "mase-*"])


def test_a_pattern_that_excludes_nothing_is_a_warning() -> None:
    found = summary(tasks("a"), exclude_task_id=["b", "c*"])
    assert found.warnings == ("exclude_task_id: no row has an id like 'b', 'c*'",)


def test_excluding_everything_is_a_warning() -> None:
    found = summary(tasks("a"), exclude_task_id=["*"])
    assert found.warnings == ("no row of the input is selected: nothing will run",)


def test_every_pattern_that_matches_is_credited() -> None:
    patterns = Patterns(["a*", "*1", "a1", "b"])
    assert patterns.match(TaskName("a1", "a1"))
    assert patterns.unmatched == ["b"]
    assert not patterns.match(TaskName("A1x", "A1x"))


# By sample


def sampled(rows: list[Row], **settings: Any) -> list[Any]:
    return names(plan(rows, **settings))


MANY = tasks(*(f"t{number}" for number in range(100)))


def test_a_sample_has_the_size_asked_for_and_the_order_of_the_input() -> None:
    drawn = sampled(MANY, sample=10)
    assert len(drawn) == 10
    assert drawn == [each["task_id"] for each in MANY if each["task_id"] in drawn]


def test_the_seed_decides_the_sample() -> None:
    assert sampled(MANY, sample=10, seed=1) == sampled(MANY, sample=10, seed=1)
    assert sampled(MANY, sample=10, seed=1) != sampled(MANY, sample=10, seed=2)


def test_a_sample_does_not_depend_on_the_order_of_the_input() -> None:
    assert set(sampled(MANY, sample=10)) == set(sampled(MANY[::-1], sample=10))


def test_a_larger_sample_contains_the_smaller_one() -> None:
    assert set(sampled(MANY, sample=10)) < set(sampled(MANY, sample=20))


def test_all_rows_of_a_drawn_task_are_in_the_sample() -> None:
    rows, found = planned([row("a", x=number % 50) for number in range(100)], sample=7)
    assert (len(rows), found.tasks) == (14, 7)


def test_a_sample_is_drawn_from_the_tasks_that_other_settings_leave() -> None:
    drawn = sampled(MANY, sample=5, task_id=["t1*"], limit=50)
    assert len(drawn) == 5
    assert all(each.startswith("t1") for each in drawn)


def test_a_sample_larger_than_the_input_is_all_of_it_with_a_warning() -> None:
    found = summary(tasks("a", "b"), sample=5)
    assert found.rollouts == 2
    assert found.warnings == ("sample: 5 tasks were asked for, the input has only 2",)


def test_a_sample_is_recorded() -> None:
    found = summary(MANY, sample=2, seed=3)
    assert found.selection is not None
    assert {
        "source": "sample",
        "selected": 2,
        "input_rows": 100,
        "sample": 2,
        "seed": 3,
    }.items() <= found.selection.items()
    assert len(found.selection["task_ids"]) == 2


def test_tasks_without_an_id_can_be_drawn() -> None:
    found = summary([row("a", x=number) for number in range(9)], sample=3)
    assert found.rollouts == 3


def test_faulty_rows_are_told_when_a_sample_is_drawn_too() -> None:
    with pytest.raises(InputError, match="_ng_task_index"):
        plan([*tasks("a"), row("a", _ng_task_index="x")], sample=1)


@given(keys=st.lists(st.integers(0, 50), max_size=60), size=st.integers(1, 20))
def test_the_cut_of_a_sample_is_the_highest_of_its_lowest_keys(keys: list[int], size: int) -> None:
    sample = Sample(size)
    for key in keys:
        sample.add(key)
    lowest = sorted(set(keys))[:size]
    assert len(sample) == len(lowest)
    assert sample.cut == (lowest[-1] if lowest else -1)

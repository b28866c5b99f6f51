"""What is written into rows: protocol §5.5 (seeds), §5.8 (prompts), §5.9 (skills), §5.10 (overrides)."""

import json
from pathlib import Path
from typing import Any

import pytest

from gym_ray.errors import InputError
from tests.planning.planned import Row, plan, row, task

ROUTES = {"games:eval": "a_environment"}


def prompt_file(tmp_path: Path, text: str = "user: '{question}'\nsystem: Be kind.\n") -> str:
    (tmp_path / "prompt.yaml").write_text(text)
    return str(tmp_path / "prompt.yaml")


def skills_folder(tmp_path: Path) -> str:
    (tmp_path / "skills" / "one").mkdir(parents=True)
    (tmp_path / "skills" / "one" / "SKILL.md").write_text("---\nname: one\n---\n")
    return str(tmp_path / "skills")


def extra_bodies(rows: list[Row]) -> list[Any]:
    return [json.loads(each["responses_create_params"]["metadata"]["extra_body"]) for each in rows]


# Seeds


def test_every_rollout_gets_its_index_as_seed() -> None:
    assert extra_bodies(plan([row("a"), row("b")], num_repeats=2, num_repeats_add_seed=True)) == [
        {"seed": 0},
        {"seed": 1},
        {"seed": 0},
        {"seed": 1},
    ]


def test_a_single_repeat_gets_a_seed_too() -> None:
    assert extra_bodies(plan([row("a")], num_repeats_add_seed=True)) == [{"seed": 0}]


def test_a_seed_is_added_to_what_the_row_has() -> None:
    params = {"input": [], "metadata": {"user": "u", "extra_body": '{"top_k": 5, "seed": 99}'}, "temperature": 1.0}
    (planned_row,) = plan([row("a", responses_create_params=params)], num_repeats_add_seed=True)
    assert planned_row["responses_create_params"] == {
        **params,
        "metadata": {"user": "u", "extra_body": '{"top_k":5,"seed":0}'},
    }


@pytest.mark.parametrize("metadata", [None, {}, {"extra_body": None}])
def test_missing_metadata_is_made_for_the_seed(metadata: Any) -> None:
    rows = plan([row("a", responses_create_params={"metadata": metadata})], num_repeats_add_seed=True)
    assert extra_bodies(rows) == [{"seed": 0}]


@pytest.mark.parametrize("metadata", [5, [], {"extra_body": "[1]"}, {"extra_body": "text"}, {"extra_body": {"a": 1}}])
def test_metadata_that_cannot_take_a_seed_is_refused(metadata: Any) -> None:
    with pytest.raises(InputError, match=r"cannot take a seed:\n.*metadata.*: rows\[1\]"):
        plan([row("a"), row("a", responses_create_params={"metadata": metadata})], num_repeats_add_seed=True)


# Overrides


def test_overrides_replace_top_level_parameters_and_keep_the_rest() -> None:
    params = {"input": "x", "temperature": 0.5, "reasoning": {"effort": "low", "summary": "auto"}}
    rows = plan(
        [row("a", responses_create_params=params)],
        responses_create_params={"temperature": 1, "reasoning": {"effort": "high"}, "top_p": 0.9},
    )
    assert rows[0]["responses_create_params"] == {
        "input": "x",
        "temperature": 1,
        "reasoning": {"effort": "high"},
        "top_p": 0.9,
    }


@pytest.mark.parametrize(("params", "message"), [({}, "missing"), ({"responses_create_params": [1]}, "not an object")])
def test_a_flat_row_without_parameters_is_refused(params: Row, message: str) -> None:
    with pytest.raises(InputError, match=rf"no responses_create_params.*\n  {message}: rows\[0\]"):
        plan([{"agent_ref": {"name": "a"}, **params}])


# Prompts


def test_a_prompt_becomes_the_input_of_rows_without_one(tmp_path: Path) -> None:
    params: Row = {"temperature": 0.5, "input": []}
    rows = plan([row("a", question="Why?", responses_create_params=params)], prompt_config=prompt_file(tmp_path))
    assert rows[0]["responses_create_params"] == {
        "temperature": 0.5,
        "input": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}],
    }
    assert rows[0]["question"] == "Why?"


@pytest.mark.parametrize("params", [{}, {"responses_create_params": None}, {"responses_create_params": "x"}])
def test_parameters_that_are_missing_or_no_object_are_made_for_the_prompt(tmp_path: Path, params: Row) -> None:
    rows = plan(
        [{"agent_ref": {"name": "a"}, "question": "q", **params}],
        prompt_config=prompt_file(tmp_path, "user: '{question}'"),
    )
    assert rows[0]["responses_create_params"] == {"input": [{"role": "user", "content": "q"}]}


def test_overrides_come_after_the_prompt(tmp_path: Path) -> None:
    rows = plan(
        [row("a", question="q")], prompt_config=prompt_file(tmp_path), responses_create_params={"input": "mine"}
    )
    assert rows[0]["responses_create_params"]["input"] == "mine"


def test_all_rows_that_have_an_input_already_are_refused(tmp_path: Path) -> None:
    full = row("a", question="q", responses_create_params={"input": "x"})
    with pytest.raises(
        InputError, match=r"2 rows cannot take the prompt:\n.*is not empty: rows\[1-3\]|rows\[1\], rows\[3\]"
    ):
        plan([row("a", question="q"), full, row("a", question="q"), full], prompt_config=prompt_file(tmp_path))


def test_all_rows_that_lack_a_field_of_the_prompt_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"asks for the field 'question', which the row does not have: rows\[1\]"):
        plan([row("a", question="q"), row("a")], prompt_config=prompt_file(tmp_path))


def test_tasks_are_told_apart_by_the_text_before_the_prompt(tmp_path: Path) -> None:
    rows = plan([row("a", question="q", x=1), row("a", question="q", x=2)], prompt_config=prompt_file(tmp_path))
    assert [each["_ng_task_index"] for each in rows] == [0, 1]


# Skills


def test_every_flat_row_is_stamped_with_the_skills(tmp_path: Path) -> None:
    folder = skills_folder(tmp_path)
    rows = plan([row("a"), row("b", skills_ref={"old": True})], skills={"path": folder})
    assert [each["skills_ref"]["path"] for each in rows] == [folder, folder]
    assert rows[0]["skills_ref"]["skills"] == [{"name": "one", "description": None, "version": None}]


# Materialized rows


def test_settings_that_a_materialized_row_cannot_take_are_refused_one_by_one(tmp_path: Path) -> None:
    settings: Row = {
        "responses_create_params": {"temperature": 1},
        "skills": {"path": skills_folder(tmp_path)},
        "num_repeats_add_seed": True,
        "prompt_config": prompt_file(tmp_path, "user: x"),
    }
    for name, value in settings.items():
        with pytest.raises(InputError, match=rf"is materialized and cannot take this setting:\n  {name}: rows\[0\]"):
            plan([task("games:eval", "m-1")], environment_server_routes=ROUTES, **{name: value})
    with pytest.raises(InputError) as caught:
        plan([task("games:eval", "m-1")], environment_server_routes=ROUTES, **settings)
    assert all(f"  {name}: rows[0]" in str(caught.value) for name in settings)

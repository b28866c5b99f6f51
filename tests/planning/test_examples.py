"""The functions for rows that a program dispatches itself: protocol §5.6 (1), §5.12."""

import copy
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from omegaconf import OmegaConf

from gym_ray.errors import InputError, RoutingError
from gym_ray.planning.examples import preprocess_examples, resolve_task_sources
from tests.planning.planned import PARAMS, WORLD, Row, agents, indices, row, task


def test_the_worked_example() -> None:
    example = {"task_source": "rs", "x": 1, **PARAMS}
    rows = preprocess_examples([example], fan_out={"rs": ["a", "b"]}, num_repeats={"a": 2, "_default": 1})
    assert list(zip(agents(rows), indices(rows), strict=True)) == [("a", (0, 0)), ("a", (0, 1)), ("b", (0, 2))]


def test_rows_become_new_and_independent_copies() -> None:
    examples = [row("a", nested={"list": [1]}), row("b")]
    before = copy.deepcopy(examples)
    rows = preprocess_examples(examples, num_repeats=2, num_repeats_add_seed=True, agent_map={"b": "a"})
    rows[0]["nested"]["list"].append(2)
    rows[0]["responses_create_params"]["input"].append("x")
    assert examples == before
    assert rows[1]["nested"] == {"list": [1]}
    assert rows[1]["responses_create_params"]["input"] == []


def test_without_a_config_sources_stay_for_later() -> None:
    assert agents(preprocess_examples([row(source="puzzles")])) == [None]


def test_with_a_config_sources_are_resolved() -> None:
    assert agents(preprocess_examples([row(source="puzzles")], global_config_dict=WORLD)) == ["solo"]
    assert agents(preprocess_examples([row(source="puzzles")], global_config_dict=OmegaConf.create(WORLD))) == ["solo"]


def test_agents_are_not_checked_against_the_config_here() -> None:
    assert agents(preprocess_examples([row("nobody")], global_config_dict=WORLD)) == ["nobody"]


def test_materialized_rows_are_routed_by_the_config() -> None:
    config = {**WORLD, "environment_server_routes": {"games:eval": "a_environment"}}
    (found,) = preprocess_examples([task("games:eval", "m")], global_config_dict=config)
    assert found["_ng_environment_server"] == "a_environment"
    assert "agent_ref" not in found
    with pytest.raises(RoutingError, match="games:eval"):
        preprocess_examples([task("games:eval", "m")])


def test_tasks_can_be_selected() -> None:
    examples = [row("a", task_id=name) for name in ("x", "y", "x")]
    rows = preprocess_examples(examples, task_ids=["x"], num_repeats=2)
    assert [each["task_id"] for each in rows] == ["x", "x"]
    with pytest.raises(InputError, match="no row has the id 'z'"):
        preprocess_examples(examples, task_ids=["z"])


def test_any_iterable_of_mappings_is_taken() -> None:
    assert len(preprocess_examples(row("a", x=number) for number in range(3))) == 3
    assert preprocess_examples([]) == []


@pytest.mark.parametrize(
    "arguments", [{"num_repeats": 0}, {"num_repeats": {"a": 0}}, {"fan_out": {"a": []}}, {"fan_out": {"a": ["b", "b"]}}]
)
def test_arguments_follow_the_rules_of_the_settings(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        preprocess_examples([row("a")], **arguments)


def test_odd_values_survive() -> None:
    example = {**row("a"), "n": 10**30, "s": "\ud800", "f": 0.1}
    assert preprocess_examples([example])[0] == {**example, "_ng_task_index": 0, "_ng_rollout_index": 0}


def test_attempt_numbers_stay() -> None:
    assert preprocess_examples([row("a", _ng_attempt_index=2)])[0]["_ng_attempt_index"] == 2


def test_what_it_would_warn_of_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gym_ray.planning"):
        preprocess_examples([row("a", "games")], num_repeats={"a": 1, "c": 2})
    assert "no row has the agent or source 'c'" in caplog.text


# Sources


def test_only_rows_with_nothing_but_a_source_are_stamped() -> None:
    rows: list[Row] = [
        row(source="puzzles"),
        {**PARAMS, "agent_ref": {"name": "a", "type": "t"}, "task_source": "unknown"},
        {**PARAMS},
        {**row(source="games"), "_ng_environment_server": "a_environment"},
    ]
    before = copy.deepcopy(rows)
    assert resolve_task_sources(rows, WORLD) is rows
    assert rows[0] == {**before[0], "agent_ref": {"name": "solo"}}
    assert rows[1:] == before[1:]


def test_resolved_rows_are_not_touched_again() -> None:
    rows = preprocess_examples([row(source="puzzles"), row("a", "games")], global_config_dict=WORLD)
    before = copy.deepcopy(rows)
    resolve_task_sources(rows, WORLD)
    assert rows == before


def test_all_sources_that_lead_nowhere_are_told_and_nothing_is_stamped() -> None:
    rows = [row(source="puzzles"), row(source="puzzlse"), row(source="games"), row(source="puzzlse")]
    before = copy.deepcopy(rows)
    with pytest.raises(RoutingError) as caught:
        resolve_task_sources(rows, WORLD)
    assert "3 rows name a task_source that leads to no agent" in str(caught.value)
    assert "did you mean 'puzzles'?: rows[1], rows[3] (2 rows)" in str(caught.value)
    assert "task_source 'games': 2 agents use it (a, b)" in str(caught.value)
    assert rows == before


def test_rows_with_an_agent_and_no_source_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gym_ray.planning"):
        resolve_task_sources([row("a"), row("b"), row("a", "games")], WORLD)
    assert [record.getMessage() for record in caplog.records] == [
        "2 rows name an agent but no task_source, which NeMo Gym deprecates"
    ]


def test_neither_ray_nor_pyarrow_is_loaded_for_rows_in_memory() -> None:
    code = (
        "import sys, json; from gym_ray.planning.examples import preprocess_examples;"
        f"rows = preprocess_examples([json.loads({json.dumps(json.dumps(row('a')))})]); assert len(rows) == 1;"
        "assert not {'ray', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stderr
        == ""
    )

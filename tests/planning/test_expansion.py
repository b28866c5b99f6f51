"""Which task a row is, and how many rollouts become of it: protocol §5.4, §5.5, §5.13."""

import json
from typing import Any

import pytest

from gym_ray.errors import ConfigError, InputError
from gym_ray.planning.in_memory import plan_rows
from tests.deployment.configs import agent, environment_server, resources_server
from tests.planning.planned import agents, deployment, indices, lines_of, plan, row, shaping, summary, task

LINE = b'{"responses_create_params":{},"agent_ref":{"name":"a"},"n":%d}'


def indices_of_lines(text: bytes, **settings: Any) -> list[tuple[int, int]]:
    lines, _ = plan_rows(lines_of(text), shaping(**settings), deployment())
    return indices(map(json.loads, lines))


def test_the_worked_example() -> None:
    world = deployment(
        {
            "a": agent("rs"),
            "b": agent("rs"),
            "a_environment": environment_server("a", "rs"),
            "b_environment": environment_server("b", "rs"),
            "rs": resources_server(),
        }
    )
    rows = plan([row(source="rs", x=1)], world, fan_out={"rs": ["a", "b"]}, num_repeats={"a": 2, "_default": 1})
    assert list(zip(agents(rows), indices(rows), strict=True)) == [("a", (0, 0)), ("a", (0, 1)), ("b", (0, 2))]


# Task indices


def test_equal_lines_are_one_task_and_others_count_up_in_order_of_first_sight() -> None:
    text = b"\n".join([LINE % 5, LINE % 3, LINE % 5, LINE % 4, LINE % 3, b""])
    assert indices_of_lines(text) == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1)]


def test_a_last_line_without_its_end_is_another_text() -> None:
    assert indices_of_lines(LINE % 1 + b"\n" + LINE % 1) == [(0, 0), (1, 0)]
    assert indices_of_lines(LINE % 1 + b"\n" + LINE % 1 + b"\n") == [(0, 0), (0, 1)]


def test_the_kind_of_line_end_does_not_tell_tasks_apart() -> None:
    assert indices_of_lines(LINE % 1 + b"\r\n" + LINE % 1 + b"\n") == [(0, 0), (0, 1)]


def test_white_space_in_a_line_tells_tasks_apart() -> None:
    assert indices_of_lines(LINE % 1 + b"\n" + LINE % 1 + b" \n") == [(0, 0), (1, 0)]


def test_rows_in_memory_are_one_task_whatever_the_order_of_their_keys() -> None:
    first = row("a", x=1)
    second = dict(reversed(first.items()))
    assert indices(plan([first, second, row("a", x=2)])) == [(0, 0), (0, 1), (1, 0)]


def test_an_index_that_a_row_brings_is_kept() -> None:
    rows = [row("a", _ng_task_index=7, x=1), row("a", x=2), row("a", _ng_task_index=7, x=3)]
    assert indices(plan(rows)) == [(7, 0), (0, 0), (7, 1)]


def test_brought_and_given_indices_can_collide_and_then_count_as_one_task() -> None:
    found = summary([row("a", x=1), row("a", _ng_task_index=0, x=2)])
    assert (found.tasks, found.rollouts) == (1, 2)
    assert any("count as one task" in warning for warning in found.warnings)
    assert indices(plan([row("a", x=1), row("a", _ng_task_index=0, x=2)])) == [(0, 0), (0, 1)]


def test_rows_that_all_bring_their_index_do_not_collide() -> None:
    found = summary([row("a", "games", _ng_task_index=index) for index in (5, 0, 5)])
    assert (found.tasks, found.rollouts, found.warnings) == (2, 3, ())


@pytest.mark.parametrize("index", [-1, True, "3", 1.0, [], 2**63])
def test_an_index_that_is_none_is_refused(index: Any) -> None:
    with pytest.raises(InputError, match="_ng_task_index: expected an integer from 0"):
        plan([row("a", _ng_task_index=index)])


def test_a_null_index_is_none() -> None:
    assert indices(plan([row("a", _ng_task_index=None)])) == [(0, 0)]


def test_a_rollout_index_that_a_row_brings_is_replaced() -> None:
    assert indices(plan([row("a", _ng_task_index=3, _ng_rollout_index=9)])) == [(3, 0)]


# Repeats


def test_all_repeats_of_a_target_come_before_the_next_target() -> None:
    rows = plan([row("a", x=1), row("b", x=2)], fan_out={"a": ["a", "b"]}, num_repeats=2)
    assert agents(rows) == ["a", "a", "b", "b", "b", "b"]
    assert indices(rows) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_identical_rows_and_repeats_draw_from_one_counter() -> None:
    assert indices(plan([row("a"), row("a")], num_repeats=2)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_repeats_are_looked_up_by_the_target_then_by_the_basis_then_by_the_default() -> None:
    repeats = {"b": 2, "games": 3, "_default": 1}
    settings: dict[str, Any] = {"num_repeats": repeats, "agent_map": {"games": "b"}}
    assert agents(plan([row(source="games")], **settings)) == ["b"] * 2
    settings["agent_map"] = {"games": "a"}
    assert agents(plan([row(source="games")], **settings)) == ["a"] * 3
    assert agents(plan([row("solo")], num_repeats=repeats)) == ["solo"]


def test_the_basis_is_the_agent_before_the_map() -> None:
    assert len(plan([row("a")], agent_map={"a": "b"}, num_repeats={"a": 3, "_default": 1})) == 3


def test_a_row_of_a_source_is_repeated_by_its_source_not_by_the_agent_found_later() -> None:
    assert len(plan([row(source="puzzles")], num_repeats={"solo": 5, "puzzles": 2})) == 2


def test_a_bound_row_is_repeated_by_its_source_else_by_its_server() -> None:
    settings: dict[str, Any] = {"environment_routing_mode": "legacy", "environment_server_name": "a_environment"}
    assert len(plan([row("a", "games")], num_repeats={"games": 2, "a_environment": 3, "a": 4}, **settings)) == 2
    assert len(plan([row("a")], num_repeats={"a_environment": 3, "a": 4}, **settings)) == 3


def test_a_materialized_row_is_repeated_by_its_taskset() -> None:
    routes = {"games:eval": "a_environment"}
    rows = plan(
        [task("games:eval", "m-1", task_source="games")],
        environment_server_routes=routes,
        num_repeats={"games:eval": 2, "games": 3},
    )
    assert indices(rows) == [(0, 0), (0, 1)]


def test_every_name_without_repeats_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        plan([row("a"), row("b"), row("solo"), row("a")], num_repeats={"solo": 1})
    assert "3 rows have no entry in num_repeats" in str(caught.value)
    assert "'a': rows[0], rows[3] (2 rows)" in str(caught.value)
    assert "'b': rows[1]" in str(caught.value)


def test_repeats_for_names_that_no_row_has_are_only_a_warning() -> None:
    found = summary([row("a", "games")], num_repeats={"a": 1, "c": 2, "_default": 3})
    assert found.warnings == ("num_repeats: no row has the agent or source 'c'",)


@pytest.mark.parametrize("repeats", [0, -1, {"a": 0}, {"_default": -2}])
def test_fewer_repeats_than_one_are_refused(repeats: Any) -> None:
    with pytest.raises(ValueError, match="num_repeats must be at least 1"):
        plan([row("a")], num_repeats=repeats)


def test_null_repeats_are_one() -> None:
    assert len(plan([row("a")], num_repeats=None)) == 1


@pytest.mark.parametrize("fan_out", [{"a": []}, {"a": ["b", "b"]}])
def test_a_fan_out_without_agents_or_with_one_twice_is_refused(fan_out: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match=r"fan_out\.a must list at least one agent, each once"):
        plan([row("a")], fan_out=fan_out)


# Limit


@pytest.mark.parametrize(("limit", "rows"), [(None, 5), (0, 5), (2, 2), (9, 5)])
def test_the_limit_counts_input_rows(limit: int | None, rows: int) -> None:
    found = summary([row("a", "games", x=x) for x in range(5)], limit=limit, num_repeats=3)
    assert (found.rows, found.rollouts) == (rows, 3 * rows)


def test_a_row_beyond_the_limit_is_not_looked_at() -> None:
    assert len(plan([row("a"), row("nobody")], limit=1)) == 1


def test_an_empty_input_is_planned_with_a_warning() -> None:
    assert summary([]).warnings == ("the input has no rows: nothing will run",)

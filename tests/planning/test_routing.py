"""Where rows go: protocol §5.3, §5.6."""

from typing import Any

import pytest

from gym_ray.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    RoutingError,
)
from tests.deployment.configs import agent, environment_server, resources_server
from tests.planning.planned import PARAMS, WORLD, Row, agents, deployment, plan, planned, row, summary, task

ROUTES = {"games:eval": "a_environment", "puzzles:eval": "solo_environment"}


# Agents


def test_a_row_runs_on_its_own_agent_and_keeps_its_reference_as_it_is() -> None:
    reference = {"type": "responses_api_agents", "name": "a", "extra": 1}
    (planned_row,) = plan([{**PARAMS, "agent_ref": reference}])
    assert planned_row["agent_ref"] == reference
    assert "_ng_environment_server" not in planned_row


@pytest.mark.parametrize(
    ("agent_map", "expected"),
    [
        ({"a": "b", "games": "solo", "_default": "solo"}, "b"),
        ({"games": "b", "_default": "solo"}, "b"),
        ({"_default": "b"}, "b"),
        ({"other": "b"}, "a"),
        ({}, "a"),
    ],
)
def test_a_map_is_searched_for_the_agent_then_the_source_then_the_default(
    agent_map: dict[str, str], expected: str
) -> None:
    assert agents(plan([row("a", "games")], agent_map=agent_map)) == [expected]


def test_a_mapped_agent_leaves_nothing_of_the_old_reference() -> None:
    (planned_row,) = plan([{**PARAMS, "agent_ref": {"name": "a", "type": "t"}}], agent_map={"a": "b"})
    assert planned_row["agent_ref"] == {"name": "b"}


def test_an_agent_that_is_mapped_to_itself_leaves_nothing_of_it_either() -> None:
    (planned_row,) = plan([{**PARAMS, "agent_ref": {"name": "a", "type": "t"}}], agent_name="a")
    assert planned_row["agent_ref"] == {"name": "a"}


def test_agent_name_is_the_default_of_the_map() -> None:
    assert agents(plan([row("a"), row("b"), row(source="games")], agent_name="solo", agent_map={"b": "a"})) == [
        "solo",
        "a",
        "solo",
    ]


def test_agent_name_beside_another_default_is_refused() -> None:
    with pytest.raises(ValueError, match=r"agent_name and agent_map\._default"):
        plan([row("a")], agent_name="a", agent_map={"_default": "b"})


def test_replaced_agents_are_told_once_with_their_count() -> None:
    found = summary([row("a", "games")] * 2 + [row("solo", "puzzles")], agent_map={"a": "b"})
    assert found.warnings == ("agent_map replaces the agent of 2 rows: a -> b (2)",)


def test_a_reference_without_a_name_is_no_reference() -> None:
    for reference in (None, {}, {"name": None}, {"name": ""}):
        assert agents(plan([{**row(source="puzzles"), "agent_ref": reference}])) == ["solo"]


# Fan-out


def test_a_row_fans_out_to_all_agents_of_its_basis() -> None:
    assert agents(plan([row(source="games")], fan_out={"games": ["a", "b"]})) == ["a", "b"]


def test_fan_out_goes_by_the_agent_that_the_row_had_before_the_map() -> None:
    settings: dict[str, Any] = {"agent_map": {"a": "solo"}, "allow_unsupported_pairing": True}
    assert agents(plan([row("a")], fan_out={"a": ["b", "a"], "solo": ["solo"]}, **settings)) == ["b", "a"]
    assert agents(plan([row("a")], fan_out={"solo": ["b"]}, **settings)) == ["solo"]


def test_the_agent_of_a_row_counts_before_its_source_in_a_fan_out() -> None:
    assert agents(plan([row("a", "games")], fan_out={"games": ["b"]})) == ["a"]


def test_in_a_fan_out_only_the_rows_own_agent_keeps_its_reference() -> None:
    rows = plan([{**PARAMS, "agent_ref": {"name": "a", "type": "t"}}], fan_out={"a": ["a", "b"]})
    assert [each["agent_ref"] for each in rows] == [{"name": "a", "type": "t"}, {"name": "b"}]


def test_a_fan_out_back_to_an_agent_that_the_map_replaced_is_a_new_reference() -> None:
    rows = plan([{**PARAMS, "agent_ref": {"name": "a", "type": "t"}}], fan_out={"a": ["a"]}, agent_map={"a": "b"})
    assert rows[0]["agent_ref"] == {"name": "a"}


# Task sources


def test_the_only_agent_of_a_resources_server_runs_its_rows() -> None:
    (planned_row,) = plan([row(source="puzzles")])
    assert planned_row["agent_ref"] == {"name": "solo"}


def test_an_agent_can_be_the_source_of_its_own_rows() -> None:
    assert agents(plan([row(source="a")])) == ["a"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("puzzlse", "task_source 'puzzlse' is not in the deployment: did you mean 'puzzles'?"),
        ("verbose", "task_source 'verbose' is a setting of the deployment, not a server"),
        ("a_environment", "is neither an agent nor a resources server"),
        ("games", r"2 agents use it (a, b): choose one with +agent_map.games=<agent>"),
        ("lonely", "no agent uses it"),
        ("pinned", "its datasets pin several agents (a, b)"),
        ("stranger", "the pinned agent 'solo' does not use it"),
        ("own", "is an agent, but its dataset pins another one, 'a'"),
    ],
)
def test_a_source_that_leads_to_no_agent_is_refused(source: str, message: str) -> None:
    world = deployment(
        {
            **WORLD,
            "verbose": True,
            "lonely": resources_server(),
            "pinned": resources_server(datasets=[{"agent": "a"}, {"agent": "b"}, {}]),
            "stranger": resources_server(datasets=[{"agent": "solo"}]),
            "own": agent(datasets=[{"agent": "a"}]),
        }
    )
    with pytest.raises(RoutingError) as caught:
        plan([row(source=source)], world)
    assert message in str(caught.value)


def test_a_pin_decides_between_several_agents() -> None:
    world = deployment({**WORLD, "games": resources_server(datasets=[{"agent": "b"}, {"agent": "b"}, {}])})
    assert agents(plan([row(source="games")], world)) == ["b"]


def test_an_agent_may_pin_itself() -> None:
    world = deployment({**WORLD, "a": agent("games", datasets=[{"agent": "a"}])})
    assert agents(plan([row(source="a")], world)) == ["a"]


def test_the_map_decides_where_a_source_leaves_the_choice_open() -> None:
    assert agents(plan([row(source="games")], agent_map={"games": "b"})) == ["b"]


# Legacy mode and tasksets


def test_in_legacy_mode_every_row_is_bound_to_the_one_server() -> None:
    (planned_row,) = plan([row("a")], environment_routing_mode="legacy", environment_server_name="a_environment")
    assert planned_row["_ng_environment_server"] == "a_environment"


def test_a_bound_row_ignores_map_and_fan_out() -> None:
    settings: Row = {"agent_map": {"_default": "b"}, "fan_out": {"a": ["b", "solo"]}}
    rows = plan([row("a")], environment_routing_mode="legacy", environment_server_name="a_environment", **settings)
    assert agents(rows) == ["a"]


def test_a_bound_row_without_an_agent_gets_the_one_that_its_server_speaks_for() -> None:
    rows = plan(
        [row(), row(source="games")], environment_routing_mode="legacy", environment_server_name="a_environment"
    )
    assert [each["agent_ref"] for each in rows] == [{"name": "a"}, {"name": "a"}]


def test_a_materialized_row_gets_no_agent() -> None:
    (planned_row,) = plan([task("games:eval", "m-1")], environment_server_routes=ROUTES)
    assert "agent_ref" not in planned_row


def test_a_bound_row_gets_no_agent_where_its_server_speaks_for_none() -> None:
    players: dict[str, Any] = {name: {"type": "responses_api_agents", "name": name} for name in ("a", "b")}
    world = deployment({**WORLD, "arena": environment_server(None, **players)})
    rows, found = planned([row()], world, environment_routing_mode="legacy", environment_server_name="arena")
    assert agents(rows) == [None]
    assert found.rollouts_by_server == {"arena": 1}
    assert found.rollouts_by_agent == {}


@pytest.mark.parametrize(
    "mode",
    [
        {},
        {"environment_routing_mode": "legacy", "environment_server_name": "b_environment"},
        {"environment_routing_mode": "taskset"},
    ],
)
def test_a_taskset_decides_the_server_in_every_mode(mode: Row) -> None:
    rows, found = planned([task("puzzles:eval", "m-1")], environment_server_routes=ROUTES, **mode)
    assert [each["_ng_environment_server"] for each in rows] == ["solo_environment"]
    assert found.rollouts_by_agent == {"solo": 1}


def test_routes_of_the_deployment_count_when_the_run_has_none() -> None:
    world = deployment({**WORLD, "environment_server_routes": ROUTES})
    assert plan([task("games:eval", "m-1")], world)[0]["_ng_environment_server"] == "a_environment"
    with pytest.raises(RoutingError, match="games:eval"):
        plan([task("games:eval", "m-1")], world, environment_server_routes={"other": "a_environment"})


def test_a_taskset_without_a_route_is_refused() -> None:
    with pytest.raises(RoutingError, match=r"taskset 'game:eval': did you mean 'games:eval'\?: rows\[1\]"):
        plan([task("games:eval", "m-1"), task("game:eval", "m-2")], environment_server_routes=ROUTES)


def test_a_flat_row_is_refused_in_taskset_mode() -> None:
    with pytest.raises(RoutingError, match=r"is flat, which environment_routing_mode=taskset refuses"):
        plan([row("a")], environment_routing_mode="taskset", environment_server_routes=ROUTES)


def test_a_materialized_row_without_a_taskset_is_routed_like_a_flat_one() -> None:
    for taskset in (None, ""):
        (planned_row,) = plan([task(taskset, "m-1", agent_ref={"name": "a"})])
        assert "_ng_environment_server" not in planned_row


@pytest.mark.parametrize("settings", [{"environment_routing_mode": "legacy"}, {"environment_routing_mode": "taskset"}])
def test_a_mode_without_what_it_needs_is_refused(settings: Row) -> None:
    with pytest.raises(ValueError, match="needs environment_server_"):
        plan([row("a")], **settings)


def test_a_row_that_brings_its_server_stays_with_it() -> None:
    rows, found = planned(
        [{**row("a"), "_ng_environment_server": "a_environment"}, {**row(), "_ng_environment_server": "b_environment"}]
    )
    assert [each["_ng_environment_server"] for each in rows] == ["a_environment", "b_environment"]
    assert agents(rows) == ["a", "b"]
    assert found.rollouts_by_server == {"a_environment": 1, "b_environment": 1}


# Against the deployment


def test_a_row_without_any_route_is_refused() -> None:
    with pytest.raises(RoutingError, match=r"2 rows name neither an agent nor a task_source.*\n.*rows\[1\], rows\[3\]"):
        plan([row("a"), row(), row("b"), {**PARAMS, "agent_ref": {"name": None}}])


def test_an_unknown_agent_is_refused_with_a_suggestion() -> None:
    with pytest.raises(RoutingError, match=r"agent 'sole' is not in the deployment: did you mean 'solo'\?: rows\[0\]"):
        plan([row("sole")])


def test_a_name_that_is_not_an_agents_is_refused() -> None:
    with pytest.raises(RoutingError, match="'games' exists in the deployment, but is not an agent"):
        plan([row("games")])


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(RoutingError, match="'a_enviroment' is not in the deployment: did you mean 'a_environment'"):
        plan([row("a")], environment_routing_mode="legacy", environment_server_name="a_enviroment")


def test_an_agent_that_its_server_does_not_run_is_refused() -> None:
    with pytest.raises(RoutingError, match="'b' on 'a_environment', which runs a"):
        plan([row("b")], environment_routing_mode="legacy", environment_server_name="a_environment")


def test_a_server_that_names_no_agents_runs_any() -> None:
    world = deployment({**WORLD, "open": environment_server(None)})
    assert agents(plan([row("b")], world, environment_routing_mode="legacy", environment_server_name="open")) == ["b"]


def test_a_source_that_is_not_the_servers_is_refused() -> None:
    with pytest.raises(RoutingError, match="'puzzles' on 'a_environment', which is bound to 'games'"):
        plan([row("a", "puzzles")], environment_routing_mode="legacy", environment_server_name="a_environment")


def test_the_agent_that_a_server_speaks_for_has_to_exist() -> None:
    world = deployment({"e": environment_server("ghost")})
    with pytest.raises(RoutingError, match="'ghost' is not in the deployment"):
        plan([row()], world, environment_routing_mode="legacy", environment_server_name="e")


def test_an_agent_without_an_environment_server_is_refused() -> None:
    with pytest.raises(AgentWithoutEnvironmentServerError, match="agent 'hermit'"):
        plan([row("hermit")], deployment({**WORLD, "hermit": agent()}))


def test_an_agent_with_two_environment_servers_is_refused() -> None:
    world = deployment({**WORLD, "second": environment_server("a")})
    with pytest.raises(AmbiguousEnvironmentServerError, match="a_environment, second"):
        plan([row("a")], world)
    rows = plan([row("a")], world, environment_routing_mode="legacy", environment_server_name="second")
    assert rows[0]["_ng_environment_server"] == "second"


def test_a_server_whose_address_is_unknown_is_refused_only_if_it_is_needed() -> None:
    world = deployment({**WORLD, "broken": environment_server("c", port="${port}"), "c": agent()})
    assert agents(plan([row("a")], world)) == ["a"]
    with pytest.raises(ConfigError, match=r"broken\.environment_servers\.legacy_agent\.port"):
        plan([row("c")], world)

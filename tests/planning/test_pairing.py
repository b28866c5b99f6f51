"""Which agents may run which tasks: protocol §5.6 (4)."""

from typing import Any

import pytest

from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ConfigError, RoutingError
from tests.deployment.configs import agent, resources_server
from tests.planning.planned import WORLD, agents, deployment, plan, row, task

ROUTES = {"games:eval": "a_environment"}


def world(**changes: Any) -> Deployment:
    return deployment({**WORLD, **changes})


def test_the_list_of_the_rows_source_counts() -> None:
    found = world(open=resources_server(allowed_agents=["thinker"]), a=agent())
    with pytest.raises(
        RoutingError, match=r"agent 'a' is of type 'simple_agent', but open admits only thinker: rows\[0\]"
    ):
        plan([row("a", "open")], found)


def test_the_list_of_the_resources_server_that_the_agent_binds_counts() -> None:
    with pytest.raises(RoutingError, match="but games admits only thinker"):
        plan([row("a")], world(games=resources_server(allowed_agents="thinker")))


def test_the_lists_of_all_datasets_of_the_agent_count_for_a_flat_row() -> None:
    datasets = [{"name": "one", "allowed_agents": ["simple_agent"]}, {"name": "two", "allowed_agents": ["thinker"]}]
    with pytest.raises(RoutingError, match=r"a\.datasets\[two\] admits only thinker"):
        plan([row("a")], world(a=agent("games", datasets=datasets)))


@pytest.mark.parametrize("declaring", ["a", "b", "games", "puzzles"])
def test_the_list_of_the_dataset_with_the_rows_taskset_counts_wherever_it_is_declared(declaring: str) -> None:
    datasets = [{"name": "eval", "taskset": "games:eval", "allowed_agents": ["thinker"]}]
    instance = agent("games", datasets=datasets) if declaring in "ab" else resources_server(datasets=datasets)
    found = world(**{declaring: instance})
    with pytest.raises(RoutingError, match=rf"{declaring}\.datasets\[eval\] admits only thinker"):
        plan([task("games:eval", "m-1")], found, environment_server_routes=ROUTES)


def test_the_list_of_another_taskset_does_not_count() -> None:
    datasets = [{"name": "train", "taskset": "games:train", "allowed_agents": ["thinker"]}]
    found = world(games=resources_server(datasets=datasets), a=agent("games", datasets=datasets))
    assert plan([task("games:eval", "m-1")], found, environment_server_routes=ROUTES)


@pytest.mark.parametrize("allowed", [None, [], "", ["simple_agent", "thinker"], "simple_agent"])
def test_a_list_that_is_empty_or_has_the_type_admits_the_agent(allowed: Any) -> None:
    assert agents(plan([row("a", "games")], world(games=resources_server(allowed_agents=allowed)))) == ["a"]


def test_a_list_of_another_kind_is_an_error_of_the_config() -> None:
    with pytest.raises(ConfigError, match=r"games\.allowed_agents: expected an agent type or a list"):
        plan([row("a")], world(games=resources_server(allowed_agents={"a": 1})))


def test_every_rejected_pair_is_told() -> None:
    found = world(games=resources_server(allowed_agents=["x"]), puzzles=resources_server(allowed_agents=["y"]))
    with pytest.raises(RoutingError) as caught:
        plan([row("a"), row("solo"), row("b"), row("a")], found)
    text = str(caught.value)
    assert text.startswith("4 rows pair an agent with tasks that do not admit it")
    assert "agent 'a' is of type 'simple_agent', but games admits only x: rows[0], rows[3] (2 rows)" in text
    assert "agent 'solo' is of type 'thinker', but puzzles admits only y: rows[1]" in text
    assert "agent 'b'" in text


def test_the_agent_that_a_server_speaks_for_is_checked_too() -> None:
    found = world(games=resources_server(allowed_agents=["thinker"]))
    settings: dict[str, Any] = {"environment_routing_mode": "legacy", "environment_server_name": "a_environment"}
    with pytest.raises(RoutingError, match="games admits only thinker"):
        plan([row()], found, **settings)


def test_a_source_without_an_agent_is_checked_once_it_is_resolved() -> None:
    with pytest.raises(RoutingError, match="puzzles admits only simple_agent"):
        plan([row(source="puzzles")], world(puzzles=resources_server(allowed_agents="simple_agent")))


def test_a_run_may_allow_every_pairing() -> None:
    found = world(games=resources_server(allowed_agents=["thinker"]))
    assert agents(plan([row("a")], found, allow_unsupported_pairing=True)) == ["a"]


def test_a_deployment_may_allow_every_pairing() -> None:
    found = world(games=resources_server(allowed_agents=["thinker"]), allow_unsupported_pairing=True)
    assert agents(plan([row("a")], found)) == ["a"]


def test_the_environment_may_allow_every_pairing() -> None:
    config = {**WORLD, "games": resources_server(allowed_agents=["thinker"])}
    found = Deployment.of_config(config, environ={"NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING": "1"})
    assert agents(plan([row("a")], found)) == ["a"]

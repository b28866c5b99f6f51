"""The agent of a data set with a taskset: protocol §5.6.1. Those without one are met in `test_routing`."""

from collections.abc import Mapping
from typing import Any

import pytest

from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ConfigError, RoutingError
from gym_ray.planning.sources import resolve_taskset_agent
from tests.deployment.configs import environment_server
from tests.planning.planned import WORLD, deployment

PLAYERS: dict[str, Any] = {name: {"type": "responses_api_agents", "name": name} for name in ("a", "b")}


def resolved(
    source: str,
    *,
    pin: str | None = None,
    server: str = "a_environment",
    routes: Mapping[str, str] | None = None,
    world: Deployment | None = None,
) -> str | None:
    routes = {"games:eval": server} if routes is None else routes
    return resolve_taskset_agent(world or deployment(), source, "games:eval", pin, routes)


def test_an_agent_that_declares_the_data_set_runs_it() -> None:
    assert resolved("a") == "a"


def test_for_a_resources_server_the_agent_that_the_server_speaks_for_runs_it() -> None:
    assert resolved("games") == "a"


def test_a_server_that_speaks_for_nobody_leaves_it_open() -> None:
    world = deployment({**WORLD, "arena": environment_server(None, "games", **PLAYERS)})
    assert resolved("games", server="arena", world=world) is None
    assert resolved("b", server="arena", world=world) == "b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "games", "pin": "a"}, "pins the agent 'a', but its route decides"),
        ({"source": "games", "routes": {"game:eval": "a_environment"}}, "has no entry .*did you mean 'game:eval'"),
        ({"source": "games", "server": "a_enviroment"}, "did you mean 'a_environment'"),
        ({"source": "games", "server": "games"}, "'games' exists, but is not one"),
        ({"source": "b"}, "'a_environment' runs a, not 'b'"),
        ({"source": "puzzles"}, "is bound to 'games', not to 'puzzles'"),
        ({"source": "games", "server": "empty"}, "references no agent"),
        ({"source": "games", "server": "haunted"}, "agent 'ghost' is not in the deployment"),
    ],
)
def test_a_taskset_that_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    world = deployment(
        {**WORLD, "empty": environment_server(None, "games"), "haunted": environment_server("ghost", "games")}
    )
    with pytest.raises(RoutingError, match=message):
        resolved(**arguments, world=world)


def test_a_server_with_two_implementations_is_refused() -> None:
    world = deployment({**WORLD, "twofold": {"environment_servers": {"one": {}, "two": {}}}})
    with pytest.raises(ConfigError, match="exactly one implementation, found 2"):
        resolved("games", server="twofold", world=world)

from typing import Any

import pytest

from gym_ray.deployment.instances import allowed_types, read_instances
from gym_ray.errors import ConfigError
from tests.deployment.configs import agent, environment_server, maze, resources_server


def test_an_environment_server_is_read_with_everything_it_references() -> None:
    server = read_instances(maze(host="10.0.0.5", port=10512)).environment_servers["maze_environment"]
    assert server.base_url == "http://10.0.0.5:10512"
    assert server.result_type == "legacy_agent"
    assert server.agents == ("maze_agent",)
    assert server.attributed_agent == "maze_agent"
    assert server.resources_server == "maze"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:10001"),
        ("::", "http://[::1]:10001"),
        ("fe80::1", "http://[fe80::1]:10001"),
        ("node-7", "http://node-7:10001"),
    ],
)
def test_wildcard_hosts_become_loopback_and_others_stay(host: str, url: str) -> None:
    config = {"e": environment_server("a", host=host)}
    assert read_instances(config).environment_servers["e"].base_url == url


def test_agents_are_found_in_every_field_in_order() -> None:
    config = {
        "e": environment_server(
            None,
            first={"type": "responses_api_agents", "name": "a"},
            agent_server={"name": "b"},
            nameless={"type": "responses_api_agents"},
            other={"type": "resources_servers", "name": "r"},
            again={"type": "responses_api_agents", "name": "a"},
        )
    }
    server = read_instances(config).environment_servers["e"]
    assert server.agents == ("a", "b")
    assert server.attributed_agent == "b"


def test_the_only_agent_is_the_attributed_one() -> None:
    config = {"e": environment_server(None, player={"type": "responses_api_agents", "name": "a"})}
    assert read_instances(config).environment_servers["e"].attributed_agent == "a"


def test_of_two_agents_without_an_agent_server_none_is_attributed() -> None:
    players: dict[str, Any] = {name: {"type": "responses_api_agents", "name": name} for name in ("a", "b")}
    assert read_instances({"e": environment_server(None, **players)}).environment_servers["e"].attributed_agent is None


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"environment_servers": {}}, "exactly one implementation, found 0"),
        ({"environment_servers": {"a": {}, "b": {}}}, "exactly one implementation, found 2"),
        ({"environment_servers": None}, "exactly one implementation, found no"),
        ({"environment_servers": {"a": None}}, "expected a mapping, found nothing"),
        ({"environment_servers": {"a": {"port": 1}}}, "host: expected a host name"),
        ({"environment_servers": {"a": {"host": "h", "port": "${port}"}}}, "port: expected a port number"),
        ({"environment_servers": {"a": {"host": "${host}", "port": 1}}}, "host: expected a host name"),
        ({"environment_servers": {"a": {"host": "h", "port": 70_000}}}, "port: expected a port number"),
    ],
)
def test_an_instance_that_cannot_be_used_is_kept_with_the_reason(tree: dict[str, Any], reason: str) -> None:
    found = read_instances({"e": tree, **maze()})
    assert reason in found.unusable["e"]
    assert list(found.environment_servers) == ["maze_environment"]


def test_settings_of_the_deployment_are_not_instances() -> None:
    found = read_instances(
        {"default_host": "h", "head_server": {"host": "h"}, "disallowed_ports": [1], "verbose": None}
    )
    assert not found.environment_servers and not found.agents and not found.unusable


def test_agents_and_resources_servers_are_read_with_their_datasets() -> None:
    entry = {"name": "train", "type": "train", "agent": "pin", "taskset": "t", "allowed_agents": ["simple_agent"]}
    found = read_instances(
        {"a": agent("r", datasets=[entry]), "r": resources_server(datasets=None, allowed_agents="simple_agent")}
    )
    assert found.agents["a"].implementation == "simple_agent"
    assert found.agents["a"].resources_server == "r"
    (dataset,) = found.agents["a"].datasets
    assert (dataset.name, dataset.pinned_agent, dataset.taskset) == ("train", "pin", "t")
    assert found.resources_servers["r"].datasets == ()


@pytest.mark.parametrize(
    ("declared", "types"), [(None, set()), ([], set()), ("a", {"a"}), (["a", "b"], {"a", "b"}), ("", set())]
)
def test_allowed_agents_are_a_type_or_a_list_of_types(declared: Any, types: set[str]) -> None:
    assert allowed_types(declared, "maze") == types


@pytest.mark.parametrize("declared", [5, {"a": 1}, [1], True])
def test_other_allowed_agents_are_refused(declared: Any) -> None:
    with pytest.raises(ConfigError, match=r"maze\.allowed_agents"):
        allowed_types(declared, "maze")

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.aggregation.grouping import Group, grouped, labels
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError, RoutingError
from gym_ray.identity import Origin


def server(name: str, *agents: str, attributed: str | None = None) -> EnvironmentServer:
    return EnvironmentServer(name, "legacy_agent", f"http://{name}", agents, attributed)


def deployment(*servers: EnvironmentServer) -> dict[str, EnvironmentServer]:
    return {server.name: server for server in servers}


def named(origins: Iterable[Origin], *servers: EnvironmentServer) -> dict[str, str]:
    """Server -> label."""
    groups = grouped(origins, deployment(*servers))
    return {group.server.name: label for group, label in zip(groups, labels(groups), strict=True)}


def test_nothing_to_group_gives_no_group() -> None:
    assert grouped([], deployment(server("a"))) == []
    assert labels([]) == []


def test_a_stamp_decides_before_an_agent() -> None:
    (group,) = grouped([Origin("b", "x")], deployment(server("a", "x"), server("b", "y")))
    assert group.server.name == "b"
    assert group.agent == "x"


def test_without_a_stamp_the_one_server_that_fronts_the_agent_decides() -> None:
    origins = [Origin(None, "x"), Origin("a", "x"), Origin("a", None)]
    (group,) = grouped(origins, deployment(server("a", "x"), server("b", "y")))
    assert set(group.origins) == set(origins)


@pytest.mark.parametrize("origin", [Origin(None, None), Origin(None, "")])
def test_a_record_with_neither_stamp_nor_agent_belongs_to_no_group(origin: Origin) -> None:
    assert grouped([origin], deployment(server("a", "x"))) == []


def test_a_stamp_that_the_deployment_does_not_have_names_those_it_has() -> None:
    with pytest.raises(RoutingError, match=r"'gone'.*\(it has a, b\)") as caught:
        grouped([Origin("gone", "x")], deployment(server("b"), server("a")))
    assert isinstance(caught.value, ValueError)


def test_an_agent_that_not_exactly_one_server_fronts_is_an_error() -> None:
    with pytest.raises(AgentWithoutEnvironmentServerError, match="'z'"):
        grouped([Origin(None, "z")], deployment(server("a", "x")))
    with pytest.raises(AmbiguousEnvironmentServerError, match="a, b"):
        grouped([Origin(None, "x")], deployment(server("a", "x"), server("b", "x")))


def test_a_group_is_called_by_its_agent_if_no_other_has_it() -> None:
    assert named([Origin("a", "x"), Origin("b", "y")], server("a"), server("b")) == {"a": "x", "b": "y"}


def test_groups_that_share_an_agent_are_called_by_their_servers() -> None:
    found = named([Origin("a", "x"), Origin("b", "x"), Origin("c", "y")], server("a"), server("b"), server("c"))
    assert found == {"a": "a", "b": "b", "c": "y"}


def test_a_group_whose_records_name_no_agent_takes_the_attributed_one_else_its_server() -> None:
    servers = server("a", attributed="x"), server("b"), server("c", attributed="")
    found = named([Origin("a", None), Origin("b", ""), Origin("c", None)], *servers)
    assert found == {"a": "x", "b": "b", "c": "c"}


def test_an_agent_called_as_another_server_gives_way_again_and_again() -> None:
    # a's agent is called like server b, and b's like c; c's agent is shared with d
    origins = [Origin("a", "b"), Origin("b", "c"), Origin("c", "s"), Origin("d", "s")]
    found = named(origins, *(server(name) for name in "abcd"))
    assert found == {"a": "a", "b": "b", "c": "c", "d": "d"}


NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(
    st.lists(st.builds(Origin, NAMES, st.none() | NAMES | st.just("")), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_labels_are_unique_and_depend_on_no_order(origins: list[Origin], shuffled: random.Random) -> None:
    servers = [server(name, attributed=name) for name in "abcd"]
    expected = named(origins, *servers)
    assert len(set(expected.values())) == len(expected)
    assert all(expected.values())
    for _ in range(3):
        shuffled.shuffle(origins)
        shuffled.shuffle(servers)
        assert named(origins, *servers) == expected


def test_labels_do_not_depend_on_the_order_of_the_groups() -> None:
    groups = [Group(server(name), agent, ()) for name, agent in (("a", "b"), ("b", "s"), ("c", "s"))]
    forth = dict(zip("abc", labels(groups), strict=True))
    back = dict(zip("cba", labels(groups[::-1]), strict=True))
    assert forth == back == {"a": "a", "b": "b", "c": "c"}

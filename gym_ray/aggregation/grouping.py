"""Which environment server aggregates a record, and what its group is called. Pure. Source: protocol §3.3."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError, RoutingError
from gym_ray.identity import Origin


@dataclass(frozen=True, slots=True)
class Group:
    """The records that one environment server aggregates."""

    server: EnvironmentServer
    agent: str | None
    """The first by name of those that its records name, else the one that its server is attributed to."""
    origins: tuple[Origin, ...]


def grouped(origins: Iterable[Origin], servers: Mapping[str, EnvironmentServer]) -> list[Group]:
    """One group for each environment server, sorted by its name; records with neither stamp nor agent belong to none.

    Raises:
        RoutingError: a stamp names a server that the deployment does not have, or not exactly one fronts an agent.
    """
    members: defaultdict[str, list[Origin]] = defaultdict(list)
    for origin in origins:
        if origin.server is not None:
            if origin.server not in servers:
                offered = ", ".join(sorted(servers)) or "none"
                raise RoutingError(
                    f"records were stamped with environment server {origin.server!r}, which this deployment does not "
                    f"have (it has {offered}): aggregate against the deployment that ran them"
                )
            members[origin.server].append(origin)
        elif origin.agent:
            members[_fronting(origin.agent, servers)].append(origin)
    return [_group(servers[name], members[name]) for name in sorted(members)]


def labels(groups: Sequence[Group]) -> list[str]:
    """A name for each group that no other has: its agent's if it is the only one with it, else its server's."""
    shares = Counter(group.agent for group in groups)
    chosen = [
        group.agent if group.agent is not None and shares[group.agent] == 1 else group.server.name for group in groups
    ]
    while twice := {label for label, count in Counter(chosen).items() if count > 1}:
        again = [group.server.name if label in twice else label for label, group in zip(chosen, groups, strict=True)]
        if again == chosen:
            break
        chosen = again
    return chosen


def _fronting(agent: str, servers: Mapping[str, EnvironmentServer]) -> str:
    fronting = [server.name for server in servers.values() if agent in server.agents]
    if not fronting:
        raise AgentWithoutEnvironmentServerError(f"records name agent {agent!r}, which no environment server fronts")
    if len(fronting) > 1:
        raise AmbiguousEnvironmentServerError(f"records name agent {agent!r}, which {', '.join(fronting)} all front")
    return fronting[0]


def _group(server: EnvironmentServer, origins: list[Origin]) -> Group:
    named = sorted(origin.agent for origin in origins if origin.agent)
    return Group(server, named[0] if named else server.attributed_agent or None, tuple(origins))

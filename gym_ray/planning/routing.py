"""Where a row goes: which agents run it, how often each, on which environment server.

Pure. Precedence: the entry of agent_map for the row's agent, then for its source, then its default, then the row's own
agent, then what its task_source leads to. A row of a routed taskset, and every row in legacy mode, is bound to its
environment server instead. Source: protocol §5.3, §5.5, §5.6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gym_ray.deployment.lookup import Deployment
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.deployment.suggestions import did_you_mean
from gym_ray.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    RoutingError,
)
from gym_ray.planning.facts import RowFacts
from gym_ray.planning.pairing import rejections
from gym_ray.planning.problems import Problem
from gym_ray.planning.shaping import DEFAULT, Shaping
from gym_ray.planning.sources import agent_of_source

T = TypeVar("T")

MAX_OFFERED = 8
"""Agents that a message lists."""

_PROBLEM_OF: dict[type[Exception], Problem] = {
    AgentWithoutEnvironmentServerError: Problem.UNFRONTED,
    AmbiguousEnvironmentServerError: Problem.AMBIGUOUS,
    ConfigError: Problem.DEPLOYMENT,
}


@dataclass(frozen=True, slots=True)
class Destination:
    """One agent, or one environment server, that runs a row."""

    repeats: int
    agent: str | None = None
    """The agent that the materialized row names, None if it names none."""
    is_new_agent: bool = False
    """The row's `agent_ref` gives way to a new one with this name only."""
    stamp: str | None = None
    """The environment server to stamp on the row."""
    server: EnvironmentServer | None = None
    """Where it will be sent; None only without a deployment."""

    @property
    def dispatch_name(self) -> str:
        """What rollouts are grouped by: the environment server that they are bound to, else the agent."""
        return self.stamp or self.agent or ""

    @property
    def runs_on(self) -> str | None:
        """The agent to count it under: its own, else the one that its environment server speaks for."""
        return self.agent or (self.server.attributed_agent if self.server else None)


@dataclass(frozen=True, slots=True)
class Route:
    """What becomes of all rows with the same facts."""

    destinations: tuple[Destination, ...] = ()
    problems: tuple[tuple[Problem, str], ...] = ()
    """Kind and cause; with any, the destinations are not to be used."""
    renamed: tuple[str, str] | None = None
    """The agent that agent_map replaced, and the new one."""


class Router:
    """Routes rows by their facts; each distinct combination is decided once."""

    def __init__(self, shaping: Shaping, deployment: Deployment | None) -> None:
        """Without a deployment nothing is resolved or checked against one."""
        self._shaping = shaping
        self._deployment = deployment
        own = shaping.environment_server_routes
        self._routes = own if own or deployment is None else deployment.environment_server_routes
        self._known: dict[RowFacts, Route] = {}
        self._counted: set[str] = set()

    def route(self, facts: RowFacts) -> Route:
        """The route of a row."""
        route = self._known.get(facts)
        if route is None:
            route = self._known[facts] = self._decide(facts)
        return route

    @property
    def unused_repeats(self) -> list[str]:
        """Keys of a num_repeats map that no row so far has looked up with success."""
        repeats = self._shaping.num_repeats
        named = repeats if isinstance(repeats, Mapping) else ()
        return [key for key in named if key not in self._counted and key != DEFAULT]

    def _decide(self, facts: RowFacts) -> Route:
        server, problem = self._bound_server(facts)
        if problem is not None:
            return Route(problems=(problem,))
        if server is not None:
            route = self._route_to(facts.agent, server, facts.taskset or facts.source or server)
        else:
            route = self._route_by_agent(facts)
        if self._deployment is None or route.problems:
            return route
        return self._checked(facts, route, self._deployment)

    def _bound_server(self, facts: RowFacts) -> tuple[str | None, tuple[Problem, str] | None]:
        if facts.taskset is not None:
            if server := self._routes.get(facts.taskset):
                return server, None
            hint = did_you_mean(facts.taskset, self._routes)
            return None, (Problem.TASKSET_ROUTE, f"taskset {facts.taskset!r}: {hint}")
        if self._shaping.routing_mode == "legacy":
            return self._shaping.environment_server_name, None
        if self._shaping.routing_mode == "taskset":
            return None, (Problem.FLAT_ROW, "give them a task_id object and a task_input, or choose another mode")
        return None, None

    def _route_to(self, agent: str | None, server: str, basis: str) -> Route:
        repeats = self._repeats(None, basis)
        if repeats is None:
            return _without_repeats(basis)
        return Route((Destination(repeats, agent, stamp=server),))

    def _route_by_agent(self, facts: RowFacts) -> Route:
        mapped = self._mapped(facts)
        agent = mapped or facts.agent
        basis = facts.agent or facts.source
        targets: tuple[str | None, ...]
        if basis is not None and basis in self._shaping.fan_out:
            targets = self._shaping.fan_out[basis]
        elif agent is not None or facts.source is not None:
            targets = (agent,)  # None is resolved from the source later
        elif facts.server is not None:
            return self._route_to(None, facts.server, facts.server)
        else:
            return Route(problems=((Problem.NO_ROUTE, "rows without a route" + self._offered_agents()),))
        destinations = []
        for target in targets:
            repeats = self._repeats(target, basis)
            if repeats is None:
                return _without_repeats(target or basis)
            # A hit in agent_map replaces the reference, even by the same name; else the row's own object stays as it is
            is_new = target is not None and (mapped is not None or target != facts.agent)
            destinations.append(Destination(repeats, target, is_new, facts.server, None))
        renamed = (facts.agent, mapped) if facts.agent and mapped and mapped != facts.agent else None
        return Route(tuple(destinations), renamed=renamed)

    def _offered_agents(self) -> str:
        if self._deployment is None or not self._deployment.agents:
            return ""
        names = sorted(self._deployment.agents)
        more = ", ..." if len(names) > MAX_OFFERED else ""
        return f" (the deployment offers the agents {', '.join(names[:MAX_OFFERED])}{more})"

    def _mapped(self, facts: RowFacts) -> str | None:
        agents = self._shaping.agent_map
        names = [name for name in (facts.agent, facts.source) if name is not None]
        return next((agents[name] for name in (*names, DEFAULT) if name in agents), None)

    def _repeats(self, target: str | None, basis: str | None) -> int | None:
        repeats = self._shaping.num_repeats
        if isinstance(repeats, int):
            return repeats
        for name in (target, basis):
            if name is not None and name in repeats:
                self._counted.add(name)
                return repeats[name]
        return repeats.get(DEFAULT)

    def _checked(self, facts: RowFacts, route: Route, deployment: Deployment) -> Route:
        allows_any_pairing = self._shaping.allow_unsupported_pairing or deployment.allows_unsupported_pairing
        check = _Check(facts, deployment, allows_any_pairing)
        destinations: list[Destination] = []
        problems: list[tuple[Problem, str]] = []
        for destination in route.destinations:
            try:
                destinations.append(check.resolved(destination))
            except _RefusedError as refused:
                problems += refused.problems
        return replace(route, destinations=tuple(destinations), problems=tuple(dict.fromkeys(problems)))


class _RefusedError(Exception):
    def __init__(self, *problems: tuple[Problem, str]) -> None:
        super().__init__(*problems)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class _Check:
    """Rows with these facts against a deployment."""

    facts: RowFacts
    deployment: Deployment
    allows_any_pairing: bool

    def resolved(self, destination: Destination) -> Destination:
        """The destination with its environment server, and with its agent where the row names only its source.

        Raises:
            _RefusedError: the deployment does not offer it.
        """
        if destination.stamp is not None:
            return self._bound(destination, destination.stamp)
        agent = destination.agent
        if agent is None:
            source = self.facts.source or ""
            agent = _found(Problem.TASK_SOURCE, lambda: agent_of_source(self.deployment, source))
            destination = replace(destination, agent=agent, is_new_agent=True)
        self._check_agent(agent)
        return replace(destination, server=_found(Problem.AGENT, lambda: self.deployment.server_for_agent(agent)))

    def _bound(self, destination: Destination, name: str) -> Destination:
        """A destination whose row is bound to an environment server: the row has to fit it."""
        server = _found(Problem.SERVER, lambda: self.deployment.environment_server(name))
        agent, source = destination.agent, self.facts.source
        if agent is not None and server.agents and agent not in server.agents:
            cause = f"{agent!r} on {name!r}, which runs {', '.join(server.agents)}"
            raise _RefusedError((Problem.SERVER_AGENT, cause))
        if source is not None and server.resources_server and source != server.resources_server:
            cause = f"{source!r} on {name!r}, which is bound to {server.resources_server!r}"
            raise _RefusedError((Problem.SERVER_SOURCE, cause))
        for named in dict.fromkeys(each for each in (agent, server.attributed_agent) if each is not None):
            self._check_agent(named)
        if agent is None and server.attributed_agent is not None and not self.facts.is_materialized:
            # Results, metrics and reward profiles of such rows would otherwise lose the agent that they ran on
            return replace(destination, server=server, agent=server.attributed_agent, is_new_agent=True)
        return replace(destination, server=server)

    def _check_agent(self, name: str) -> None:
        agent = _found(Problem.AGENT, lambda: self.deployment.agent(name))
        if self.allows_any_pairing:
            return
        source, taskset = self.facts.source, self.facts.taskset
        reasons = _found(Problem.PAIRING, lambda: rejections(self.deployment, agent, source, taskset))
        if reasons:
            raise _RefusedError(*((Problem.PAIRING, reason) for reason in reasons))


def _found(problem: Problem, look_up: Callable[[], T]) -> T:
    """What the look-up finds; its refusal is a problem of this kind unless its class has a kind of its own."""
    try:
        return look_up()
    except (RoutingError, ConfigError) as error:
        raise _RefusedError((_PROBLEM_OF.get(type(error), problem), str(error))) from None


def _without_repeats(name: str | None) -> Route:
    return Route(problems=((Problem.REPEATS, repr(name)),))

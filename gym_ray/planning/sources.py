"""Which agent runs the rows of a data set: the rules by which benchmark listings and dispatch agree. Pure.

Source: protocol §5.6 (1), §5.6.1.
"""

from collections.abc import Mapping

from gym_ray.deployment.lookup import Deployment
from gym_ray.deployment.suggestions import did_you_mean
from gym_ray.errors import RoutingError


def agent_of_source(deployment: Deployment, source: str) -> str:
    """The agent for rows that carry only `task_source`.

    Raises:
        RoutingError: there is no such instance, it declares no tasks, or it leaves the choice open.
    """
    agent, resources = deployment.agents.get(source), deployment.resources_servers.get(source)
    declaring = agent or resources
    if declaring is None:
        raise RoutingError(f"task_source {source!r} {_why_not(deployment, source)}")
    pins = sorted({dataset.pinned_agent for dataset in declaring.datasets if dataset.pinned_agent})
    if len(pins) > 1:
        raise RoutingError(
            f"task_source {source!r}: its datasets pin several agents ({', '.join(pins)}): "
            f"choose one with +agent_map.{source}=<agent>"
        )
    return resolve_dataset_agent(deployment, source, pins[0] if pins else None)


def resolve_dataset_agent(deployment: Deployment, source: str, pin: str | None) -> str:
    """The agent that runs a data set without a taskset, declared by the instance `source` and pinned to `pin`.

    Raises:
        RoutingError: the pin does not fit, or without one not exactly one agent does.
    """
    if source in deployment.agents:
        if pin not in {None, source}:
            raise RoutingError(f"task_source {source!r} is an agent, but its dataset pins another one, {pin!r}")
        return source
    candidates = [agent.name for agent in deployment.agents.values() if agent.resources_server == source]
    if pin is not None:
        if pin not in candidates:
            raise RoutingError(
                f"task_source {source!r}: the pinned agent {pin!r} does not use it as resources_server: "
                f"{did_you_mean(pin, candidates)}"
            )
        return pin
    if len(candidates) != 1:
        found = (
            f"{len(candidates)} agents use it ({', '.join(sorted(candidates))})" if candidates else "no agent uses it"
        )
        raise RoutingError(f"task_source {source!r}: {found}: choose one with +agent_map.{source}=<agent>")
    return candidates[0]


def resolve_taskset_agent(
    deployment: Deployment, source: str, taskset: str, pin: str | None, routes: Mapping[str, str]
) -> str | None:
    """The agent that runs a data set with a taskset, declared by the instance `source`; None if its environment server
    speaks for none.

    Raises:
        RoutingError: the taskset leads to no environment server, or to one that does not fit `source`.
        ConfigError: the environment server cannot be used.
    """
    if pin is not None:
        raise RoutingError(
            f"taskset {taskset!r}: its dataset pins the agent {pin!r}, but its route decides: remove the pin"
        )
    if taskset not in routes:
        raise RoutingError(
            f"taskset {taskset!r} has no entry in environment_server_routes: {did_you_mean(taskset, routes)}"
        )
    server = deployment.environment_server(routes[taskset])
    if not server.agents:
        raise RoutingError(f"taskset {taskset!r}: environment server {server.name!r} references no agent")
    for agent in server.agents:
        deployment.agent(agent)
    if source in deployment.agents:
        if source not in server.agents:
            raise RoutingError(
                f"taskset {taskset!r}: environment server {server.name!r} runs {', '.join(server.agents)}, "
                f"not {source!r}"
            )
        return source
    if server.resources_server != source:
        raise RoutingError(
            f"taskset {taskset!r}: environment server {server.name!r} is bound to {server.resources_server!r}, "
            f"not to {source!r}"
        )
    return server.attributed_agent


def _why_not(deployment: Deployment, source: str) -> str:
    if source not in deployment.config:
        return f"is not in the deployment: {did_you_mean(source, _declaring(deployment))}"
    if not isinstance(deployment.config[source], dict):
        return "is a setting of the deployment, not a server"
    return "is neither an agent nor a resources server"


def _declaring(deployment: Deployment) -> list[str]:
    return [*deployment.agents, *deployment.resources_servers]

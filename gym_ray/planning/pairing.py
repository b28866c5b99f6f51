"""Whether an agent may run a task: the `allowed_agents` lists of everybody who has a say. Pure.

An empty or absent list admits every agent type. Source: protocol §5.6 (4).
"""

from collections.abc import Iterator
from typing import Any

from gym_ray.deployment.instances import Agent, ResourcesServer, allowed_types
from gym_ray.deployment.lookup import Deployment


def rejections(deployment: Deployment, agent: Agent, source: str | None, taskset: str | None) -> list[str]:
    """Why this agent may not run rows of this source, or this materialized taskset: one sentence for each list.

    Raises:
        ConfigError: an `allowed_agents` is neither a type nor a list of types.
    """
    reasons = []
    for where, declared in _lists(deployment, agent, source, taskset):
        allowed = allowed_types(declared, where)
        if allowed and agent.implementation not in allowed:
            reasons.append(
                f"agent {agent.name!r} is of type {agent.implementation!r}, "
                f"but {where} admits only {', '.join(sorted(allowed))}"
            )
    return reasons


def _lists(deployment: Deployment, agent: Agent, source: str | None, taskset: str | None) -> Iterator[tuple[str, Any]]:
    """Every list that counts, once, with the place that declares it."""
    for name in dict.fromkeys((source, agent.resources_server)):
        if name is not None and (server := deployment.resources_servers.get(name)):
            yield name, server.allowed_agents
    if taskset is None:
        for dataset in agent.datasets:
            yield f"{agent.name}.datasets[{dataset.name}]", dataset.allowed_agents
        return
    instances: list[Agent | ResourcesServer] = [*deployment.agents.values(), *deployment.resources_servers.values()]
    for instance in instances:
        for dataset in instance.datasets:
            if dataset.taskset == taskset:
                yield f"{instance.name}.datasets[{dataset.name}]", dataset.allowed_agents

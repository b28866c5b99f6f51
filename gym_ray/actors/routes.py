"""Which environment server a row without a server stamp goes to, as numbers that a driver understands."""

from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError


def agent_servers(deployment: Deployment) -> dict[str, int]:
    """Agent -> position of the server that fronts it, for agents that exactly one fronts."""
    positions = {name: position for position, name in enumerate(deployment.environment_servers)}
    fronted = {}
    for agent in deployment.agents:
        try:
            fronted[agent] = positions[deployment.server_for_agent(agent).name]
        except (AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError):
            continue  # the plan has refused every row that names it
    return fronted

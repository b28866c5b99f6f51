"""Pieces of merged configs for tests."""

from typing import Any

Config = dict[str, Any]


def environment_server(
    agent: str | None = None, resources: str | None = None, *, implementation: str = "legacy_agent", **fields: Any
) -> Config:
    block: Config = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 10_001}
    if agent is not None:
        block["agent_server"] = {"type": "responses_api_agents", "name": agent}
    if resources is not None:
        block["resources_server"] = {"type": "resources_servers", "name": resources}
    return {"environment_servers": {implementation: {**block, **fields}}}


def agent(resources: str | None = None, *, implementation: str = "simple_agent", **fields: Any) -> Config:
    block: Config = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 10_002}
    if resources is not None:
        block["resources_server"] = {"type": "resources_servers", "name": resources}
    return {"responses_api_agents": {implementation: {**block, **fields}}}


def resources_server(*, implementation: str = "checker", **fields: Any) -> Config:
    return {"resources_servers": {implementation: {"domain": "games", "host": "127.0.0.1", "port": 10_003, **fields}}}


def maze(**fields: Any) -> Config:
    """One environment: server, agent and resources server."""
    return {
        "maze_environment": environment_server("maze_agent", "maze", **fields),
        "maze_agent": agent("maze"),
        "maze": resources_server(),
    }

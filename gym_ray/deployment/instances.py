"""The server instances of a merged config as facts: environment servers, agents, resources servers, data sets.

Pure: a plain config in, frozen values out. An instance that cannot be used is kept with the reason, because an error
in a part of a deployment that nobody uses is not the runner's business.

Source: protocol §1.4 (shape), §1.5 (addresses), §1.6 (who references whom).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gym_ray import keys
from gym_ray.deployment.addresses import connectable
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.errors import ConfigError

SERVER_TYPES = (
    keys.ENVIRONMENT_SERVERS,
    keys.RESPONSES_API_AGENTS,
    keys.RESOURCES_SERVERS,
    keys.RESPONSES_API_MODELS,
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One entry of a `datasets` list: what it says about who may run its rows."""

    name: str
    pinned_agent: str | None
    taskset: str | None
    allowed_agents: Any
    """As written; read it with `allowed_types`."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One instance under `responses_api_agents`."""

    name: str
    implementation: str
    resources_server: str | None
    datasets: tuple[Dataset, ...]


@dataclass(frozen=True, slots=True)
class ResourcesServer:
    """One instance under `resources_servers`."""

    name: str
    implementation: str
    allowed_agents: Any
    """As written; read it with `allowed_types`."""
    datasets: tuple[Dataset, ...]


@dataclass(frozen=True, slots=True)
class Instances:
    """Everything in a config that a runner looks at, by instance name."""

    environment_servers: dict[str, EnvironmentServer]
    agents: dict[str, Agent]
    resources_servers: dict[str, ResourcesServer]
    unusable: dict[str, str]
    """Instance -> why nothing can be sent to it or asked of it."""
    references: dict[str, tuple[str, ...]]
    """Environment server, usable or not -> the agents that it names."""


def read_instances(config: Mapping[str, Any]) -> Instances:
    """The facts of every server instance; costs time in proportion to the config."""
    found = Instances({}, {}, {}, {}, {})
    for name, tree in config.items():
        if not isinstance(tree, Mapping):
            continue
        for server_type in SERVER_TYPES:
            if server_type in tree:
                _read_instance(name, server_type, tree[server_type], found)
    return found


def allowed_types(declared: Any, where: str) -> frozenset[str]:
    """The agent types of an `allowed_agents` value; empty means that every type is allowed.

    Raises:
        ConfigError: neither a string nor a list of strings.
    """
    if declared is None:
        return frozenset()
    names = [declared] if isinstance(declared, str) else declared
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}.allowed_agents: expected an agent type or a list of them, found {names!r}")
    return frozenset(name for name in names if name)


def _read_instance(name: str, server_type: str, implementations: Any, found: Instances) -> None:
    if not isinstance(implementations, Mapping) or len(implementations) != 1:
        count = len(implementations) if isinstance(implementations, Mapping) else "no"
        found.unusable[name] = f"{name}.{server_type}: expected exactly one implementation, found {count}"
        return
    implementation, block = next(iter(implementations.items()))
    if not isinstance(block, Mapping):
        found.unusable[name] = f"{name}.{server_type}.{implementation}: expected a mapping, found {_kind(block)}"
        return
    if server_type == keys.ENVIRONMENT_SERVERS:
        _read_environment_server(name, str(implementation), block, found)
    elif server_type == keys.RESPONSES_API_AGENTS:
        found.agents[name] = Agent(
            name, str(implementation), _reference(block.get(keys.RESOURCES_SERVER)), tuple(_datasets(block))
        )
    elif server_type == keys.RESOURCES_SERVERS:
        found.resources_servers[name] = ResourcesServer(
            name, str(implementation), block.get("allowed_agents"), tuple(_datasets(block))
        )


def _read_environment_server(name: str, implementation: str, block: Mapping[str, Any], found: Instances) -> None:
    agents = found.references[name] = tuple(dict.fromkeys(_referenced_agents(block)))
    try:
        base_url = _base_url(block)
    except ValueError as error:
        found.unusable[name] = f"{name}.{keys.ENVIRONMENT_SERVERS}.{implementation}.{error}"
        return
    attributed = _reference(block.get(keys.AGENT_SERVER)) or (agents[0] if len(agents) == 1 else None)
    found.environment_servers[name] = EnvironmentServer(
        name=name,
        result_type=implementation,
        base_url=base_url,
        agents=agents,
        attributed_agent=attributed,
        resources_server=_reference(block.get(keys.RESOURCES_SERVER)),
    )


def _referenced_agents(block: Mapping[str, Any]) -> Iterator[str]:
    for field, value in block.items():
        is_agent = isinstance(value, Mapping) and (
            value.get("type") == keys.RESPONSES_API_AGENTS or (field == keys.AGENT_SERVER and value.get("type") is None)
        )
        if is_agent and (name := _reference(value)):
            yield name


def _reference(value: Any) -> str | None:
    name = value.get(keys.NAME) if isinstance(value, Mapping) else None
    return name if isinstance(name, str) and name else None


def _datasets(block: Mapping[str, Any]) -> Iterator[Dataset]:
    entries = block.get("datasets")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            yield Dataset(
                name=str(entry.get("name") or ""),
                pinned_agent=_text(entry.get("agent")),
                taskset=_text(entry.get(keys.TASKSET)),
                allowed_agents=entry.get("allowed_agents"),
            )


def _base_url(block: Mapping[str, Any]) -> str:
    host, port = block.get("host"), block.get("port")
    if not isinstance(host, str) or "${" in host:
        raise ValueError(f"host: expected a host name, found {host!r}")
    if isinstance(port, str) and port.isdecimal():
        port = int(port)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise ValueError(f"port: expected a port number, found {port!r}")
    host = connectable(host.strip())
    return f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"

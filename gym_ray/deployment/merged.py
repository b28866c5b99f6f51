"""The deployment that a run talks to, and where its merged config comes from.

The config holds credentials. A `Deployment` never shows it: not in `repr`, not in a message, not in a file.

Source: protocol §1.1-1.6.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gym_ray import keys
from gym_ray.deployment.head import HeadAddress, fetch_config_text
from gym_ray.deployment.instances import Agent, Instances, ResourcesServer, read_instances
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.deployment.suggestions import did_you_mean
from gym_ray.deployment.yaml_config import parse_config, resolve_config
from gym_ray.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    RoutingError,
)

CONFIG_VARIABLE = "NEMO_GYM_CONFIG_DICT"
PAIRING_VARIABLE = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"


@dataclass(frozen=True, slots=True, repr=False)
class Deployment:
    """The merged config of a deployment and the facts in it. Plain values: it crosses process borders."""

    source: str
    """Where the config was read from, for messages."""
    config: dict[str, Any]
    """The whole config, resolved as far as it can be here. Holds credentials: `mask_secrets` before it is shown."""
    allows_unsupported_pairing: bool = False
    """The deployment or the environment says that agents may run tasks that do not admit them."""
    _instances: Instances = field(init=False, compare=False)
    _fronts: dict[str, tuple[str, ...]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        instances = read_instances(self.config)
        fronts: dict[str, list[str]] = {}
        for server, agents in instances.references.items():
            for agent in agents:
                fronts.setdefault(agent, []).append(server)
        object.__setattr__(self, "_instances", instances)
        object.__setattr__(self, "_fronts", {agent: tuple(servers) for agent, servers in fronts.items()})

    def __repr__(self) -> str:
        return (
            f"Deployment(source={self.source!r}, environment_servers={sorted(self._instances.environment_servers)}, "
            f"agents={sorted(self._instances.agents)})"
        )

    @classmethod
    def of_config(
        cls, config: Mapping[str, Any], source: str = "the given config", environ: Mapping[str, str] = os.environ
    ) -> "Deployment":
        """The deployment of a merged config that is at hand: a mapping or an OmegaConf one, resolved or not."""
        plain = resolve_config(config)
        variable = environ.get(PAIRING_VARIABLE, "")
        allows = plain.get("allow_unsupported_pairing") is True or variable.lower() not in {"", "0", "false"}
        return cls(source, plain, allows)

    @property
    def environment_servers(self) -> Mapping[str, EnvironmentServer]:
        """Every environment server that can be reached, in the order of the config."""
        return MappingProxyType(self._instances.environment_servers)

    @property
    def agents(self) -> Mapping[str, Agent]:
        return MappingProxyType(self._instances.agents)

    @property
    def resources_servers(self) -> Mapping[str, ResourcesServer]:
        return MappingProxyType(self._instances.resources_servers)

    @property
    def environment_server_routes(self) -> Mapping[str, str]:
        """Taskset -> environment server, as the deployment declares it."""
        routes = self.config.get("environment_server_routes")
        if not isinstance(routes, Mapping):
            return {}
        return {str(taskset): server for taskset, server in routes.items() if isinstance(server, str)}

    @property
    def observability_enabled(self) -> bool:
        return self.config.get("observability_enabled") is True

    @property
    def model_call_capture_dir(self) -> Path | None:
        """Where servers capture model calls, or None when they do not.

        Raises:
            ConfigError: observability is on without an absolute folder.
        """
        if not self.observability_enabled:
            return None
        folder = self.config.get("model_call_capture_dir")
        if not isinstance(folder, str) or not Path(folder).is_absolute():
            raise ConfigError(
                f"{self.source}: observability_enabled needs an absolute model_call_capture_dir, found {folder!r}: "
                "set it in the deployment's config, or switch observability off"
            )
        return Path(folder)

    def environment_server(self, name: str) -> EnvironmentServer:
        """The environment server with this instance name.

        Raises:
            RoutingError: there is none.
            ConfigError: there is one, but its block in the config cannot be used.
        """
        if server := self._instances.environment_servers.get(name):
            return server
        if name in self._instances.unusable:
            raise ConfigError(f"{self.source}: {self._instances.unusable[name]}")
        hint = did_you_mean(name, self._instances.environment_servers)
        what = "exists, but is not one" if name in self.config else "is not in the deployment"
        raise RoutingError(f"environment server {name!r} {what}: {hint}")

    def agent(self, name: str) -> Agent:
        """The agent with this instance name.

        Raises:
            RoutingError: there is none.
        """
        if agent := self._instances.agents.get(name):
            return agent
        if reason := self._instances.unusable.get(name):
            raise ConfigError(f"{self.source}: {reason}")
        if name in self.config:
            raise RoutingError(f"agent {name!r} exists in the deployment, but is not an agent")
        raise RoutingError(f"agent {name!r} is not in the deployment: {did_you_mean(name, self._instances.agents)}")

    def server_for_agent(self, name: str) -> EnvironmentServer:
        """The one environment server that fronts an agent.

        Raises:
            RoutingError: no such agent.
            AgentWithoutEnvironmentServerError: none fronts it.
            AmbiguousEnvironmentServerError: several front it.
        """
        self.agent(name)
        fronts = self._fronts.get(name, ())
        if not fronts:
            raise AgentWithoutEnvironmentServerError(
                f"agent {name!r}: no environment server of the deployment fronts it: "
                f"add one whose {keys.AGENT_SERVER} names it"
            )
        if len(fronts) > 1:
            raise AmbiguousEnvironmentServerError(
                f"agent {name!r}: {len(fronts)} environment servers front it ({', '.join(fronts)}): "
                "choose one with environment_routing_mode=legacy and environment_server_name, or by taskset"
            )
        return self.environment_server(fronts[0])


def load_deployment(
    *, head: str | None = None, file: str | None = None, environ: Mapping[str, str] = os.environ
) -> Deployment:
    """The deployment to talk to, from the first of these that is given: `file`, `head`, the variable
    `NEMO_GYM_CONFIG_DICT`, the default head address. Blocks for up to 10 s when it asks a head.

    Args:
        head: `HOST:PORT` of a head server.
        file: a merged config as YAML or JSON.

    Raises:
        ConfigError: the file or the variable cannot be read or used.
        DeploymentUnreachableError: the head does not answer as one.
    """
    text, source = _config_text(head, file, environ)
    return Deployment.of_config(parse_config(text, source), source, environ)


def _config_text(head: str | None, file: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    if file is not None:
        try:
            return _unwrapped(Path(file).expanduser().read_text(encoding="utf-8")), file
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"deployment: {file} cannot be read: {_reason(error)}") from None
    if head is None and environ.get(CONFIG_VARIABLE):
        return environ[CONFIG_VARIABLE], CONFIG_VARIABLE
    address = HeadAddress.parse(head) if head is not None else HeadAddress()
    return fetch_config_text(address), address.url


def _unwrapped(text: str) -> str:
    """The YAML of a file that holds a head's answer as it came: a JSON string."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"

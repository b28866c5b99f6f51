"""A deployment and what can be asked of it: who serves an agent, where, and who may run what.

Pure: built from a config that is at hand. The config holds credentials. A `Deployment` never shows it: not in `repr`,
not in a message.

Source: protocol §1.4-1.6.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gym_ray import keys
from gym_ray.deployment.instances import Agent, Instances, ResourcesServer, read_instances
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.deployment.suggestions import did_you_mean
from gym_ray.deployment.yaml_config import resolve_config
from gym_ray.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    RoutingError,
)

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
    def model_call_capture_dir(self) -> str | None:
        """The folder in which servers capture model calls, or None when they do not.

        Raises:
            ConfigError: observability is on without an absolute folder.
        """
        if not self.observability_enabled:
            return None
        folder = self.config.get("model_call_capture_dir")
        if not isinstance(folder, str) or not folder.startswith("/"):
            raise ConfigError(
                f"{self.source}: observability_enabled needs an absolute model_call_capture_dir, found {folder!r}: "
                "set it in the deployment's config, or switch observability off"
            )
        return folder

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

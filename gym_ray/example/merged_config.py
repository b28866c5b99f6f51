"""The merged config of the example: who is where, who fronts whom, which tasks belong to whom.

Source: protocol §1.4 (shape), §1.7 (instance descriptors).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym_ray import keys
from gym_ray.example.environment import EnvironmentFacts, JsonObject
from gym_ray.example.profile import Limits

_AGENT_IMPLEMENTATION = "simple_agent"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, as clients should name it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self}"


@dataclass(frozen=True, slots=True)
class Instance:
    """One server instance of the config."""

    name: str
    server_type: str
    implementation: str


def instances_of(facts: EnvironmentFacts) -> tuple[Instance, Instance, Instance]:
    """The environment server, the agent and the resources server of one environment."""
    return (
        Instance(facts.server, keys.ENVIRONMENT_SERVERS, facts.implementation),
        Instance(facts.agent, keys.RESPONSES_API_AGENTS, _AGENT_IMPLEMENTATION),
        Instance(facts.resources_server, keys.RESOURCES_SERVERS, facts.resources_server),
    )


def merged_config(
    environments: Sequence[EnvironmentFacts],
    addresses: Mapping[str, Address],
    head: Address,
    limits: Limits,
    rows: Mapping[str, Path],
) -> JsonObject:
    """The config that the head publishes; `addresses` by instance name, `rows` by resources server."""
    config: JsonObject = {
        "default_host": head.host,
        keys.HEAD_SERVER: {"host": head.host, "port": head.port, "num_workers": None},
        "observability_enabled": False,
        "environment_server_routes": {facts.taskset: facts.server for facts in environments if facts.taskset},
    }
    for facts in environments:
        blocks = _environment_server(facts, limits), _agent(facts), _resources_server(facts, rows)
        for instance, block in zip(instances_of(facts), blocks, strict=True):
            address = addresses[instance.name]
            where = {"host": address.host, "port": address.port, "num_workers": None}
            config[instance.name] = {instance.server_type: {instance.implementation: {**block, **where}}}
    return config


def _environment_server(facts: EnvironmentFacts, limits: Limits) -> JsonObject:
    return {
        "entrypoint": "app.py",
        keys.AGENT_SERVER: {"type": keys.RESPONSES_API_AGENTS, keys.NAME: facts.agent},
        keys.RESOURCES_SERVER: _resources_reference(facts),
        "max_concurrent_episodes": limits.max_concurrent_episodes,
        "queue_timeout_seconds": limits.queue_timeout_s,
        "default_episode_timeout_seconds": limits.episode_timeout_s,
    }


def _agent(facts: EnvironmentFacts) -> JsonObject:
    return {"entrypoint": "app.py", keys.RESOURCES_SERVER: _resources_reference(facts)}


def _resources_server(facts: EnvironmentFacts, rows: Mapping[str, Path]) -> JsonObject:
    dataset: JsonObject = {
        "name": facts.resources_server,
        "type": "example",
        "jsonl_fpath": str(rows[facts.resources_server]),
        "num_repeats": 1,
    }
    if facts.taskset is not None:
        dataset[keys.TASKSET] = facts.taskset
    return {
        "entrypoint": "app.py",
        "domain": facts.domain,
        "datasets": [dataset],
        "allowed_agents": [_AGENT_IMPLEMENTATION],
    }


def _resources_reference(facts: EnvironmentFacts) -> JsonObject:
    return {"type": keys.RESOURCES_SERVERS, keys.NAME: facts.resources_server}

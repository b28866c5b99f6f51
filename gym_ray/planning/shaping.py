"""How rows become rollouts: the settings of planning as frozen values.

Pure. Whatever a setting names by path (a prompt, skills, a list of task ids) is already read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gym_ray.config import RolloutCollectionConfig, RoutingMode

DEFAULT: str = "_default"
"""The entry of `agent_map` and `num_repeats` for everything that they do not name."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """The settings of planning (protocol §5.1)."""

    limit: int | None = None
    """Input rows to read; None and 0 mean all."""
    agent_map: Mapping[str, str] = field(default_factory=dict)
    fan_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    num_repeats: int | Mapping[str, int] = 1
    num_repeats_add_seed: bool = False
    interleave_repeats: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Top-level keys that replace those of a flat row's `responses_create_params`."""
    routing_mode: RoutingMode = "agent"
    environment_server_name: str | None = None
    environment_server_routes: Mapping[str, str] = field(default_factory=dict)
    """Without any, those of the deployment count."""
    allow_unsupported_pairing: bool = False

    @classmethod
    def of_config(cls, config: RolloutCollectionConfig) -> "Shaping":
        """The shaping that a run's settings ask for."""
        agent_map = dict(config.agent_map or {})
        if config.agent_name is not None:
            agent_map[DEFAULT] = config.agent_name
        return cls(
            limit=config.limit,
            agent_map=agent_map,
            fan_out={basis: tuple(agents) for basis, agents in (config.fan_out or {}).items()},
            num_repeats=config.num_repeats,
            num_repeats_add_seed=config.num_repeats_add_seed,
            interleave_repeats=config.interleave_repeats,
            overrides=config.responses_create_params,
            routing_mode=config.environment_routing_mode,
            environment_server_name=config.environment_server_name,
            environment_server_routes=config.environment_server_routes,
            allow_unsupported_pairing=config.allow_unsupported_pairing,
        )

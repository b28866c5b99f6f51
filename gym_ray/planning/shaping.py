"""How rows become rollouts: the settings of planning as frozen values.

Pure: whatever a setting names by path (a prompt, skills, a list of task ids) is already read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gym_ray.config import RoutingMode
from gym_ray.planning.selection import TaskChoice
from gym_ray.rows.prompts import Prompt

DEFAULT: Final = "_default"
"""The entry of `agent_map` and `num_repeats` for everything that they do not name."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """The settings of planning (protocol §5.1)."""

    limit: int | None = None
    """Input rows to read; None and 0 mean all."""
    choice: TaskChoice = field(default_factory=TaskChoice)
    prompt: Prompt | None = None
    agent_map: Mapping[str, str] = field(default_factory=dict)
    fan_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    num_repeats: int | Mapping[str, int] = 1
    num_repeats_add_seed: bool = False
    interleave_repeats: bool = False
    interleave_by_agent: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Top-level keys that replace those of a flat row's `responses_create_params`."""
    skills_ref: Mapping[str, Any] | None = None
    """The stamp of every flat row."""
    routing_mode: RoutingMode = "agent"
    environment_server_name: str | None = None
    environment_server_routes: Mapping[str, str] = field(default_factory=dict)
    """Without any, those of the deployment count."""
    allow_unsupported_pairing: bool = False

    @property
    def is_reordered(self) -> bool:
        """True if rollouts do not start in the order in which they are planned."""
        return self.interleave_repeats or self.interleave_by_agent

"""The facts about an environment server that the rest of gym_ray needs; plain values that cross processes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnvironmentServer:
    """One instance under `environment_servers:` of the merged config (protocol §1.4-1.6)."""

    name: str
    result_type: str
    """Its implementation key, stamped on records as `_ng_result_type`."""
    base_url: str
    """`http://host:port`, without a trailing slash; wildcard hosts are already loopback."""
    agents: tuple[str, ...] = ()
    """Every agent that it references, in field order."""
    attributed_agent: str | None = None
    resources_server: str | None = None

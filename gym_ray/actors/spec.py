"""What driver and shards are told at their start: frozen plain values that cross process borders."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gym_ray.aggregation.policy import Policy
from gym_ray.config import OnStall, RecordFormat
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.enrichment.enrich import Payloads
from gym_ray.paths import RunPaths
from gym_ray.recording.journal import SEAL_BYTES
from gym_ray.recording.manifest import Identity

DEFAULT_MAX_ATTEMPTS = 3
"""Source: protocol §0.3."""


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """How a shard talks to environment servers. A lease names its server by the position in `servers`."""

    servers: tuple[EnvironmentServer, ...]
    retry_budget_s: float | None
    max_connections: int
    """Attempts that are in flight in this shard while all shards are there; it makes room for as many sockets, or
    refuses."""
    wanted_connections: int = 0
    """As many when it is the last one; it makes room for them as far as the machine allows."""
    capture_dir: str | None = None
    """Where model servers capture their calls; None if they do not."""


@dataclass(frozen=True, slots=True)
class DriverSpec:
    """One driver: its shards and the cap that they share."""

    shard: ShardSpec
    shards: int
    cap: int
    server_caps: Mapping[str, int] = field(default_factory=dict)
    """Most rollouts in flight at a server, by its name, where a user has set it."""
    model_urls: tuple[str, ...] = ()
    """Inference servers that can say how busy they are."""
    spawn_timeout_s: float = 120.0
    """How long the cluster may take to place the shards."""


NO_IDENTITY, NO_POLICY = Identity(), Policy()
MISSING = "missing"
ANY_FAILURE = "failed"


@dataclass(frozen=True, slots=True)
class Resume:
    """How a run is continued."""

    only: tuple[str, ...] | None = None
    """Run nothing but `missing` (no record at all), `failed`, and `failed:CLASS` (a pattern): final failures of such
    a class too. None runs everything that has neither a result nor a final failure."""
    longest_first: bool = False
    """Start those first that took longest before."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run inside a driver."""

    run_id: str
    agent_servers: dict[str, int]
    """Agent -> position of the environment server that fronts it, for rows without a server stamp."""
    paths: RunPaths | None = None
    """Where the materialized inputs are and the records go; None keeps rows and results in memory."""
    folder_token: str | None = None
    """What the caller has left in that folder; a driver that does not find it looks at another one."""
    record_shards: int = 1
    """How many record files of each kind there are; independent of how many actors dispatch."""
    deliver: bool = False
    """Hand every outcome to the caller through `next`."""
    retry_requests: bool = True
    """Replay what may have been delivered; without it that becomes a failure."""
    rollout_timeout_s: float | None = None
    dispatch_budget_s: float | None = None
    drain_margin_s: float | None = None
    token_budget: int | None = None
    server_patience_s: float | None = None
    """How long rollouts are held back for a server that is gone before they fail unsent; None lets each fail by
    itself."""
    stall_factor: float = 5.0
    """So many times the 99th percentile of durations without one that ends is a stall."""
    on_stall: OnStall = "report"
    is_plain: bool = False
    """Deliver results as the servers' own replies, byte for byte; nothing is recorded."""
    is_enriched: bool = False
    """As `is_plain`, but only for rows that have no rollout id; the others become records."""
    enrichment: tuple[Payloads, bool] | None = None
    """Merge captured calls into records: what becomes of their bodies, and whether the captures are removed."""
    is_draining: bool = False
    """It was asked to start nothing before a driver had it."""
    is_open_ended: bool = False
    """More rows are fed, or released from the plan, later; the run ends only after `Driver.feed` or `Driver.release`
    has said that there are no more."""
    records_omitted: bool = False
    """Write a sidecar row also for a rollout that ends without a record; no reader counts it as an attempt."""
    marks_failures_unrouted: bool = False
    """The caller raises failures: their sidecar rows are evidence that readers pass over."""
    resume: Resume | None = None
    """Continue what the folder holds; None begins a run in a folder without records."""
    identity: Identity = NO_IDENTITY
    """What a later continuation compares with its own settings."""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    """A failure that used up this many attempts is final."""
    resume_command: str | None = None
    """What a person types to continue the run."""
    policy: Policy = NO_POLICY
    record_format: RecordFormat = "jsonl"
    part_bytes: int = SEAL_BYTES
    checks_quality: bool = False
    """Look at every result once more for what no rule can call a failure."""
    merge: bool = True
    aggregate: bool = True
    aggregate_timeout_s: float = 600.0

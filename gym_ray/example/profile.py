"""How the example's servers behave: latency, slow requests, faults.

Source: the flags of `gym-ray serve-example` and `gym-ray run --example`.
"""

from dataclasses import dataclass
from enum import StrEnum

from gym_ray.errors import ConfigError

SLOW_FACTOR = 20
"""What a request of the tail takes, compared with its drawn latency: enough to hold up a run that waits for it."""


class FaultKind(StrEnum):
    """What may go wrong instead of a proper reply."""

    STATUS = "status"
    """An HTTP error status with a body."""
    DROP = "drop"
    """The work is done, then the connection closes without a byte of reply."""
    CUT = "cut"
    """Status 200 and half of the body arrive, then the connection closes."""
    BAD_JSON = "badjson"
    """Status 200 with a body that is no JSON."""
    HANG = "hang"
    """No answer until the client gives up or the episode's time is over."""
    HANDLED = "handled"
    """Status 200 with a failure that the environment server reports itself."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to go wrong."""

    kind: FaultKind
    status: int = 0
    """For `FaultKind.STATUS` only."""

    @property
    def name(self) -> str:
        """As it is written in a flag: a status, or the kind."""
        return str(self.status) if self.kind is FaultKind.STATUS else self.kind.value

    @property
    def is_refusal(self) -> bool:
        """True if something in front of the server answers, so that nothing is executed (protocol §2.6)."""
        return self.status in {429, 502, 503, 504}


@dataclass(frozen=True, slots=True)
class LatencyRange:
    """Seconds from the start of an execution to its reply, drawn evenly between the two."""

    low_s: float = 0.0
    high_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The behaviour of every environment server of one deployment. Shares are fractions of all attempts."""

    latency: LatencyRange = LatencyRange()
    tail_share: float = 0.0
    """Attempts that take `SLOW_FACTOR` times their latency."""
    faults: tuple[tuple[Fault, float], ...] = ()
    """Each fault with its share; together at most 1."""
    seed: int = 0
    """Draws other latencies and faults; the scripted model's answers do not depend on it."""


PLAIN = Profile()
"""Answers at once and without faults."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The concurrency limits of each environment server (protocol §2.8); None means no limit."""

    max_concurrent_episodes: int | None = None
    queue_timeout_s: float | None = None
    """How long an attempt waits for a free place; required beside `max_concurrent_episodes`."""
    episode_timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.max_concurrent_episodes is not None and self.max_concurrent_episodes < 1:
            raise ConfigError(f"max_concurrent_episodes: expected at least 1, found {self.max_concurrent_episodes}")
        if self.max_concurrent_episodes is not None and self.queue_timeout_s is None:
            raise ConfigError(
                "max_concurrent_episodes needs queue_timeout_s: how long may an episode wait for a place?"
            )


UNLIMITED = Limits()
"""Every request starts at once and may take as long as it takes."""

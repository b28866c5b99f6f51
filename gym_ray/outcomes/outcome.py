"""How one attempt of a rollout ended, ready to be recorded."""

from dataclasses import dataclass
from enum import IntEnum


class OutcomeKind(IntEnum):
    """Where the record of an outcome belongs (protocol §7.3)."""

    RESULT = 0
    """The rollouts file."""
    FAILURE = 1
    """The sidecar."""
    OMITTED = 2
    """Nowhere: the server asked for no record; the rollout stays owed."""
    WITHHELD = 3
    """Nowhere: it never started, because a budget was spent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One ended attempt. `record` is the exact JSON line, newline included."""

    kind: OutcomeKind
    record: bytes
    reward: float | None = None
    """The top-level reward of a result; None when unscored."""
    masked: bool = False
    failure_class: str | None = None
    terminal: bool = False
    is_interruption: bool = False
    """A failure that does not count against the attempts of its rollout: cancelled, killed, or never sent."""
    tokens: int | None = None
    """`response.usage.total_tokens` of a result, where reported."""
    has_observations: bool = False
    """The reply tells what its agent observed, from which a trajectory can be built."""
    reply_bytes: int = 0
    """If positive, `record[:reply_bytes] + b"}"` is the server's own reply object, byte for byte."""

"""What came back from one `POST`: bytes with a status, or the reason that nothing did.

Invariant: every call of the client ends in exactly one `Reply`; only cancellation and our own bugs raise.
Source: protocol §4.4.
"""

from dataclasses import dataclass
from enum import StrEnum


class Delivery(StrEnum):
    """The evidence about whether a request reached its server."""

    NOT_SENT = "not_sent"
    POSSIBLY_DELIVERED = "possibly_delivered"
    DELIVERED = "delivered"


@dataclass(frozen=True, slots=True)
class Answered:
    """An HTTP status and a whole body arrived."""

    status: int
    body: bytes
    url: str
    """Without credentials."""
    sends: int = 1
    """How often the request may have reached the server. More than 1 means that it was replayed."""
    tries: int = 1
    """`sends`, and the tries of which it is certain that they did not reach the server."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No whole reply arrived within the bounds of the retry policy; these are the facts of the last try."""

    delivery: Delivery
    """Over all tries: a request that was dropped once and refused afterwards is possibly delivered."""
    failure_kind: str
    """One of the transport kinds in `keys`, or `AGENT_RUN_ERROR` for a body that arrived and cannot be read."""
    exception_type: str
    message: str
    """At most 2,000 characters, without secrets."""
    url: str
    """Without credentials."""
    status: int | None = None
    """The status, if it arrived before the body broke off."""
    sends: int = 0
    tries: int = 1


Reply = Answered | Unanswered

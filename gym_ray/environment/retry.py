"""Decides whether a try of `/run` that went wrong is followed by another. Pure: the clock and the dice are arguments.

    what happened                                          goes again       how often
    stale: a kept-alive connection that its server had
      closed, so that the request was not taken            always           at once 16 times, then within 60 s
    unreachable: refused, DNS, no route, connect time-out  always           3 tries within 10 s
    no descriptors, ports or buffers on our side           always           within 120 s
    dropped, and surely not taken                          always           5 tries within 60 s
    dropped, reset or cut short: may have been taken       retry_requests   5 tries within 60 s
    read time-out                                          retry_requests   3 tries within 30 s
    429, and 503 with a usable Retry-After                 always           within 60 s
    503 without one                                        retry_requests   within 60 s
    every other status, 502 and 504 included               never
    bad URL, no HTTP, undecodable or oversized body        never

Times run from the first failure of the same cause; `retry_budget_s` bounds them all, from the first failure of any.

`retry_requests=False` means that nothing is replayed which may have been delivered. A 429, and a 503 that says when to
come back, are answers of a gate that refused the request, so they are no delivery; a bare 503 is also what proxies say
after losing a server in the middle of a request. For the same reason a 502 or 504 never goes again: with
`retry_requests` a new attempt of a later resume may run it, under its own attempt number.

Waits are `min(0.5 * 2**n, 8)` seconds times a random factor in [0.5, 1]. After a Retry-After the wait is never shorter
than the server asked for, and up to one such step longer, so that those who were refused together do not return
together; a Retry-After that ends after the last permitted moment is given up at once.

Source: protocol §4.4; Retry-After: RFC 9110 §10.2.3.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from math import inf

from gym_ray.outcomes.reply import Delivery, Reply


class Cause(Enum):
    """Why a try is not the end of it, by what can be done about it."""

    STALE = auto()
    UNREACHABLE = auto()
    LOCAL_RESOURCE = auto()
    DROPPED = auto()
    TIMEOUT = auto()
    THROTTLED = auto()
    FINAL = auto()


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long one cause may go on; tries include the first."""

    max_tries: int | None
    window_s: float
    free_tries: int = 0
    """The first of them need no wait."""


BOUNDS = {
    Cause.STALE: Bounds(None, 60.0, free_tries=16),
    Cause.UNREACHABLE: Bounds(3, 10.0),
    Cause.LOCAL_RESOURCE: Bounds(None, 120.0),
    Cause.DROPPED: Bounds(5, 60.0),
    Cause.TIMEOUT: Bounds(3, 30.0),
    Cause.THROTTLED: Bounds(None, 60.0),
    Cause.FINAL: Bounds(1, 0.0),
}
FIRST_WAIT_S, LONGEST_WAIT_S, DOUBLINGS = 0.5, 8.0, 4

THROTTLING = frozenset({429, 503})
"""The statuses that can be followed by another try."""

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Setback:
    """One try that did not end in a usable answer."""

    cause: Cause
    delivery: Delivery
    """The evidence about this try alone."""
    reply: Reply
    """What is returned if nothing follows."""
    retry_after_s: float | None = None
    """The wait that the server asked for, where it did so in a way that can be read."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user decides about retries."""

    retry_requests: bool
    retry_budget_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Try again after this time."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing follows, because of `reason`."""

    reason: str


Past = Sequence[tuple[Cause, float]]
"""The earlier setbacks of the same rollout, oldest first: their causes and monotonic instants."""


def decide(
    policy: Policy, past: Past, setback: Setback, *, now: float, draw: float, not_after: float = inf
) -> Wait | GiveUp:
    """What follows `setback`.

    `now` and `not_after` are instants of the clock of `past`; no wait ends after `not_after`. `draw` is a random
    number in [0, 1).
    """
    bounds = BOUNDS[setback.cause]
    if setback.cause is Cause.FINAL:
        return GiveUp("it is not one that another try can change")
    if not policy.retry_requests and _may_have_run(setback):
        return GiveUp("it may have been delivered, and retry_requests is off")
    same = [at for cause, at in past if cause is setback.cause]
    if bounds.max_tries is not None and len(same) + 1 >= bounds.max_tries:
        return GiveUp(f"{bounds.max_tries} tries are the limit")
    if len(same) < bounds.free_tries:
        return Wait(0.0)
    latest = (same[0] if same else now) + bounds.window_s
    if policy.retry_budget_s is not None:
        latest = min(latest, (past[0][1] if past else now) + policy.retry_budget_s)
    latest = min(latest, not_after)
    step = min(FIRST_WAIT_S * 2 ** min(len(same) - bounds.free_tries, DOUBLINGS), LONGEST_WAIT_S)
    if setback.retry_after_s is None:
        delay_s = step * (0.5 + 0.5 * draw)
    else:
        # Only the spread bends to the limit, so a wait that fits barely is not given up for the sake of it
        delay_s = setback.retry_after_s + min(step * draw, max(latest - now - setback.retry_after_s, 0.0))
    if now + delay_s > latest:
        return GiveUp(f"the next wait of {delay_s:.3g} s would end after the last permitted moment")
    return Wait(delay_s)


def read_retry_after(value: str | None, date: str | None, wall_time: float) -> float | None:
    """The seconds that a `Retry-After` header asks for, from its seconds or its HTTP date; None where it has neither.

    A date is compared with the answer's own `Date`, so that clocks which disagree do no harm; without one, with
    `wall_time` (Unix seconds).
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    until = _read_http_date(value)
    if until is None:
        return None
    sent_at = _read_http_date(date) if date is not None else None
    return max(until - (wall_time if sent_at is None else sent_at), 0.0)


def _may_have_run(setback: Setback) -> bool:
    if setback.cause is Cause.THROTTLED:
        return setback.reply.status == 503 and setback.retry_after_s is None
    return setback.delivery is not Delivery.NOT_SENT


def _read_http_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None  # the parser of mail dates is lenient, and not total

"""Token counts of one captured model call, whatever dialect its response speaks. Pure. Source: protocol §8.4."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Tokens(NamedTuple):
    """Counts of one call; None where its response does not say."""

    sent: int | None = None
    received: int | None = None
    reasoning: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_creation: int | None = None


def read_tokens(response: Any) -> Tokens:
    """The counts in the `usage` of a response."""
    usage = response.get("usage") if isinstance(response, Mapping) else None
    if not isinstance(usage, Mapping):
        return Tokens()
    read, created = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    sent = first(count(usage.get("input_tokens")), count(usage.get("prompt_tokens")))
    if sent is not None:
        sent += (read or 0) + (created or 0)
    elif read or created:
        sent = (read or 0) + (created or 0)
    received = first(count(usage.get("output_tokens")), count(usage.get("completion_tokens")))
    total = count(usage.get("total_tokens"))
    if total is None and sent is not None and received is not None:
        total = sent + received
    inputs = _details(usage, "prompt_tokens_details", "input_tokens_details")
    outputs = _details(usage, "output_tokens_details", "completion_tokens_details")
    return Tokens(
        sent=sent,
        received=received,
        reasoning=first(
            *(count(each.get("reasoning_tokens")) for each in outputs), count(usage.get("reasoning_output_tokens"))
        ),
        total=total,
        cached=first(
            *(count(each.get(key)) for each in inputs for key in ("cached_tokens", "cached_input_tokens")),
            read,
            count(usage.get("cached_input_tokens")),
        ),
        cache_creation=created,
    )


def count(value: Any) -> int | None:
    """A non-negative integer, or None."""
    return value if type(value) is int and value >= 0 else None


def first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)


def _details(usage: Mapping[str, Any], *names: str) -> list[Mapping[str, Any]]:
    return [usage[name] for name in names if isinstance(usage.get(name), Mapping)]

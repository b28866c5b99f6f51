"""How busy the servers behind a run are: requests waiting and running, summed over all of them.

Source: protocol §1.8. A server that does not answer is counted, never an error.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gym_ray.environment.prometheus import MAX_REQUESTS, gauge_sums
from gym_ray.outcomes.reply import Answered, Reply

SAMPLE_TIMEOUT_S = 2.0
MAX_SAMPLE_BYTES = 1 << 22
"""What is larger would hold up the loop while it is parsed."""

Get = Callable[[str, str, float, int], Awaitable[Reply]]
"""Fetches a path of a base URL within a time limit, if the body has no more bytes than given."""


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One look at all servers."""

    waiting: int
    running: int
    servers: int
    """That answered."""
    unreachable: int


async def sample_load(get: Get, environment_urls: Sequence[str], model_urls: Sequence[str]) -> LoadSample | None:
    """Ask every server at once; None if none answers.

    Environment servers say it at `/load`; inference servers in the Prometheus text at `/metrics`, beside their `/v1`.
    """
    asked = [_ask_environment(get, url) for url in environment_urls] + [_ask_model(get, url) for url in model_urls]
    loads = await asyncio.gather(*asked)
    known = [load for load in loads if load is not None]
    if not known:
        return None
    waiting, running = sum(load[0] for load in known), sum(load[1] for load in known)
    return LoadSample(waiting, running, len(known), len(loads) - len(known))


async def _ask_environment(get: Get, url: str) -> tuple[int, int] | None:
    body = await _body(get, url, "/load")
    try:
        load = json.loads(body or b"")
        waiting, running = load["waiting"], load["running"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (int(waiting), int(running)) if _is_count(waiting) and _is_count(running) else None


async def _ask_model(get: Get, url: str) -> tuple[int, int] | None:
    body = await _body(get, url.rstrip("/").removesuffix("/v1"), "/metrics")
    return None if body is None else gauge_sums(body.decode("utf-8", "replace"))


async def _body(get: Get, url: str, path: str) -> bytes | None:
    try:
        reply = await get(url, path, SAMPLE_TIMEOUT_S, MAX_SAMPLE_BYTES)
    except ValueError:  # a host name that cannot be encoded; aiohttp lets it through
        return None
    if not isinstance(reply, Answered) or reply.status != 200:
        return None
    return reply.body


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_REQUESTS

"""How busy the servers behind a run are: requests waiting and running, summed over all of them.

Source: protocol §1.8. A server that does not answer is counted, never an error.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gym_ray.outcomes.reply import Answered, Reply

SAMPLE_TIMEOUT_S = 2.0
WAITING, RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(\{(\"(\\.|[^\"\\])*\"|[^\"}])*\})?\s+(?P<value>\S+)(\s+-?\d+)?\s*"
)

Get = Callable[[str, str, float], Awaitable[Reply]]
"""Fetches a path of a base URL within a time limit."""


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
    reply = await get(url, "/load", SAMPLE_TIMEOUT_S)
    if not isinstance(reply, Answered) or reply.status != 200:
        return None
    try:
        load = json.loads(reply.body)
        return int(load["waiting"]), int(load["running"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


async def _ask_model(get: Get, url: str) -> tuple[int, int] | None:
    reply = await get(url.rstrip("/").removesuffix("/v1"), "/metrics", SAMPLE_TIMEOUT_S)
    if not isinstance(reply, Answered) or reply.status != 200:
        return None
    return gauge_sums(reply.body.decode("utf-8", "replace"))


def gauge_sums(text: str) -> tuple[int, int] | None:
    """Requests waiting and running in a Prometheus text, over all label sets; None if it has neither."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line) if line.startswith((WAITING, RUNNING)) else None
        if found is None or found["name"] not in (WAITING, RUNNING):
            continue
        try:
            sums[found["name"]] = sums.get(found["name"], 0.0) + int(float(found["value"]))
        except (ValueError, OverflowError):
            continue  # NaN and infinities are no number of requests
    return (int(sums.get(WAITING, 0)), int(sums.get(RUNNING, 0))) if sums else None

"""One `POST /aggregate_metrics` for each environment server, all at once, each body streamed; and what is kept of it.

Invariant: every group ends in exactly one entry; a failed one holds `aggregation_error` and empty metrics.
Source: protocol §3.1-3.5.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NoReturn

from gym_ray import keys
from gym_ray.aggregation.grouping import Group, labels
from gym_ray.aggregation.stripping import stripped
from gym_ray.errors import AggregationError
from gym_ray.outcomes.reply import Answered, Reply

CHUNK_BYTES = 256 << 10
MAX_TEXT = 2_000

Entry = dict[str, Any]
Post = Callable[[str, AsyncIterator[bytes]], Awaitable[Reply]]
"""Sends a body to `/aggregate_metrics` of a base URL, within its own time limit; never raises for a server's fault."""
Lines = Callable[[Group], Iterator[bytes]]
"""The winning records of a group, sorted by task and rollout."""


async def aggregate(groups: Sequence[Group], lines: Lines, post: Post) -> list[Entry]:
    """The entries of `<stem>_aggregate_metrics.json`, sorted by label (protocol §3.4)."""
    named = zip(labels(groups), groups, strict=True)
    entries = await asyncio.gather(*(_aggregate_one(label, group, lines, post) for label, group in named))
    return sorted(entries, key=lambda entry: str(entry[keys.AGENT_REF][keys.NAME]))


def raise_for_errors(entries: Sequence[Entry]) -> None:
    """Raise one summary if an entry holds an error.

    Raises:
        AggregationError: names each failed label with the type and status of its error.
    """
    failed = [entry for entry in entries if keys.AGGREGATION_ERROR in entry]
    if failed:
        facts = "; ".join(f"{entry[keys.AGENT_REF][keys.NAME]}: {_headline(entry)}" for entry in failed)
        raise AggregationError(
            f"{len(failed)} of {len(entries)} environment servers did not aggregate ({facts}); "
            "the records are safe: run `gym-ray aggregate` when the servers are well"
        )


def _headline(entry: Entry) -> str:
    error = entry[keys.AGGREGATION_ERROR]
    return str(error["type"]) + (f" (HTTP {error['http_status']})" if error["http_status"] else "")


async def _aggregate_one(label: str, group: Group, lines: Lines, post: Post) -> Entry:
    entry: Entry = {
        keys.AGENT_REF: {keys.NAME: label},
        keys.ENVIRONMENT_SERVER: group.server.name,
        keys.AGENT_METRICS: {},
        keys.KEY_METRICS: {},
        keys.GROUP_LEVEL_METRICS: [],
        keys.REPEAT_LEVEL_METRICS: [],
    }
    reply = await post(group.server.base_url, _body(lines(group)))
    if not isinstance(reply, Answered):
        return entry | _error(reply.exception_type, reply.message, reply.status, None)
    text = reply.body[: 4 * MAX_TEXT].decode("utf-8", "replace")[:MAX_TEXT]
    if reply.status != 200:
        return entry | _error("HTTPError", f"{reply.status}, url={reply.url!r}", reply.status, text)
    try:
        metrics = json.loads(reply.body, parse_constant=_refuse)
    except ValueError as error:
        return entry | _error("InvalidMetrics", f"the reply is not JSON: {error}", reply.status, text)
    if not isinstance(metrics, dict):
        return entry | _error("InvalidMetrics", "the reply is not a JSON object", reply.status, text)
    for key in (keys.AGENT_METRICS, keys.KEY_METRICS, keys.GROUP_LEVEL_METRICS, keys.REPEAT_LEVEL_METRICS):
        entry[key] = metrics.get(key) or entry[key]
    if metrics.get(keys.PERF_SUMMARY) is not None:
        entry[keys.PERF_SUMMARY] = metrics[keys.PERF_SUMMARY]
    return entry


async def _body(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The request body in chunks; files are read in a thread."""
    yield b'{"%b":[' % keys.VERIFY_RESPONSES.encode()
    separator = b""
    while chunk := await asyncio.to_thread(_chunk, lines):
        yield separator + chunk
        separator = b","
    yield b"]}"


def _chunk(lines: Iterator[bytes]) -> bytes:
    parts: list[bytes] = []
    size = 0
    for line in lines:
        parts.append(stripped(line))
        size += len(parts[-1])
        if size >= CHUNK_BYTES:
            break
    return b",".join(parts)


def _error(kind: str, message: str, status: int | None, body: str | None) -> Entry:
    fact = {"type": kind, "message": message[:MAX_TEXT], "http_status": status, "response_body": body}
    return {keys.AGGREGATION_ERROR: fact}


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a number in JSON")

"""One `POST /aggregate_metrics` for each environment server, all at once, each body streamed; and what is kept of it.

Invariants: every group ends in exactly one entry; a failed one holds `aggregation_error` and empty metrics; what goes
wrong with one group does not touch another.
Source: protocol §3.1-3.5.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from gym_ray import keys
from gym_ray.aggregation.grouping import Group, labels
from gym_ray.aggregation.metrics import Entry, InvalidMetrics, empty_metrics, read_metrics
from gym_ray.aggregation.stripping import stripped
from gym_ray.deployment.secrets import mask_secrets
from gym_ray.errors import AggregationError
from gym_ray.outcomes.reply import Answered, Reply
from gym_ray.outcomes.text import excerpt, public

__all__ = ["Aggregation", "Entry", "Lines", "Post", "aggregate", "aggregate_groups", "raise_for_errors"]

CHUNK_BYTES = 256 << 10
"""Of a body, sent at once."""
MAX_READ_BYTES = 4 << 20
"""Of records, read for one chunk: they may be a hundred times what is left of them."""
MAX_INLINE_BYTES = 64 << 10
"""A longer reply is parsed in a thread: a megabyte takes 10 ms."""

Post = Callable[[str, AsyncIterator[bytes]], Awaitable[Reply]]
"""Sends a body to `/aggregate_metrics` of a base URL, within its own time limit; never raises for a server's fault."""
Lines = Callable[[Group], Iterator[bytes]]
"""The records of a group sorted by (task, rollout), one for each. A generator is closed; it is used in threads."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What became of all groups, in the order of their labels."""

    entries: tuple[Entry, ...]
    faults: tuple[Exception | None, ...]
    """For each entry what was raised on our side: its records could not be read. None for a server's fault."""

    def raise_first(self) -> None:
        """Raise the first error: the exception itself where there is one. Call it when the metrics are written.

        Raises:
            AggregationError: the first failed server answered with something else than metrics, or not at all.
        """
        for entry, fault in zip(self.entries, self.faults, strict=True):
            if fault is not None:
                raise fault
            raise_for_errors([entry])


async def aggregate(
    groups: Sequence[Group], lines: Lines, post: Post, on_entry: Callable[[Entry], None] | None = None
) -> list[Entry]:
    """The entries of `<stem>_aggregate_metrics.json`, sorted by label (protocol §3.4); see `aggregate_groups`."""
    return list((await aggregate_groups(groups, lines, post, on_entry)).entries)


async def aggregate_groups(
    groups: Sequence[Group], lines: Lines, post: Post, on_entry: Callable[[Entry], None] | None = None
) -> Aggregation:
    """Have every group aggregated, all at the same time.

    `on_entry` is called with each entry as its group finishes. Cancelling cancels every post.
    """
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(_aggregate_one(label, group, lines, post, on_entry))
            for label, group in sorted(zip(labels(groups), groups, strict=True), key=lambda named: named[0])
        ]
    ended = [task.result() for task in running]
    return Aggregation(tuple(entry for entry, _ in ended), tuple(fault for _, fault in ended))


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


async def _aggregate_one(
    label: str, group: Group, lines: Lines, post: Post, on_entry: Callable[[Entry], None] | None
) -> tuple[Entry, Exception | None]:
    fault: Exception | None = None
    try:
        found = await _ask(group, lines, post)
    except Exception as error:  # noqa: BLE001 - it becomes the entry of this group, and the others go on
        fault, found = error, _error(type(error).__name__, str(error) or repr(error))
    entry = {keys.AGENT_REF: {keys.NAME: label}, keys.ENVIRONMENT_SERVER: group.server.name} | empty_metrics() | found
    if on_entry is not None:
        on_entry(entry)
    return entry, fault


async def _ask(group: Group, lines: Lines, post: Post) -> Entry:
    """The metrics of a group, or its error."""
    records = _Records(lines(group))
    try:
        reply = await post(group.server.base_url, _body(records))
    finally:
        await asyncio.shield(asyncio.to_thread(records.close))
    if not isinstance(reply, Answered):
        return _error(reply.exception_type, reply.message, reply.status)
    if not 200 <= reply.status < 300:
        return _error("HTTPError", f"{reply.status}, url={reply.url!r}", reply.status, reply.body)
    try:
        if len(reply.body) > MAX_INLINE_BYTES:
            return await asyncio.to_thread(read_metrics, reply.body)
        return read_metrics(reply.body)
    except InvalidMetrics as error:
        return _error("InvalidMetrics", str(error), reply.status, reply.body)


async def _body(records: "_Records") -> AsyncIterator[bytes]:
    """The request body in chunks."""
    yield b'{"%b":[' % keys.VERIFY_RESPONSES.encode()
    separator = b""
    while chunk := await asyncio.to_thread(records.next_chunk):
        yield separator + chunk
        separator = b","
    yield b"]}"


class _Records:
    """The records of one group, read in threads, one at a time: files would block the loop."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._reading = threading.Lock()

    def next_chunk(self) -> bytes:
        """The next stripped records, separated by commas; empty after the last."""
        parts: list[bytes] = []
        size = read = 0
        with self._reading:
            for line in self._lines:
                parts.append(stripped(line))
                size += len(parts[-1])
                read += len(line)
                if size >= CHUNK_BYTES or read >= MAX_READ_BYTES:
                    break
        return b",".join(parts)

    def close(self) -> None:
        """Let go of the files, once the chunk that is being read is read."""
        close = getattr(self._lines, "close", None)
        with self._reading:
            if close is not None:
                close()


def _error(kind: str, message: str, status: int | None = None, body: bytes = b"") -> Entry:
    """The error of a group: bounded, and without credentials that a server may have echoed."""
    text = excerpt(body)
    fact = {
        "type": kind,
        "message": mask_secrets(public(message)),
        "http_status": status,
        "response_body": mask_secrets(public(text)) if text is not None else None,
    }
    return {keys.AGGREGATION_ERROR: fact}

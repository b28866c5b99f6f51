"""The HTTP client of gym_ray: one POST in, one `Reply` out, whatever the server does.

Invariants: nothing limits connections below the cap (admission is the only gate); nothing is sent twice behind our back
(no redirects, and aiohttp resends idempotent methods only, of which POST is none); a server's fault is a value, only
cancellation and our own bugs raise; a cancelled call closes its connection, which is how a server learns of it.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from math import inf

import aiohttp
from yarl import URL

from gym_ray import keys
from gym_ray.environment.connections import CURRENT_COURSE, Connector, Course
from gym_ray.environment.faults import ReplyTooLargeError, read_fault
from gym_ray.environment.retry import BOUNDS, THROTTLING, Cause, GiveUp, Policy, Setback, decide, read_retry_after
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered
from gym_ray.outcomes.text import public

logger = logging.getLogger("gym_ray.environment")

CONNECT_TIMEOUT_S = 10.0
"""Between servers of one deployment a connection that takes longer will not come. Source: protocol §4.2."""
MAX_REPLY_BYTES = 1 << 29
"""Far above any real reply (a few MB), below what would take a shard down: a body may be compressed a thousandfold."""
MAX_HEADER_BYTES = 1 << 18
"""Newer servers put failure reports into a header; aiohttp's own limit of 8 KB would lose their rollouts."""
READ_BUFFER_BYTES = 1 << 18
"""Also the most that one step of decompression yields. For replies of 1 KB to 20 MB, 64 KB to 4 MB cost the same."""
WARN_AGAIN_S = 30.0
"""A server that is gone fails every rollout on it: say so at once, and then often enough to be seen."""
_SLICE_BYTES = 1 << 18
_LARGE_BODY_BYTES = 1 << 20
"""aiohttp warns about larger bodies that come in one piece, since writing them blocks the loop."""

_HEADERS = {"Content-Type": "application/json"}
_SEVERITY = {Delivery.NOT_SENT: 0, Delivery.POSSIBLY_DELIVERED: 1, Delivery.DELIVERED: 2}


Watch = Callable[[Setback], None]


@dataclass(frozen=True, slots=True)
class _Address:
    """Where a base URL leads, parsed once."""

    url: URL
    shown: str
    """The same, without credentials."""


class EnvironmentClient:
    """Talks to any number of environment servers; make it inside a running event loop, and `aclose` it.

    `clock` is monotonic, `wall_clock` is Unix time (for dates in headers), `draw` gives numbers in [0, 1).
    """

    def __init__(
        self,
        *,
        retry_requests: bool,
        retry_budget_s: float | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._policy = Policy(retry_requests, retry_budget_s)
        self._clock, self._wall_clock, self._sleep, self._draw = clock, wall_clock, sleep, draw
        self._addresses: dict[tuple[str, str], _Address | Unanswered] = {}
        self._warned_at: dict[str, float] = {}
        self._max_reply_bytes = max_reply_bytes
        self._rollouts = _session(Connector(), connect_timeout_s)
        # Few calls, far apart and with bodies that cannot be sent again: a connection for each is never a stale one
        self._control = _session(Connector(force_close=True), connect_timeout_s)

    async def post_run(
        self, base_url: str, body: bytes, *, timeout_s: float | None = None, watch: Watch | None = None
    ) -> Reply:
        """Run one attempt. Retries happen in here, within the bounds of `retry`; `sends` and `tries` count them.

        `timeout_s` bounds the whole call, retries included; without it the call may take hours. `watch` is told of
        every try that goes wrong, when it does.
        """
        address = self._address(base_url, "/run")
        if isinstance(address, Unanswered):
            return address
        course = _begin_course()
        if timeout_s is None:
            return await self._persist(self._rollouts, address, body, course, watch=watch)
        deadline = self._clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._persist(self._rollouts, address, body, course, deadline, watch)
        except TimeoutError:
            return _timed_out(course, address, f"no reply within rollout_timeout_s={timeout_s:g}")

    async def post_aggregate(self, base_url: str, body: AsyncIterable[bytes] | bytes, timeout_s: float) -> Reply:
        """Send one body to `/aggregate_metrics`, on a connection of its own.

        A streamed body goes again only while nothing of it has been asked for. What its iterator raises is raised here.
        """
        address = self._address(base_url, "/aggregate_metrics")
        if isinstance(address, Unanswered):
            return address
        course = _begin_course()
        request = body if isinstance(body, bytes) else _Stream(body)
        deadline = self._clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._persist(self._control, address, request, course, deadline)
        except TimeoutError:
            reply = _timed_out(course, address, f"no reply within {timeout_s:g} s")
        if isinstance(request, _Stream) and request.error is not None:
            raise request.error
        return reply

    async def get_health(self, base_url: str, timeout_s: float) -> Reply:
        """One GET of the base URL; any answer means that the server is there (protocol §1.7)."""
        return await self.get(base_url, "/", timeout_s)

    async def get(self, base_url: str, path: str, timeout_s: float, max_bytes: int | None = None) -> Reply:
        """One GET, never repeated; a fault of the server is a value, and so is a body of more than `max_bytes`."""
        address = self._address(base_url, path)
        if isinstance(address, Unanswered):
            return address
        course = _begin_course()
        course.tries = 1
        try:
            async with asyncio.timeout(timeout_s), self._control.get(address.url, allow_redirects=False) as response:
                body = await _read_body(response, self._max_reply_bytes if max_bytes is None else max_bytes)
                return Answered(response.status, body, address.shown)
        except TimeoutError:
            return _timed_out(course, address, f"no reply within {timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return read_fault(error, course.witness, None, address.shown).reply

    async def aclose(self) -> None:
        """Close every connection."""
        await self._rollouts.close()
        await self._control.close()

    def _address(self, base_url: str, path: str) -> _Address | Unanswered:
        address = self._addresses.get((base_url, path))
        if address is None:
            address = self._addresses[base_url, path] = _parse(base_url, path)
        return address

    async def _persist(
        self,
        session: aiohttp.ClientSession,
        address: _Address,
        body: "bytes | _Stream",
        course: Course,
        not_after: float = inf,
        watch: Watch | None = None,
    ) -> Reply:
        """Try until there is a usable answer, or until `retry` gives up."""
        result = await self._try(session, address, body, course)
        if not isinstance(result, Setback):
            return result
        past: list[tuple[Cause, float]] = []
        delivery = result.delivery
        while True:
            if watch is not None:
                watch(result)
            now = self._clock()
            step = decide(self._policy, past, result, now=now, draw=self._draw(), not_after=not_after)
            if isinstance(body, _Stream) and body.has_started:
                step = GiveUp("a streamed body is there only once")
            if isinstance(step, GiveUp):
                return _conclude(result, course, delivery, step.reason, now - past[0][1] if past else 0.0)
            logger.debug("try %d of %s: %s, next in %.3f s", course.tries, address.shown, result.cause, step.delay_s)
            past.append((result.cause, now))
            course.witness = None
            if step.delay_s:
                await self._sleep(step.delay_s)
            result = await self._try(session, address, body, course)
            if not isinstance(result, Setback):
                return result
            delivery = max(delivery, result.delivery, key=_SEVERITY.__getitem__)

    async def _try(
        self, session: aiohttp.ClientSession, address: _Address, body: "bytes | _Stream", course: Course
    ) -> Answered | Setback:
        """Send the request once."""
        course.tries += 1
        course.witness = None
        data: bytes | AsyncIterable[bytes | memoryview] = body
        status, headers = None, None
        if isinstance(body, bytes) and len(body) > _LARGE_BODY_BYTES:
            data, headers = _slices(body), {"Content-Length": str(len(body))}
        try:
            async with session.post(address.url, data=data, headers=headers, allow_redirects=False) as response:
                status = response.status
                content = await _read_body(response, self._max_reply_bytes)
        except (aiohttp.ClientError, OSError) as error:
            setback = read_fault(error, course.witness, status, address.shown)
            course.sends += setback.delivery is not Delivery.NOT_SENT
            if setback.cause is Cause.UNREACHABLE:
                self._warn_unreachable(address, error)
            return setback
        if course.witness is not None:
            course.witness.rest()
        course.sends += 1
        answer = Answered(status, content, address.shown, course.sends, course.tries)
        if status not in THROTTLING:
            return answer
        retry_after, date = response.headers.get("Retry-After"), response.headers.get("Date")
        wait_s = read_retry_after(retry_after, date, self._wall_clock())
        return Setback(Cause.THROTTLED, Delivery.POSSIBLY_DELIVERED, answer, wait_s)

    def _warn_unreachable(self, address: _Address, error: Exception) -> None:
        now = self._clock()
        if now - self._warned_at.get(address.shown, -inf) < WARN_AGAIN_S:
            return
        self._warned_at[address.shown] = now
        logger.warning(
            "no connection to %s: %s: %s; a request is given up after %d tries or %g s",
            address.shown,
            type(error).__name__,
            public(str(error)),
            BOUNDS[Cause.UNREACHABLE].max_tries,
            BOUNDS[Cause.UNREACHABLE].window_s,
        )


class _Stream:
    """A body of which aiohttp asks once, and which remembers whether it did and what went wrong with it."""

    def __init__(self, source: AsyncIterable[bytes]) -> None:
        self._source = source
        self.has_started = False
        self.error: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.has_started = True
        try:
            async for chunk in self._source:
                yield chunk
        except Exception as error:
            # aiohttp reports it as a fault of the connection
            self.error = error
            raise


async def _slices(body: bytes) -> AsyncIterator[memoryview]:
    view = memoryview(body)
    for start in range(0, len(body), _SLICE_BYTES):
        yield view[start : start + _SLICE_BYTES]


def _session(connector: Connector, connect_timeout_s: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        read_bufsize=READ_BUFFER_BYTES,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The whole body, decompressed.

    Raises:
        ReplyTooLargeError: it has more than `max_bytes`; nothing more is read then.
    """
    announced = response.content_length
    if announced is not None and "Content-Encoding" not in response.headers:
        if announced > max_bytes:
            raise ReplyTooLargeError(f"the reply has {announced} bytes, more than {max_bytes}")
        return await response.read()
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise ReplyTooLargeError(f"the reply has more than {max_bytes} bytes")
    return b"".join(chunks)


def _parse(base_url: str, path: str) -> _Address | Unanswered:
    try:
        url = URL(base_url.rstrip("/") + path)
        return _Address(url, str(url.with_user(None)) if url.raw_user or url.raw_password else str(url))
    except (ValueError, TypeError) as error:
        return Unanswered(
            Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE, "InvalidURL", public(str(error)), public(base_url), tries=0
        )


def _begin_course() -> Course:
    course = Course()
    CURRENT_COURSE.set(course)
    return course


def _timed_out(course: Course, address: _Address, message: str) -> Unanswered:
    """The reply of a call whose time is over; what was sent and not answered is possibly delivered."""
    sends = course.sends + (course.witness is not None)
    delivery = Delivery.POSSIBLY_DELIVERED if sends else Delivery.NOT_SENT
    return Unanswered(
        delivery, keys.TRANSPORT_TIMEOUT, "TimeoutError", message, address.shown, sends=sends, tries=course.tries
    )


def _conclude(setback: Setback, course: Course, delivery: Delivery, reason: str, elapsed_s: float) -> Reply:
    """What is returned after the last try, with the facts of all of them."""
    reply = setback.reply
    if isinstance(reply, Answered):
        return reply
    if setback.cause is Cause.FINAL:
        why = ""
    elif course.tries == 1:
        why = f" (not tried again: {reason})"
    else:
        why = f" (gave up after {course.tries} tries in {elapsed_s:.1f} s: {reason})"
    message = public(reply.message + why)
    return replace(reply, delivery=delivery, message=message, sends=course.sends, tries=course.tries)

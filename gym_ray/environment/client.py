"""The HTTP client of gym_ray: one POST in, one `Reply` out, whatever the server does.

Rollouts go over connections of our own (`connections`): they are what a run costs and what must not run twice. Control
calls go through aiohttp (`control`).

Invariants: nothing limits connections below the cap (admission is the only gate); nothing is sent twice behind our back
(no redirects, and aiohttp resends idempotent methods only, of which POST is none); a server's fault is a value, only
cancellation and our own bugs raise; a cancelled call closes its connection, which is how a server learns of it.
"""

import asyncio
import base64
import logging
import random
import time
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from math import inf

import aiohttp
from yarl import URL

from gym_ray import keys
from gym_ray.environment.connections import Origin
from gym_ray.environment.content_coding import ACCEPTED
from gym_ray.environment.control import ControlSession, StreamedBody
from gym_ray.environment.course import Course, Received
from gym_ray.environment.faults import read_fault
from gym_ray.environment.retry import BOUNDS, THROTTLING, Cause, GiveUp, Policy, Setback, decide, read_retry_after
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered
from gym_ray.outcomes.text import public
from gym_ray.version import __version__

logger = logging.getLogger("gym_ray.environment")

CONNECT_TIMEOUT_S = 10.0
"""Between servers of one deployment a connection that takes longer will not come. Source: protocol §4.2."""
MAX_REPLY_BYTES = 1 << 29
"""Far above any real reply (a few MB), below what would take a shard down: a body may be compressed a thousandfold."""
WARN_AGAIN_S = 30.0
"""A server that is gone fails every rollout on it: say so at once, and then often enough to be seen."""
_SEVERITY = {Delivery.NOT_SENT: 0, Delivery.POSSIBLY_DELIVERED: 1, Delivery.DELIVERED: 2}

Watch = Callable[[Setback], None]
_Try = Callable[[Course], Awaitable[Received]]


@dataclass(frozen=True, slots=True)
class _Address:
    """Where a base URL leads, parsed once."""

    url: URL
    shown: str
    """The same, without credentials."""


@dataclass(frozen=True, slots=True)
class _RunAddress(_Address):
    origin: Origin
    head: bytes
    """Of every request to it, up to the length of its body."""


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
        self._connect_timeout_s, self._max_reply_bytes = connect_timeout_s, max_reply_bytes
        self._run_addresses: dict[str, _RunAddress | Unanswered] = {}
        self._warned_at: dict[str, float] = {}
        self._control = ControlSession(connect_timeout_s)
        self._is_closed = False

    async def post_run(
        self, base_url: str, body: bytes, *, timeout_s: float | None = None, watch: Watch | None = None
    ) -> Reply:
        """Run one attempt. Retries happen in here, within the bounds of `retry`; `sends` and `tries` count them.

        `timeout_s` bounds the whole call, retries included; without it the call may take hours. `watch` is told of
        every try that goes wrong, when it does.
        """
        address = self._run_addresses.get(base_url)
        if address is None:
            address = self._run_addresses[base_url] = self._run_address(base_url)
        if isinstance(address, Unanswered):
            return address
        course, attempt = Course(), partial(self._post_run, address, body)
        if timeout_s is None:
            return await self._persist(attempt, address, course, watch=watch)
        deadline = self._clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._persist(attempt, address, course, deadline, watch)
        except TimeoutError:
            return course.time_out(address.shown, f"no reply within rollout_timeout_s={timeout_s:g}")

    async def post_aggregate(self, base_url: str, body: AsyncIterable[bytes] | bytes, timeout_s: float) -> Reply:
        """Send one body to `/aggregate_metrics`, on a connection of its own.

        A streamed body goes again only while nothing of it has been asked for. What its iterator raises is raised here.
        """
        address = _parse(base_url, "/aggregate_metrics")
        if isinstance(address, Unanswered):
            return address
        course = Course()
        request = body if isinstance(body, bytes) else StreamedBody(body)
        attempt = partial(self._control.send, "POST", address.url, request, self._max_reply_bytes)
        stream = request if isinstance(request, StreamedBody) else None
        deadline = self._clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._persist(attempt, address, course, deadline, stream=stream)
        except TimeoutError:
            reply = course.time_out(address.shown, f"no reply within {timeout_s:g} s")
        if stream is not None and stream.error is not None:
            raise stream.error
        return reply

    async def get_health(self, base_url: str, timeout_s: float) -> Reply:
        """One GET of the base URL; any answer means that the server is there (protocol §1.7)."""
        return await self.get(base_url, "/", timeout_s)

    async def get(self, base_url: str, path: str, timeout_s: float, max_bytes: int | None = None) -> Reply:
        """One GET, never repeated; a fault of the server is a value, and so is a body of more than `max_bytes`."""
        address = _parse(base_url, path)
        if isinstance(address, Unanswered):
            return address
        course = Course()
        course.begin_try()
        limit = self._max_reply_bytes if max_bytes is None else max_bytes
        try:
            async with asyncio.timeout(timeout_s):
                received = await self._control.send("GET", address.url, None, limit, course)
        except TimeoutError:
            return course.time_out(address.shown, f"no reply within {timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return read_fault(error, course.witness, None, address.shown).reply
        return Answered(received.status, received.body, address.shown)

    async def aclose(self) -> None:
        """Close every connection."""
        self._is_closed = True
        for address in self._run_addresses.values():
            if isinstance(address, _RunAddress):
                address.origin.close()
        await self._control.aclose()

    def _run_address(self, base_url: str) -> _RunAddress | Unanswered:
        if self._is_closed:
            raise RuntimeError("the client is closed")
        parsed = _parse(base_url, "/run")
        if isinstance(parsed, Unanswered):
            return parsed
        origin = Origin(parsed.url, connect_timeout_s=self._connect_timeout_s, max_reply_bytes=self._max_reply_bytes)
        return _RunAddress(parsed.url, parsed.shown, origin, _head(parsed.url))

    async def _post_run(self, address: _RunAddress, body: bytes, course: Course) -> Received:
        """Send one `/run` and wait for its answer."""
        connection = await address.origin.acquire()
        course.witness = connection.witness
        try:
            response = await connection.http.exchange(b"%b%d\r\n\r\n" % (address.head, len(body)), body)
        finally:
            course.status = connection.http.status
        address.origin.release(connection)
        content = response.body(self._max_reply_bytes)
        if response.status not in THROTTLING:
            return Received(response.status, content, None, None)
        return Received(response.status, content, response.header(b"retry-after"), response.header(b"date"))

    async def _persist(
        self,
        attempt: _Try,
        address: _Address,
        course: Course,
        not_after: float = inf,
        watch: Watch | None = None,
        stream: StreamedBody | None = None,
    ) -> Reply:
        """Try until there is a usable answer, or until `retry` gives up."""
        result = await self._try(attempt, address, course)
        if not isinstance(result, Setback):
            return result
        past: list[tuple[Cause, float]] = []
        delivery = result.delivery
        while True:
            if watch is not None:
                watch(result)
            now = self._clock()
            step = decide(self._policy, past, result, now=now, draw=self._draw(), not_after=not_after)
            if stream is not None and stream.has_started:
                step = GiveUp("a streamed body is there only once")
            if isinstance(step, GiveUp):
                return course.conclude(result, delivery, step.reason, now - past[0][1] if past else 0.0)
            logger.debug("try %d of %s: %s, next in %.3f s", course.tries, address.shown, result.cause, step.delay_s)
            past.append((result.cause, now))
            course.witness = None
            if step.delay_s:
                await self._sleep(step.delay_s)
            result = await self._try(attempt, address, course)
            if not isinstance(result, Setback):
                return result
            delivery = max(delivery, result.delivery, key=_SEVERITY.__getitem__)

    async def _try(self, attempt: _Try, address: _Address, course: Course) -> Answered | Setback:
        """Send the request once."""
        course.begin_try()
        try:
            received = await attempt(course)
        except (aiohttp.ClientError, OSError) as error:
            setback = read_fault(error, course.witness, course.status, address.shown)
            course.sends += setback.delivery is not Delivery.NOT_SENT
            if setback.cause is Cause.UNREACHABLE:
                self._warn_unreachable(address, error)
            return setback
        course.sends += 1
        answer = Answered(received.status, received.body, address.shown, course.sends, course.tries)
        if received.status not in THROTTLING:
            return answer
        wait_s = read_retry_after(received.retry_after, received.date, self._wall_clock())
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


def _parse(base_url: str, path: str) -> _Address | Unanswered:
    try:
        url = URL(base_url.rstrip("/") + path)
        if url.scheme not in ("http", "https") or not url.raw_host:
            raise ValueError("a URL of an environment server starts with http://HOST or https://HOST")
        return _Address(url, str(url.with_user(None)) if url.raw_user or url.raw_password else str(url))
    except (ValueError, TypeError) as error:
        return Unanswered(
            Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE, "InvalidURL", public(str(error)), public(base_url), tries=0
        )


def _head(url: URL) -> bytes:
    """The head of every `/run` request, up to the length of its body."""
    lines = [
        f"POST {url.raw_path_qs} HTTP/1.1",
        f"Host: {url.host_port_subcomponent}",
        "Accept: */*",
        f"Accept-Encoding: {ACCEPTED}",
        f"User-Agent: gym_ray/{__version__}",
        "Content-Type: application/json",
    ]
    if url.raw_user is not None or url.raw_password is not None:
        credentials = f"{url.user or ''}:{url.password or ''}".encode()
        lines.append(f"Authorization: Basic {base64.b64encode(credentials).decode()}")
    return "\r\n".join([*lines, "Content-Length: "]).encode("ascii")

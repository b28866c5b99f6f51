"""The HTTP client of gym_ray: one POST in, one `Reply` out, whatever the server does.

Invariants: nothing limits connections below the cap (admission is the only gate); nothing is sent twice behind our back
(no redirects, no resending by the library); a server's fault is a value, only cancellation and our own bugs raise.
"""

import asyncio
import errno
import random
import socket
from collections.abc import AsyncIterable

import aiohttp
from yarl import URL

from gym_ray import keys
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered

CONNECT_TIMEOUT_S = 10.0
"""Between servers of one deployment a connection that takes longer will not come."""
KEEPALIVE_S = 15.0
"""Idle connections are closed before the servers' 30 s, so that we are the ones who close them."""
UNREACHABLE_TRIES, DROPPED_TRIES = 3, 5
_HEADERS = {"Content-Type": "application/json"}
_LOCAL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class EnvironmentClient:
    """Make it inside a running event loop, and `aclose` it."""

    def __init__(self, *, retry_requests: bool, retry_budget_s: float | None = None) -> None:
        self._retry_requests = retry_requests
        self._retry_budget_s = retry_budget_s
        self._urls: dict[str, URL] = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            read_bufsize=1 << 20,
        )

    async def post_run(self, base_url: str, body: bytes, *, timeout_s: float | None = None) -> Reply:
        """Send one attempt to `/run`; retries within finite bounds happen here, `sends` counts them."""
        url = self._url(base_url, "/run")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._persistently(url, body)
        except TimeoutError:
            return Unanswered(
                Delivery.POSSIBLY_DELIVERED,
                keys.TRANSPORT_TIMEOUT,
                "TimeoutError",
                f"no reply within rollout_timeout_s={timeout_s:g}",
                str(url),
                sends=1,
            )

    async def post_aggregate(self, base_url: str, body: AsyncIterable[bytes] | bytes, timeout_s: float) -> Reply:
        """Send one body to `/aggregate_metrics`."""
        url = self._url(base_url, "/aggregate_metrics")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._once(url, body, 1)
        except TimeoutError:
            return Unanswered(
                Delivery.POSSIBLY_DELIVERED,
                keys.TRANSPORT_TIMEOUT,
                "TimeoutError",
                f"no reply within {timeout_s:g} s",
                str(url),
            )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()

    def _url(self, base_url: str, path: str) -> URL:
        url = self._urls.get(base_url + path)
        if url is None:
            url = self._urls[base_url + path] = URL(base_url + path)
        return url

    async def _persistently(self, url: URL, body: bytes) -> Reply:
        tries = 0
        while True:
            tries += 1
            reply = await self._once(url, body, tries)
            if isinstance(reply, Answered) or not self._may_retry(reply, tries):
                return reply
            await asyncio.sleep(min(0.5 * 2**tries, 8.0) * random.uniform(0.5, 1.0))

    def _may_retry(self, reply: Unanswered, tries: int) -> bool:
        if reply.delivery is Delivery.NOT_SENT:
            return tries < UNREACHABLE_TRIES
        return self._retry_requests and tries < DROPPED_TRIES

    async def _once(self, url: URL, body: AsyncIterable[bytes] | bytes, sends: int) -> Reply:
        status = None
        try:
            async with self._session.post(url, data=body, allow_redirects=False) as response:
                status = response.status
                return Answered(status, await response.read(), str(url), sends)
        except aiohttp.ClientConnectorError as error:
            local = isinstance(error.os_error, OSError) and error.os_error.errno in _LOCAL
            kind = keys.TRANSPORT_LOCAL_RESOURCE if local else keys.TRANSPORT_UNREACHABLE
            return Unanswered(Delivery.NOT_SENT, kind, type(error).__name__, str(error), str(url))
        except (aiohttp.ConnectionTimeoutError, socket.gaierror) as error:
            return Unanswered(Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE, type(error).__name__, str(error), str(url))
        except (aiohttp.ClientError, OSError) as error:
            message = str(error) or repr(error)
            return Unanswered(
                Delivery.POSSIBLY_DELIVERED,
                keys.TRANSPORT_PEER_DROP,
                type(error).__name__,
                message,
                str(url),
                status,
                sends,
            )

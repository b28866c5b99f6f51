"""Kept-alive connections that servers close without a word lose no request.

A server may close an idle connection at any moment, and whoever writes to it just then cannot see from the error alone
whether the request was taken. Four things together make that harmless, without a connection for each request:

1. Connections at rest are closed by us after 15 s, before servers of this family do it (30 s).
2. A rest that no connection to a server is known to survive is not relied on; `patience` learns what it allows.
3. Before a connection is used again the kernel is asked whether its peer has closed or reset it, which the event loop
   may not have noticed yet; if so, the next one is taken. One system call, 1-2 us.
4. If the peer's close crosses with a request, the kernel's counters prove that it was not taken (`witness`), so it can
   go again even with `retry_requests=False`.

What remains:

- a server that decides to close while the request already waits unread in its receive buffer, which takes a lag of its
  event loop, and a time to close that varies, that has just become shorter, or that is next to nothing;
- a peer that *resets* a connection at rest instead of closing it (SO_LINGER 0, a firewall that forgot the connection)
  within the network's one-way delay of our write, and one whose packets vanish altogether.

Such a request counts as possibly delivered: it is replayed with `retry_requests`, and otherwise becomes a failure that
a resume runs as a new attempt. Where the kernel does not offer the counters (Linux before 4.19, gVisor, TLS for the
most part) the same holds for a close that crosses with a request. A peer that half-closes a connection at rest, reads
and runs a request on it nevertheless, and dies within 40 ms without acknowledging it would defeat the proof; no HTTP
server does that.
"""

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from math import inf

import aiohappyeyeballs
import aiohttp
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from gym_ray.environment.http_connection import HTTPConnection
from gym_ray.environment.patience import MAX_REST_S, Patience
from gym_ray.environment.witness import Witness

TCP_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A rollout may be silent for hours; a host that has died is noticed after 90 s. Source: protocol §4.1."""
NAME_LIFETIME_S = 10.0
"""How long the addresses of a name are relied on: thousands of connections at once ask for them once."""
SECOND_FAMILY_AFTER_S = 0.25
"""A host that has addresses of both families is tried by the other one after this long. Source: RFC 8305 §5."""


class Connection:
    """What is handed out: a connection, and the witness of what becomes of a request on it."""

    __slots__ = ("http", "rests_since", "witness")

    def __init__(self, http: HTTPConnection, witness: Witness) -> None:
        self.http, self.witness = http, witness
        self.rests_since = 0.0


class Origin:
    """The connections to one server, as many as are asked for: admission is the only gate.

    Make it inside a running event loop.
    """

    def __init__(self, url: URL, *, connect_timeout_s: float, max_reply_bytes: int) -> None:
        self._host, self._port = url.raw_host or "", url.port or 0
        self._is_secure = url.scheme == "https"
        self._connect_timeout_s, self._max_reply_bytes = connect_timeout_s, max_reply_bytes
        self._patience = Patience()
        self._open: set[HTTPConnection] = set()
        self._idle: deque[Connection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._addresses: asyncio.Task[Sequence[AddrInfoType]] | None = None
        self._addresses_until = 0.0
        self._is_closed = False

    async def acquire(self) -> Connection:
        """A kept connection whose peer was there a moment ago, or a fresh one.

        Raises:
            OSError: there is none to be had.
        """
        if self._is_closed:
            raise RuntimeError("the client is closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.http.is_usable and connection.witness.begin():
                return connection
            connection.http.abort()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await self._connect()
        except TimeoutError as error:
            if error.errno is not None:
                raise  # the kernel's own
            raise aiohttp.ConnectionTimeoutError(f"no connection within {self._connect_timeout_s:g} s") from None

    def release(self, connection: Connection) -> None:
        """Take a connection back on which a request was answered."""
        if not connection.http.is_usable:
            connection.http.abort()
            return
        connection.witness.rest()
        loop = asyncio.get_running_loop()
        connection.rests_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(MAX_REST_S, self._close_rested)

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        for connection in list(self._open):
            connection.abort()

    def _close_rested(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and loop.time() - self._idle[0].rests_since >= MAX_REST_S:
            self._idle.popleft().http.abort()
        self._sweep = loop.call_at(self._idle[0].rests_since + MAX_REST_S, self._close_rested) if self._idle else None

    async def _connect(self) -> Connection:
        sock = await aiohappyeyeballs.start_connection(
            await self._resolved(), happy_eyeballs_delay=SECOND_FAMILY_AFTER_S, interleave=1
        )
        keep_alive(sock)
        http = HTTPConnection(self._max_reply_bytes, self._open.discard)
        witness = Witness(http, self._patience, time.monotonic)
        context = _tls_context() if self._is_secure else None
        await asyncio.get_running_loop().create_connection(
            lambda: witness, sock=sock, ssl=context, server_hostname=self._host if context else None
        )
        self._open.add(http)
        witness.begin()
        return Connection(http, witness)

    async def _resolved(self) -> Sequence[AddrInfoType]:
        """The addresses of the host, asked for once by all who want to know at the same time."""
        loop = asyncio.get_running_loop()
        if self._addresses is None or (self._addresses.done() and loop.time() >= self._addresses_until):
            self._addresses = loop.create_task(self._resolve())
        task = self._addresses
        try:
            return await asyncio.shield(task)
        except OSError:
            if self._addresses is task:
                self._addresses = None
            raise

    async def _resolve(self) -> Sequence[AddrInfoType]:
        loop = asyncio.get_running_loop()
        if (literal := _literal(self._host, self._port)) is not None:
            self._addresses_until = inf
            return [literal]
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(f"{self._host[:100]!r} is no name of a host: {error}") from None
        self._addresses_until = loop.time() + NAME_LIFETIME_S
        return found


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel ask a silent peer whether it is still there."""
    for level, option, value in TCP_OPTIONS:
        sock.setsockopt(level, option, value)


def _literal(host: str, port: int) -> AddrInfoType | None:
    """Where an address leads that needs no look-up, which costs a thread and may take descriptors."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0))
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))


@cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context

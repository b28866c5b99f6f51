"""Kept-alive connections that servers close without a word lose no request.

A server may close an idle connection at any moment, and whoever writes to it just then cannot see from the error alone
whether the request was taken. Four things together make that harmless, without a connection for each request:

1. Connections at rest are closed by us after 15 s, before servers of this family do it (30 s).
2. A rest that no connection to a server is known to survive is not relied on; `patience` learns what it allows.
3. Before a connection is used again the kernel is asked whether its peer has closed or reset it, which the event loop
   may not have noticed yet; if so, the next one is taken. One system call, 1-2 us.
4. If the peer's close crosses with a request, the kernel's counters prove that it was not taken, so it can go again
   even with `retry_requests=False`. TCP acknowledges what it has handed over: an end of stream that acknowledges none
   of the request was sent before any of it arrived, and a reset in answer to the rest says that nobody is left to read
   it. Likewise a request of which the kernel has sent no byte.

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
import socket
import struct
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol, cast

import aiohttp
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from gym_ray.environment.patience import MAX_REST_S, Patience

TCP_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A rollout may be silent for hours; a host that has died is noticed after 90 s. Source: protocol §4.1."""

_TCP_INFO = struct.Struct("=B119xQ72xQ")
"""Of Linux's `struct tcp_info`: tcpi_state at 0, tcpi_bytes_acked at 120, tcpi_bytes_sent at 200."""
_ESTABLISHED, _CLOSE = 1, 7

_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.128
"""A reset follows a close within a round trip, an acknowledgement within the 40 ms that Linux may delay it."""


class Socket(Protocol):
    """What transports offer as their socket."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """As `socket.socket.getsockopt`."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """As `socket.socket.setsockopt`."""


class Witness(asyncio.Protocol):
    """Stands between a connection and aiohttp's protocol, and testifies whether the last request was taken."""

    def __init__(self, transport: asyncio.Transport, patience: Patience, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._inner = cast(asyncio.Protocol, transport.get_protocol())
        self._patience = patience
        self._clock = clock
        self._resting_since: float | None = None
        self._last_rest_s: float | None = None
        self._socket = cast(Socket, transport.get_extra_info("socket"))
        self._is_secure = transport.get_extra_info("sslcontext") is not None
        self._sent_before = self._acked_before = 0
        self._has_ended = False
        self._look: asyncio.TimerHandle | None = None
        self.requests = 0
        """How many requests this connection has been acquired for."""
        self.disproves_delivery = False
        """Of the last request, once its connection has gone. False means unknown."""

    def begin(self) -> bool:
        """Note where the stream stands before another request; False if the peer is gone, or may go any moment."""
        self.requests += 1
        rested_since, self._resting_since, self._last_rest_s = self._resting_since, None, None
        counters = _read_counters(self._socket)
        is_alive = True
        if counters is None:
            self._acked_before = 0
        else:
            state, self._acked_before, self._sent_before = counters
            is_alive = state == _ESTABLISHED
        if rested_since is None:
            return is_alive
        now = self._clock()
        self._last_rest_s = rest_s = now - rested_since
        if not is_alive:
            self._patience.observe_close(rest_s, now)
        elif rest_s > self._patience.limit_s(now):
            self._patience.observe_survival(rest_s)
        return is_alive and rest_s <= self._patience.limit_s(now)

    def rest(self) -> None:
        """The answer to the last request is complete."""
        self._resting_since = self._clock()

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._inner.data_received(data)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        """Pass the end of stream on, after up to a quarter of a second if that decides whether a request was taken."""
        self._has_ended = True
        self._observe_close()
        if self._examine() is None and not self._is_secure:
            self._look_again(_FIRST_LOOK_S)
            return True
        return self._pass_end_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on, after a last look at the counters."""
        if self._look is not None:
            self._look.cancel()
        if exc is not None:
            self._observe_close()
        if not self.disproves_delivery:
            # The first write after a close and a reset fails with EPIPE, after a reset alone with ECONNRESET
            self._has_ended = self._has_ended or isinstance(exc, BrokenPipeError)
            self._examine()
        self._inner.connection_lost(exc)

    def _observe_close(self) -> None:
        """Learn from a close at rest."""
        if self._resting_since is not None:
            now = self._clock()
            self._patience.observe_close(now - self._resting_since, now)
            self._resting_since = None

    def _pass_end_on(self) -> bool | None:
        if self.disproves_delivery and self._last_rest_s is not None:
            self._patience.observe_close(self._last_rest_s, self._clock())
        return self._inner.eof_received()

    def _look_again(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(after_s, self._look_now, after_s)

    def _look_now(self, waited_s: float) -> None:
        if self._examine() is None and waited_s < _LAST_LOOK_S:
            self._look_again(2 * waited_s)
            return
        self._look = None
        self._pass_end_on()
        self._transport.close()

    def _examine(self) -> bool | None:
        """True if the last request was surely not taken, False if it may have been, None if that is not decided yet."""
        # Zero is also what a kernel says that does not count; ours counts the handshake
        counters = _read_counters(self._socket) if self._acked_before else None
        if counters is None:
            return False
        state, acked, sent = counters
        if sent == self._sent_before:
            self.disproves_delivery = True
        elif acked != self._acked_before or not self._has_ended:
            return False
        elif state == _CLOSE:
            self.disproves_delivery = True
        else:
            return None
        return True


class Course:
    """What one `post_run` has come to so far; the connector writes down here which connection it gave out."""

    __slots__ = ("sends", "tries", "witness")

    def __init__(self) -> None:
        self.tries = 0
        self.sends = 0
        self.witness: Witness | None = None
        """Of the running try; None until it has a connection, so until then nothing can have been sent."""


CURRENT_COURSE: ContextVar[Course] = ContextVar("gym_ray_course")
"""Whom a connection is acquired for: aiohttp offers no way to pass it."""


class Connector(aiohttp.TCPConnector):
    """Unlimited connections, none of which is handed out when its peer has gone; admission is the only gate."""

    def __init__(self, *, force_close: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        keepalive: dict[str, Any] = {} if force_close else {"keepalive_timeout": MAX_REST_S}
        super().__init__(limit=0, limit_per_host=0, force_close=force_close, **keepalive)
        self._clock = clock
        self._patience: dict[ConnectionKey, Patience] = {}

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        """A fresh connection, or a kept one whose peer was there a moment ago."""
        while True:
            connection = await super().connect(req, traces, timeout)
            transport = connection.transport
            if transport is None:
                return connection  # gone since: aiohttp finds out before it writes
            witness = transport.get_protocol()
            if not isinstance(witness, Witness):
                witness = self._attach(transport, req.connection_key)
                witness.begin()
            elif not witness.begin() or _holds_unasked_data(connection):
                connection.close()
                continue
            course = CURRENT_COURSE.get(None)
            if course is not None:
                course.witness = witness
            return connection

    def _attach(self, transport: asyncio.Transport, key: ConnectionKey) -> Witness:
        patience = self._patience.setdefault(key, Patience())
        witness = Witness(transport, patience, self._clock)
        transport.set_protocol(witness)
        sock = cast(Socket, transport.get_extra_info("socket"))
        for level, option, value in TCP_OPTIONS:
            sock.setsockopt(level, option, value)
        return witness


def _holds_unasked_data(connection: Connection) -> bool:
    """True if the peer sent something while nobody asked: it would be taken for the answer to the next request."""
    return connection.protocol is None or connection.protocol.should_close


def _read_counters(sock: Socket) -> tuple[int, int, int] | None:
    """The state of a TCP connection, bytes acknowledged and bytes sent; None where the kernel does not say."""
    try:
        return cast(
            tuple[int, int, int],
            _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)),
        )
    except (OSError, TypeError, struct.error):
        return None

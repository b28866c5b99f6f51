"""Testifies whether the last request on a connection was taken by its server, from the kernel's own counters.

TCP acknowledges what it has handed over: an end of stream that acknowledges none of a request was sent before any of it
arrived, and a reset in answer to the rest says that nobody is left to read it. Likewise a request of which the kernel
has sent no byte. Where that holds the request can go again even with `retry_requests=False`.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

from gym_ray.environment.patience import Patience

_TCP_INFO = struct.Struct("=B119xQ72xQ")
"""Of Linux's `struct tcp_info`: tcpi_state at 0, tcpi_bytes_acked at 120, tcpi_bytes_sent at 200."""
_ESTABLISHED, _CLOSE = 1, 7

_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.128
"""A reset follows a close within a round trip, an acknowledgement within the 40 ms that Linux may delay it."""


class Socket(Protocol):
    """What transports offer as their socket."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """As `socket.socket.getsockopt`."""


class Witness(asyncio.Protocol):
    """Stands between a transport and the protocol that uses it, and testifies whether the last request was taken."""

    def __init__(self, inner: asyncio.Protocol, patience: Patience, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._patience = patience
        self._clock = clock
        self._resting_since: float | None = None
        self._last_rest_s: float | None = None
        self._transport: asyncio.Transport
        self._socket: Socket
        self._is_secure = False
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._socket = cast(Socket, transport.get_extra_info("socket"))
        self._is_secure = transport.get_extra_info("sslcontext") is not None
        self._inner.connection_made(transport)

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


def _read_counters(sock: Socket) -> tuple[int, int, int] | None:
    """The state of a TCP connection, bytes acknowledged and bytes sent; None where the kernel does not say."""
    try:
        return cast(
            tuple[int, int, int],
            _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)),
        )
    except (OSError, TypeError, struct.error):
        return None

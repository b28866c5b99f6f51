"""Control calls: few, far apart, with bodies that are streamed; each on a connection of its own, through aiohttp."""

import asyncio
import socket
from collections.abc import AsyncIterable, AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from gym_ray.environment.connections import keep_alive
from gym_ray.environment.course import Course, Received
from gym_ray.environment.faults import ReplyTooLargeError
from gym_ray.environment.http_connection import MAX_HEAD_BYTES
from gym_ray.environment.patience import Patience
from gym_ray.environment.witness import Witness

READ_BUFFER_BYTES = 1 << 18
"""Also the most that one step of decompression yields. For replies of 1 KB to 20 MB, 64 KB to 4 MB cost the same."""


class ControlSession:
    """Make it inside a running event loop, and `aclose` it."""

    def __init__(self, connect_timeout_s: float) -> None:
        # Bodies that are streamed cannot be sent again: a connection for each call is never a stale one
        connector = aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_socket)
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(_note_connection)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            trace_configs=[tracing],
        )

    async def send(
        self, method: str, url: URL, body: "bytes | StreamedBody | None", max_bytes: int, course: Course
    ) -> Received:
        """One try. `course` learns how far it got.

        Raises:
            aiohttp.ClientError, OSError: see `faults`.
        """
        request = self._session.request(method, url, data=body, allow_redirects=False, trace_request_ctx=course)
        async with request as response:
            course.status = response.status
            content = await _read_body(response, max_bytes)
            headers = response.headers
        return Received(response.status, content, headers.get("Retry-After"), headers.get("Date"))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()


class StreamedBody:
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


async def _note_connection(_session: aiohttp.ClientSession, trace: SimpleNamespace, _facts: Any) -> None:
    """From here on a request may have been sent, and nothing testifies that it was not."""
    trace.trace_request_ctx.witness = Witness(asyncio.Protocol(), Patience(), asyncio.get_running_loop().time)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    keep_alive(sock)
    return sock


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The whole body, decompressed.

    Raises:
        ReplyTooLargeError: it has more than `max_bytes`; nothing more is read then.
    """
    announced = response.content_length
    if announced is not None and announced > max_bytes and "Content-Encoding" not in response.headers:
        raise ReplyTooLargeError(f"the reply has {announced} bytes, more than {max_bytes}")
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise ReplyTooLargeError(f"the reply has more than {max_bytes} bytes")
    return b"".join(chunks)

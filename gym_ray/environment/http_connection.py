"""One HTTP/1.1 connection: bytes of a request out, a `Response` in, one at a time.

Every rollout goes through here, so this does what `/run` needs and nothing else: no redirects, cookies, proxies or
streaming, and a request that is written once. It costs a third of what a client for every purpose costs.
What llhttp, the parser of Node.js and of aiohttp, does not take is not HTTP. Source: RFC 9110, RFC 9112.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import aiohttp
import httptools

from gym_ray.environment.content_coding import decode
from gym_ray.environment.faults import NotHTTPError, ReplyTooLargeError

MAX_HEAD_BYTES = 1 << 18
"""Newer servers put failure reports into a header; the 8 KB that are usual would lose their rollouts."""

_CONTENT_LENGTH, _TRANSFER_ENCODING, _CONTENT_ENCODING = b"content-length", b"transfer-encoding", b"content-encoding"
_READ = frozenset({_CONTENT_LENGTH, _TRANSFER_ENCODING, _CONTENT_ENCODING, b"retry-after", b"date"})
_SWITCHING_PROTOCOLS, _OK = 101, 200


class Response:
    """The status, the headers that are read, and the body as it came."""

    __slots__ = ("_chunks", "_headers", "status")

    def __init__(self, status: int, headers: dict[bytes, bytes], chunks: list[bytes]) -> None:
        self.status, self._headers, self._chunks = status, headers, chunks

    def header(self, name: bytes) -> str | None:
        """The value of one of the headers that are read, its name in lower case."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def body(self, max_bytes: int) -> bytes:
        """The whole body, decompressed.

        Raises:
            ReplyTooLargeError: it has more than `max_bytes`.
            UndecodableReplyError: it is not what its Content-Encoding says.
        """
        coding = self._headers.get(_CONTENT_ENCODING)
        if coding is not None:
            return decode(coding.decode("latin-1"), self._chunks, max_bytes)
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)


class HTTPConnection(asyncio.Protocol):
    """Made by `connections.Origin`, which hands it out for one request at a time."""

    def __init__(self, max_reply_bytes: int, on_lost: Callable[["HTTPConnection"], object]) -> None:
        self._max_reply_bytes, self._on_lost = max_reply_bytes, on_lost
        self._parser: httptools.HttpResponseParser | None = _parser(self)
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[Response] | None = None
        self.is_usable = True
        """False once no further request may be written to it."""
        self._forget()

    def _forget(self) -> None:
        """Be ready for the head of a reply."""
        self.status: int | None = None
        """Of the reply, once its head has come."""
        self._headers: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._head_bytes = 0
        self._is_complete = False
        self._fault: ReplyTooLargeError | None = None

    async def exchange(self, head: bytes, body: bytes) -> Response:
        """Send a request and wait for its whole reply; if that is cancelled or fails, the connection is closed.

        Raises:
            aiohttp.ClientError, OSError: see `faults`.
        """
        self._forget()
        if not self.is_usable:
            raise _broken_head(None, 0)
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.writelines((head, body))
        try:
            return await self._waiter
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once, which is how a server learns that nobody waits any more."""
        self.is_usable = False
        self._waiter = None
        self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._waiter is None or self._parser is None:
            self.abort()  # nobody asked: it would be taken for the answer to the next request
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_complete, self.is_usable = True, False
        except httptools.HttpParserError as error:
            self.is_usable = False
            if not self._is_complete:
                self._fail(NotHTTPError(f"the reply is not usable HTTP: {error}"))
                return
        if self._fault is not None:
            self._fail(self._fault)
        elif self._is_complete:
            self._finish()
        elif self.status is None and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(NotHTTPError(f"the reply is not usable HTTP: its head has more than {MAX_HEAD_BYTES} bytes"))

    def eof_received(self) -> None:
        """The end of a reply that says nothing of its length, or of one that broke off."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end(exc)
        self._parser = None  # which refers to this connection
        self._on_lost(self)

    def _end(self, error: Exception | None) -> None:
        self.is_usable = False
        if self._waiter is None:
            return
        if self.status is None:
            self._fail(_broken_head(error, self._head_bytes))
        elif error is not None or self._has_length():
            self._fail(_broken_body(error, self._size))
        else:
            self._finish()

    def _has_length(self) -> bool:
        return _CONTENT_LENGTH in self._headers or b"chunked" in self._headers.get(_TRANSFER_ENCODING, b"").lower()

    def _finish(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and self.status is not None and not waiter.done():
            waiter.set_result(Response(self.status, self._headers, self._chunks))

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        self.abort()

    # What the parser calls

    def on_message_begin(self) -> None:
        """Refuse a second reply: nobody asked for it."""
        if self._is_complete:
            raise NotHTTPError("the server sent more than one reply")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what is read."""
        name = name.lower()
        if name in _READ:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Refuse a body that announces itself as too large, before it comes."""
        parser = cast(httptools.HttpResponseParser, self._parser)
        self.status = parser.get_status_code()
        length = self._headers.get(_CONTENT_LENGTH, b"")
        if _CONTENT_ENCODING not in self._headers and length.isdigit() and int(length) > self._max_reply_bytes:
            self._fault = ReplyTooLargeError(f"the reply has {int(length)} bytes, more than {self._max_reply_bytes}")

    def on_body(self, chunk: bytes) -> None:
        """Keep a part of the body, unless it is too large."""
        self._size += len(chunk)
        if self._size <= self._max_reply_bytes:
            self._chunks.append(chunk)
        else:
            self._fault = ReplyTooLargeError(f"the reply has more than {self._max_reply_bytes} bytes")

    def on_message_complete(self) -> None:
        """The reply is whole, unless it only says that the real one is yet to come."""
        parser = cast(httptools.HttpResponseParser, self._parser)
        if self.status is not None and self.status < _OK and self.status != _SWITCHING_PROTOCOLS:
            self._forget()
            return
        self._is_complete = True
        if not parser.should_keep_alive() or self._transport.get_write_buffer_size():
            self.is_usable = False


def _parser(protocol: HTTPConnection) -> httptools.HttpResponseParser:
    parser = httptools.HttpResponseParser(protocol)
    # Harmless in replies, and what other clients take as well
    parser.set_dangerous_leniencies(
        lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
    )
    return parser


def _broken_head(error: Exception | None, received: int) -> Exception:
    """Why there is no reply."""
    if isinstance(error, OSError):
        return aiohttp.ClientOSError(error.errno, error.strerror or str(error))
    message = "the server disconnected in the head of its reply" if received else "the server disconnected"
    return aiohttp.ServerDisconnectedError(message)


def _broken_body(error: Exception | None, received: int) -> Exception:
    """Why there is only a part of a reply."""
    fault = aiohttp.ClientPayloadError(f"the reply broke off after {received} bytes of its body")
    fault.__cause__ = error
    return fault

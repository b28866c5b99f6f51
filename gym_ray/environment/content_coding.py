"""Unpacks a body that its server compressed, never beyond a limit: a body may be compressed a thousandfold.

Source: RFC 9110 §8.4.1. Of `deflate` some servers send what it says there (zlib) and some the bare stream.
"""

import zlib
from collections.abc import Iterable

from gym_ray.environment.faults import ReplyTooLargeError, UndecodableReplyError

ACCEPTED = "gzip, deflate"
"""The value of Accept-Encoding."""

_ZLIB_OR_GZIP, _RAW = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
_ZLIB_METHOD = 8


def decode(coding: str, chunks: Iterable[bytes], max_bytes: int) -> bytes:
    """The body whose parts are `chunks`, unpacked.

    Raises:
        ReplyTooLargeError: it would have more than `max_bytes`.
        UndecodableReplyError: the coding is none that we accept, or the body is not of it, or is cut short.
    """
    name = coding.strip().lower()
    body = b"".join(chunks)
    if name in ("", "identity") or not body:
        return body
    if name not in ("gzip", "x-gzip", "deflate"):
        raise UndecodableReplyError("the reply has a Content-Encoding that was not asked for")
    is_bare = name == "deflate" and body[0] & 15 != _ZLIB_METHOD
    try:
        return _inflate(body, _RAW if is_bare else _ZLIB_OR_GZIP, max_bytes)
    except zlib.error as error:
        raise UndecodableReplyError(f"the reply is not {name}: {error}") from None


def _inflate(body: bytes, window_bits: int, max_bytes: int) -> bytes:
    parts, size = [], 0
    while body:
        stream = zlib.decompressobj(window_bits)
        part = stream.decompress(body, max_bytes + 1 - size)
        size += len(part)
        if size > max_bytes:
            raise ReplyTooLargeError(f"the reply has more than {max_bytes} bytes")
        if not stream.eof:
            raise zlib.error("it is cut short")
        parts.append(part)
        body = stream.unused_data  # gzip allows several members
    return b"".join(parts)

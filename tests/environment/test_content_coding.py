"""Compressed bodies: what is taken, and how much of it."""

import gzip
import zlib

import pytest

from gym_ray.environment.content_coding import decode
from gym_ray.environment.faults import ReplyTooLargeError, UndecodableReplyError

TEXT = b'{"reward":1.0}' * 100


def bare(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def in_pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 7] for at in range(0, len(data), 7)]


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        (" GZip ", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:300]) + gzip.compress(TEXT[300:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", bare(TEXT)),
        ("identity", TEXT),
        ("", TEXT),
    ],
)
def test_every_accepted_coding_is_unpacked(coding: str, body: bytes) -> None:
    assert decode(coding, in_pieces(body), len(TEXT)) == TEXT
    assert decode(coding, [], 0) == b""


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", TEXT),
        ("gzip", gzip.compress(TEXT)[:-9]),
        ("gzip", gzip.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT) + b"tail"),
        ("deflate", TEXT),
        ("br", TEXT),
        ("gzip, gzip", gzip.compress(gzip.compress(TEXT))),
    ],
)
def test_what_is_not_of_its_coding_is_refused(coding: str, body: bytes) -> None:
    with pytest.raises(UndecodableReplyError):
        decode(coding, [body], 1 << 20)


@pytest.mark.parametrize("members", [1, 3])
def test_a_body_is_not_unpacked_beyond_the_limit(members: int) -> None:
    bomb = gzip.compress(b"x" * 10_000_000) * members
    assert len(decode("gzip", [bomb], members * 10_000_000)) == members * 10_000_000
    with pytest.raises(ReplyTooLargeError):
        decode("gzip", [bomb], members * 10_000_000 - 1)

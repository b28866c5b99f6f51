"""What of HTTP/1.1 is taken for a reply, byte by byte; and how connections are found, kept and let go."""

import asyncio
import base64
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from gym_ray.environment import connections
from gym_ray.environment.connections import Origin
from gym_ray.outcomes.reply import Answered, Unanswered
from tests.environment.clients import LOOPS, LoopFactory, a_client
from tests.environment.servers import Link, forever, serving

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH_2 = b"Content-Length: 2\r\n"


async def replies_to(raw: bytes, *, closes: bool, requests: int = 2) -> tuple[list[Any], int]:
    """What each of some requests is answered with, and how many connections that took."""

    async def respond(link: Link) -> None:
        while True:
            await link.request()
            await link.send(raw)
            if closes:
                return

    async with serving(respond) as server, a_client(retry_requests=False) as client:
        async with asyncio.timeout(10):
            found = [await client.post_run(server.base_url, b"[1]") for _ in range(requests)]
        return found, server.connections


@LOOPS
@pytest.mark.parametrize(
    ("raw", "status", "body", "closes", "is_kept"),
    [
        (OK + LENGTH_2 + b"\r\n{}", 200, b"{}", False, True),
        (OK + b"content-LENGTH:2\r\n\r\n{}", 200, b"{}", False, True),
        (OK + LENGTH_2 + b"Connection: close\r\n\r\n{}", 200, b"{}", True, False),
        (b"HTTP/1.0 200 OK\r\n" + LENGTH_2 + b"\r\n{}", 200, b"{}", True, False),
        (b"HTTP/1.0 200 OK\r\n" + LENGTH_2 + b"Connection: keep-alive\r\n\r\n{}", 200, b"{}", False, True),
        (OK + b"\r\n{} until the end", 200, b"{} until the end", True, False),
        (OK + b"\r\n", 200, b"", True, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", False, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", False, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + LENGTH_2 + b"\r\n{}", 200, b"{}", False, True),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\nDate: x\r\n\r\n" * 3 + OK + LENGTH_2 + b"\r\n{}",
            200,
            b"{}",
            False,
            True,
        ),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\n{\r\n01\r\n}\r\n0\r\nX: y\r\n\r\n", 200, b"{}", False, True),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200, b"{}", False, True),
        (OK + LENGTH_2 + b"\r\n{}HTTP/1.1 500 Second\r\nContent-Length: 1\r\n\r\nx", 200, b"{}", False, False),
        (OK + LENGTH_2 + b"\r\n{} and more", 200, b"{}", False, False),
        (OK + LENGTH_2 + b"X-Odd: \x01\xff\r\n\r\n{}", 200, b"{}", False, True),
        (b"HTTP/1.1 200\r\n" + LENGTH_2 + b"\r\n{}", 200, b"{}", False, True),
    ],
)
def test_a_reply_is_read_and_its_connection_kept_where_it_may_be(
    raw: bytes, status: int, body: bytes, closes: bool, is_kept: bool, loop_factory: LoopFactory
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        found, connections = runner.run(replies_to(raw, closes=closes))
    assert [(reply.status, reply.body) for reply in found if isinstance(reply, Answered)] == [(status, body)] * 2
    assert connections == (1 if is_kept else 2)


@LOOPS
def test_a_reply_may_come_in_single_bytes(loop_factory: LoopFactory) -> None:
    raw = OK + b"Retry-After: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"

    async def respond(link: Link) -> None:
        await link.request()
        for byte in raw:
            await link.send(bytes([byte]))
            await asyncio.sleep(0)

    async def main() -> None:
        async with serving(forever(respond)) as server, a_client() as client:
            for _ in range(2):
                reply = await client.post_run(server.base_url, b"{}")
                assert isinstance(reply, Answered)
                assert reply.body == b"abc"
            assert server.connections == 1

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_a_connection_whose_request_was_not_read_to_its_end_is_not_used_again() -> None:
    async def answers_early(link: Link) -> None:
        await link.head()
        await link.answer(b"{}")
        await link.gone()

    async with serving(answers_early) as server, a_client(retry_requests=False) as client:
        for number in (1, 2):
            reply = await client.post_run(server.base_url, b"x" * 30_000_000)
            assert isinstance(reply, Answered)
            assert server.connections == number


async def test_a_connection_that_ends_between_two_requests_is_noticed() -> None:
    ended = asyncio.Event()

    async def answers_once(link: Link) -> None:
        await link.request()
        await link.answer(b"{}")
        link.close()
        ended.set()

    async with serving(answers_once) as server:
        origin = Origin(URL(server.base_url), connect_timeout_s=5.0, max_reply_bytes=100)
        connection = await origin.acquire()
        await connection.http.exchange(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"")
        await ended.wait()
        while connection.http.is_usable:
            await asyncio.sleep(0)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await connection.http.exchange(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"")
        origin.close()


# Where a connection leads


async def test_credentials_become_an_authorization_and_a_path_is_kept() -> None:
    heads: list[str] = []

    async def respond(link: Link) -> None:
        heads.append((await link.request())[0])
        await link.answer()

    async with serving(forever(respond)) as server, a_client() as client:
        url = server.base_url.replace("http://", "http://m%40e:s%3Acret@")
        reply = await client.post_run(f"{url}/gym%20one", b"{}")
    assert isinstance(reply, Answered)
    lines = heads[0].split("\r\n")
    assert lines[0] == "POST /gym%20one/run HTTP/1.1"
    assert f"Authorization: Basic {base64.b64encode(b'm@e:s:cret').decode()}" in lines
    assert f"Host: {server.base_url.removeprefix('http://')}" in lines


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
async def test_an_address_of_version_6_is_connected_to() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + LENGTH_2 + b"Connection: close\r\n\r\n{}")
        writer.close()

    heads: list[bytes] = []
    try:
        listener = await asyncio.start_server(handle, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 on loopback")
    port = listener.sockets[0].getsockname()[1]
    async with listener, a_client() as client:
        assert isinstance(await client.post_run(f"http://[::1]:{port}", b""), Answered)
    assert f"Host: [::1]:{port}\r\n".encode() in heads[0]


class Names:
    """Stands for the name service: every look-up takes until it is let go."""

    def __init__(self, port: int) -> None:
        self.port, self.asked, self.fails = port, 0, False
        self.answers = asyncio.Event()

    async def look_up(self, host: str, port: int, **more: Any) -> Sequence[Any]:
        self.asked += 1
        await self.answers.wait()
        if self.fails:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", self.port))]


async def test_a_name_is_looked_up_once_for_all_who_ask_and_a_failure_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def respond(link: Link) -> None:
        await link.request()
        await link.answer()

    async with serving(forever(respond)) as server, a_client(retry_requests=False) as client:
        names = Names(int(server.base_url.rsplit(":", 1)[1]))
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.look_up)
        url = f"http://env.test:{names.port}"
        names.fails = True
        names.answers.set()
        refused = await client.post_run(url, b"{}")
        assert isinstance(refused, Unanswered)
        assert (refused.exception_type, refused.sends, names.asked) == ("gaierror", 0, 3)

        names.fails, names.asked = False, 0
        names.answers.clear()
        calls = [asyncio.create_task(client.post_run(url, b"{}")) for _ in range(20)]
        await asyncio.sleep(0.01)
        calls[0].cancel()  # the others go on waiting for the look-up that it began
        await asyncio.sleep(0)
        names.answers.set()
        replies = await asyncio.gather(*calls[1:])
        assert all(isinstance(reply, Answered) for reply in replies)
        assert names.asked == 1


async def test_a_name_that_no_host_can_have_is_unreachable() -> None:
    async with a_client() as client:
        reply = await client.post_run(f"http://{'a' * 70}.test:80", b"{}")
    assert isinstance(reply, Unanswered)
    assert reply.sends == 0


@LOOPS
def test_connections_at_rest_are_closed(loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_REST_S", 0.05)

    async def main() -> None:
        gone = 0

        async def respond(link: Link) -> None:
            nonlocal gone
            await link.request()
            await everyone.wait()
            await link.answer()
            await link.gone()
            gone += 1

        everyone = asyncio.Barrier(3)
        async with serving(respond) as server, a_client() as client, asyncio.timeout(5):
            await asyncio.gather(*(client.post_run(server.base_url, b"{}") for _ in range(3)))
            assert gone == 0
            while gone < 3:
                await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    try:
        subprocess.run([*command, "-keyout", key, "-out", chain], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return chain, key


@LOOPS
@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "unknown"])
def test_tls_is_spoken_with_those_whose_certificate_holds(
    is_trusted: bool, certificate: tuple[Path, Path], loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    connections._tls_context.cache_clear()
    body, accepted = b"x" * 3_000_000, 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            sent = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(sent) + sent)
            await writer.drain()

    async def main() -> list[Any]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        async with a_client(retry_requests=False) as client:
            found = [await client.post_run(url, body) for _ in range(3)]
        server.close()
        return found

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        replies = runner.run(main())
    connections._tls_context.cache_clear()
    if is_trusted:
        assert [reply.body == body for reply in replies] == [True] * 3
        assert accepted == 1
    else:
        assert {(reply.sends, reply.exception_type) for reply in replies} == {(0, "SSLCertVerificationError")}

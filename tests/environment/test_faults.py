"""What aiohttp really raises, against servers that really misbehave, and what we make of it."""

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from gym_ray import keys
from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.faults import read_fault
from gym_ray.environment.http_connection import HTTPConnection, Response
from gym_ray.environment.patience import Patience
from gym_ray.environment.retry import Cause
from gym_ray.environment.witness import Witness
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered
from tests.environment.clients import LOOPS, LoopFactory, Waits, a_client
from tests.environment.servers import Behaviour, Link, free_port, serving

NOT_SENT, MAYBE, DELIVERED = Delivery.NOT_SENT, Delivery.POSSIBLY_DELIVERED, Delivery.DELIVERED
DROP, RAN = keys.TRANSPORT_PEER_DROP, keys.AGENT_RUN_ERROR


def answering(raw: bytes) -> Behaviour:
    """Reads a request, sends `raw` and closes."""

    async def behaviour(link: Link) -> None:
        await link.request()
        await link.send(raw)

    return behaviour


async def reads_and_closes(link: Link) -> None:
    await link.request()


async def reads_and_resets(link: Link) -> None:
    await link.request()
    link.reset()


async def reads_the_head_and_closes(link: Link) -> None:
    await link.head()


async def closes(link: Link) -> None:
    link.close()


async def resets(link: Link) -> None:
    link.reset()


async def resets_in_the_body(link: Link) -> None:
    await link.request()
    await link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.sleep(0.02)  # so that the client has read it: a reset discards what is unread
    link.reset()


@dataclass(frozen=True)
class Case:
    name: str
    behaviour: Behaviour
    delivery: Delivery
    kind: str
    exception: str
    status: int | None = None
    replayed: bool = True
    """Whether it goes again with `retry_requests`."""


OK = b"HTTP/1.1 200 OK\r\n"
CASES = [
    Case("closes after reading", reads_and_closes, MAYBE, DROP, "ServerDisconnectedError"),
    Case("resets after reading", reads_and_resets, MAYBE, DROP, "ClientOSError"),
    Case("closes with the body unread", reads_the_head_and_closes, MAYBE, DROP, "*"),
    Case("closes in the head", answering(OK + b"Set-Cookie: secret"), MAYBE, DROP, "ServerDisconnectedError"),
    Case("closes in the body", answering(OK + b"Content-Length: 9\r\n\r\n{"), MAYBE, DROP, "ClientPayloadError", 200),
    Case("resets in the body", resets_in_the_body, MAYBE, DROP, "ClientPayloadError", 200),
    Case(
        "closes between chunks",
        answering(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        MAYBE,
        DROP,
        "ClientPayloadError",
        200,
    ),
    Case(
        "closes in the body of a 500",
        answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\n{"),
        MAYBE,
        DROP,
        "ClientPayloadError",
        500,
        replayed=False,
    ),
    Case(
        "is not HTTP",
        answering(b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n"),
        MAYBE,
        DROP,
        "NotHTTPError",
        replayed=False,
    ),
    Case(
        "breaks the chunks",
        answering(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc"),
        MAYBE,
        DROP,
        "NotHTTPError",
        200,
        replayed=False,
    ),
    Case(
        "sends a header without end",
        answering(OK + b"X: " + b"a" * 300_000),
        MAYBE,
        DROP,
        "NotHTTPError",
        replayed=False,
    ),
    Case(
        "contradicts itself about the length",
        answering(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        MAYBE,
        DROP,
        "NotHTTPError",
        replayed=False,
    ),
    Case(
        "calls something gzip that is not",
        answering(OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"),
        DELIVERED,
        RAN,
        "UndecodableReplyError",
        200,
        replayed=False,
    ),
]


async def reply_of(behaviour: Behaviour, body: bytes, *, retry_requests: bool) -> tuple[Reply, int]:
    """The reply, and how many connections the server saw."""
    async with serving(behaviour) as server, a_client(retry_requests=retry_requests) as client:
        return await client.post_run(server.base_url, body), server.connections


@LOOPS
@pytest.mark.parametrize("size", [10, 3_000_000], ids=["small", "large"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_fault_after_the_request_is_sent(case: Case, size: int, loop_factory: LoopFactory) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        once, connections = runner.run(reply_of(case.behaviour, b"x" * size, retry_requests=False))
        assert isinstance(once, Unanswered)
        assert (once.delivery, once.failure_kind, once.status) == (case.delivery, case.kind, case.status)
        assert case.exception in ("*", once.exception_type)
        assert (once.sends, once.tries, connections) == (1, 1, 1)
        assert "secret" not in once.message

        replayed, connections = runner.run(reply_of(case.behaviour, b"x" * size, retry_requests=True))
        assert isinstance(replayed, Unanswered)
        expected = 5 if case.replayed else 1
        assert (replayed.sends, replayed.tries, connections) == (expected, expected, expected)


@LOOPS
@pytest.mark.parametrize("size", [10, 3_000_000], ids=["small", "large"])
@pytest.mark.parametrize("behaviour", [closes, resets])
def test_a_connection_that_ends_before_anything_is_sent_is_tried_again_without_retry_requests(
    behaviour: Behaviour, size: int, loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = HTTPConnection.exchange

    async def late(self: HTTPConnection, head: bytes, body: bytes) -> Response:
        await asyncio.sleep(0.003)  # so that the server is first
        return await exchange(self, head, body)

    monkeypatch.setattr(HTTPConnection, "exchange", late)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        reply, connections = runner.run(reply_of(behaviour, b"x" * size, retry_requests=False))
    assert isinstance(reply, Unanswered)
    assert (reply.delivery, reply.failure_kind) == (NOT_SENT, DROP)
    assert (reply.sends, reply.tries, connections) == (0, 5, 5)


async def unreachable(base_url: str, **more: float) -> tuple[Unanswered, Waits]:
    waits = Waits()
    async with a_client(retry_requests=False, waits=waits, **more) as client:
        reply = await client.post_run(base_url, b"{}")
    assert isinstance(reply, Unanswered)
    return reply, waits


@LOOPS
def test_a_refused_connection_is_tried_three_times(loop_factory: LoopFactory) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        reply, waits = runner.run(unreachable(f"http://127.0.0.1:{free_port()}"))
    assert (reply.delivery, reply.failure_kind) == (NOT_SENT, keys.TRANSPORT_UNREACHABLE)
    assert (reply.sends, reply.tries, len(waits.slept)) == (0, 3, 2)
    assert reply.exception_type == "ConnectionRefusedError"
    assert "127.0.0.1" in reply.message
    assert "3 tries" in reply.message


@LOOPS
@pytest.mark.parametrize(
    ("base_url", "tries"),
    [
        ("http://no-such-host.invalid:80", 3),
        ("http://255.255.255.255:80", 3),
        ("http://127.0.0.1:99999", 0),
        ("http://", 0),
        ("ftp://127.0.0.1:80", 0),
        ("127.0.0.1:80", 0),
        ("", 0),
    ],
)
def test_an_address_that_leads_nowhere_is_not_sent_to(base_url: str, tries: int, loop_factory: LoopFactory) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        reply, _ = runner.run(unreachable(base_url))
    assert (reply.delivery, reply.failure_kind) == (NOT_SENT, keys.TRANSPORT_UNREACHABLE)
    assert (reply.sends, reply.tries) == (0, tries)


async def test_a_server_that_accepts_no_connection_is_unreachable() -> None:
    with ExitStack() as sockets, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):  # fill the queue of connections that nobody accepts
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        reply, _ = await unreachable(f"http://127.0.0.1:{address[1]}", connect_timeout_s=0.05)
    assert reply.exception_type == "ConnectionTimeoutError"
    assert (reply.delivery, reply.failure_kind, reply.sends) == (NOT_SENT, keys.TRANSPORT_UNREACHABLE, 0)


@contextmanager
def no_descriptors() -> Iterator[Callable[[], None]]:
    """No descriptor can be opened inside, until what it gives is called; those that are open stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def relieve() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield relieve
    finally:
        relieve()


async def test_a_want_of_descriptors_is_ours_to_wait_out() -> None:
    with no_descriptors():
        reply, waits = await unreachable("http://127.0.0.1:9")
    assert (reply.delivery, reply.failure_kind, reply.sends) == (NOT_SENT, keys.TRANSPORT_LOCAL_RESOURCE, 0)
    assert reply.tries > 10
    assert 100 < sum(waits.slept) <= 120


async def test_descriptors_that_come_back_end_the_waiting() -> None:
    async def answers(link: Link) -> None:
        await link.request()
        await link.answer()

    class Relief(Waits):
        async def sleep(self, delay_s: float) -> None:
            await super().sleep(delay_s)
            if len(self.slept) == 3:
                relieve()

    async with serving(answers) as server, a_client(retry_requests=False, waits=Relief()) as client:
        with no_descriptors() as relieve:
            reply = await client.post_run(server.base_url, b"{}")
    assert isinstance(reply, Answered)
    assert (reply.sends, reply.tries) == (1, 4)


@LOOPS
def test_tls_to_a_plain_server_is_not_sent(loop_factory: LoopFactory) -> None:
    async def refuses_what_is_no_http(link: Link) -> None:
        await link.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async def main() -> Reply:
        async with serving(refuses_what_is_no_http) as server, a_client() as client:
            return await client.post_run(server.base_url.replace("http", "https"), b"{}")

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        reply = runner.run(main())
    assert isinstance(reply, Unanswered)
    assert (reply.delivery, reply.failure_kind, reply.sends) == (NOT_SENT, keys.TRANSPORT_UNREACHABLE, 0)


@pytest.mark.parametrize(
    ("error", "cause", "delivery", "kind"),
    [
        (aiohttp.ServerTimeoutError("slow"), Cause.TIMEOUT, MAYBE, keys.TRANSPORT_TIMEOUT),
        (aiohttp.SocketTimeoutError("slow"), Cause.TIMEOUT, MAYBE, keys.TRANSPORT_TIMEOUT),
        (TimeoutError("slow"), Cause.TIMEOUT, MAYBE, keys.TRANSPORT_TIMEOUT),
        (aiohttp.ClientOSError(errno.ETIMEDOUT, "dead"), Cause.TIMEOUT, MAYBE, keys.TRANSPORT_TIMEOUT),
        (aiohttp.ClientOSError(errno.EPIPE, "pipe"), Cause.DROPPED, MAYBE, DROP),
        (aiohttp.ClientConnectionError("gone"), Cause.DROPPED, MAYBE, DROP),
        (OSError(errno.EHOSTUNREACH, "no route"), Cause.DROPPED, MAYBE, DROP),
    ],
)
def test_errors_that_loopback_does_not_give(error: Exception, cause: Cause, delivery: Delivery, kind: str) -> None:
    witness = Witness(asyncio.Protocol(), Patience(), lambda: 0.0)  # has seen nothing
    setback = read_fault(error, witness, None, "http://h/run")
    assert isinstance(setback.reply, Unanswered)
    assert (setback.cause, setback.delivery, setback.reply.failure_kind) == (cause, delivery, kind)
    without = read_fault(error, None, None, "http://h/run")
    assert without.delivery is NOT_SENT


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
def test_want_of_our_own_resources_is_told_by_its_number(number: int) -> None:
    setback = read_fault(OSError(number, "none left"), None, None, "http://h/run")
    assert setback.cause is Cause.LOCAL_RESOURCE


def test_a_certificate_that_does_not_fit_is_not_sent() -> None:
    error = ssl.SSLCertVerificationError(1, "wrong host")
    assert read_fault(error, None, None, "https://h/run").cause is Cause.UNREACHABLE


async def test_credentials_of_a_url_stay_out_of_replies() -> None:
    async with a_client() as client:
        for base_url in (f"http://me:s3cret@127.0.0.1:{free_port()}", "http://me:s3cret@:99999", "ftp://me:s3cret@h"):
            reply = await client.post_run(base_url, b"{}")
            assert isinstance(reply, Unanswered)
            assert "s3cret" not in repr(reply)


async def test_a_bug_of_ours_is_raised() -> None:
    client = EnvironmentClient(retry_requests=True)
    await client.aclose()
    with pytest.raises(RuntimeError):
        await client.post_run("http://127.0.0.1:9", b"{}")

"""One POST in, one reply out: bodies, retries, time limits, cancellation, and nothing sent behind our back."""

import asyncio
import gzip
import json
import logging
import zlib
from collections.abc import AsyncIterator

import pytest

from gym_ray import keys
from gym_ray.environment.client import MAX_REPLY_BYTES, WARN_AGAIN_S
from gym_ray.outcomes.reply import Answered, Delivery, Unanswered
from tests.environment.clients import LOOPS, LoopFactory, Waits, a_client
from tests.environment.servers import Link, forever, free_port, serving


class Script:
    """Answers the requests of all connections in turn; the last answer repeats."""

    def __init__(self, *answers: tuple[str, str, bytes] | str) -> None:
        self._answers = list(answers)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    async def __call__(self, link: Link) -> None:
        while True:
            head, body = await link.request()
            self.heads.append(head)
            self.bodies.append(body)
            answer = self._answers[min(len(self.bodies), len(self._answers)) - 1]
            if isinstance(answer, str):
                return  # close without a word
            status, headers, content = answer
            await link.answer(content, status, headers)


FINE = ("200 OK", "", b'{"reward":1.0}')
DROP = "drop"


def refused(status: int, retry_after: str | None = None) -> tuple[str, str, bytes]:
    return f"{status} No", "" if retry_after is None else f"Retry-After: {retry_after}\r\n", b'{"detail":"slow down"}'


# What is sent


async def test_a_request_is_the_body_and_its_type_and_nothing_personal() -> None:
    script = Script(("200 OK", "Set-Cookie: a=1\r\n", b"{}"))
    async with serving(script) as server, a_client() as client:
        base_url = server.base_url.replace("127.0.0.1", "localhost")  # no jar keeps cookies of an address
        for _ in range(2):
            await client.post_run(base_url, b'{"a": 1}')
        await client.post_run(base_url + "/", b"{}")
    assert script.bodies == [b'{"a": 1}'] * 2 + [b"{}"]
    for head in script.heads:
        lines = head.lower().split("\r\n")
        assert lines[0] == "post /run http/1.1"
        assert "content-type: application/json" in lines
        assert not [line for line in lines if line.startswith(("cookie", "authorization", "transfer-encoding"))]


@LOOPS
@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 7_000_001])
def test_bodies_of_any_size_arrive_whole_with_their_length(size: int, loop_factory: LoopFactory) -> None:
    async def main() -> None:
        script, body = Script(FINE), b"x" * size
        async with serving(script) as server, a_client() as client:
            assert isinstance(await client.post_run(server.base_url, body), Answered)
        assert script.bodies == [body]
        assert f"content-length: {size}\r\n" in script.heads[0].lower()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_a_large_body_is_replayed_whole() -> None:
    script, body = Script(DROP, refused(429), FINE), bytes(range(256)) * 8192
    async with serving(script) as server, a_client() as client:
        assert isinstance(await client.post_run(server.base_url, body), Answered)
    assert script.bodies == [body] * 3


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    async with serving(Script(FINE)) as server, a_client() as client:
        assert isinstance(await client.post_run(server.base_url, b"{}"), Answered)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(status: int) -> None:
    script = Script((f"{status} Elsewhere", "Location: /run/\r\n", b""))
    async with serving(script) as server, a_client() as client:
        reply = await client.post_run(server.base_url, b"{}")
    assert isinstance(reply, Answered)
    assert (reply.status, len(script.heads)) == (status, 1)


# What comes back


async def test_a_reply_is_given_with_its_status_whatever_it_is() -> None:
    for status in (200, 201, 204, 400, 404, 413, 422, 500, 501, 502, 504, 599, 999):
        body = b"" if status == 204 else b"<html>"
        script = Script((f"{status} Word", "Content-Type: text/html\r\n" if status != 204 else "", body))
        async with serving(script) as server, a_client() as client:
            reply = await client.post_run(server.base_url, b"{}")
        assert reply == Answered(status, body, server.base_url + "/run", sends=1, tries=1)
        assert len(script.heads) == 1


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(b'{"reward":1.0}')), ("deflate", zlib.compress(b'{"reward":1.0}')), ("identity", FINE[2])],
)
async def test_a_compressed_reply_is_unpacked(encoding: str, body: bytes) -> None:
    async with serving(Script(("200 OK", f"Content-Encoding: {encoding}\r\n", body))) as server, a_client() as client:
        reply = await client.post_run(server.base_url, b"{}")
    assert isinstance(reply, Answered)
    assert reply.body == FINE[2]


async def test_a_chunked_reply_of_many_parts_arrives_whole() -> None:
    async def respond(link: Link) -> None:
        await link.request()
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await link.send(b"".join(b"3\r\nabc\r\n" for _ in range(50_000)) + b"0\r\n\r\n")

    async with serving(forever(respond)) as server, a_client() as client:
        reply = await client.post_run(server.base_url, b"{}")
        assert isinstance(reply, Answered)
        assert reply.body == b"abc" * 50_000
        assert (await client.post_run(server.base_url, b"{}")) == reply
        assert server.connections == 1


async def test_a_long_header_does_not_lose_a_rollout() -> None:
    headers = f"X-NG-Failure-Report: {'a' * 100_000}\r\n"
    async with serving(Script(("200 OK", headers, b"{}"))) as server, a_client() as client:
        assert isinstance(await client.post_run(server.base_url, b"{}"), Answered)


@pytest.mark.parametrize("how", ["announced", "chunked", "compressed"])
async def test_a_reply_beyond_all_measure_is_refused_and_not_asked_for_again(how: str) -> None:
    async def respond(link: Link) -> None:
        await link.request()
        if how == "announced":
            await link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000001\r\n\r\n{")
        elif how == "chunked":
            await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(1000):
                await link.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        else:
            await link.answer(gzip.compress(b"x" * 1_000_001), headers="Content-Encoding: gzip\r\n")
        await link.gone()

    async with serving(respond) as server, a_client(max_reply_bytes=1_000_000) as client:
        reply = await client.post_run(server.base_url, b"{}")
        assert isinstance(reply, Unanswered)
        assert (reply.status, reply.delivery, reply.exception_type) == (200, Delivery.DELIVERED, "ReplyTooLargeError")
        assert (reply.failure_kind, reply.sends, server.connections) == (keys.AGENT_RUN_ERROR, 1, 1)
    assert MAX_REPLY_BYTES > 100_000_000


async def test_an_answer_that_comes_before_the_body_is_sent_is_taken() -> None:
    async def respond(link: Link) -> None:
        await link.head()
        await link.answer(b"{}", "413 Content Too Large", "Connection: close\r\n")
        await link.gone()

    async with serving(respond) as server, a_client() as client:
        reply = await client.post_run(server.base_url, b"x" * 30_000_000)
    assert isinstance(reply, Answered)
    assert reply.status == 413


# Retries


async def run(
    script: Script, *, retry_requests: bool = True, retry_budget_s: float | None = None, draw: float = 0.5
) -> tuple[Answered | Unanswered, list[float]]:
    waits = Waits()
    async with (
        serving(script) as server,
        a_client(retry_requests=retry_requests, retry_budget_s=retry_budget_s, draw=draw, waits=waits) as client,
    ):
        return await client.post_run(server.base_url, b"{}"), waits.slept


async def test_a_dropped_request_is_replayed_and_the_reply_says_so() -> None:
    reply, slept = await run(Script(DROP, DROP, FINE))
    assert isinstance(reply, Answered)
    assert (reply.status, reply.sends, reply.tries) == (200, 3, 3)
    assert slept == [0.375, 0.75]


async def test_without_retry_requests_a_drop_is_the_end() -> None:
    script = Script(DROP, FINE)
    reply, slept = await run(script, retry_requests=False)
    assert isinstance(reply, Unanswered)
    assert (reply.delivery, reply.sends, len(script.bodies), slept) == (Delivery.POSSIBLY_DELIVERED, 1, 1, [])


async def test_nothing_but_us_replays_even_on_a_used_connection() -> None:
    script = Script(FINE, DROP, FINE)
    async with serving(script) as server, a_client(retry_requests=False) as client:
        assert isinstance(await client.post_run(server.base_url, b"1"), Answered)
        assert isinstance(await client.post_run(server.base_url, b"2"), Unanswered)
    assert script.bodies == [b"1", b"2"]


@pytest.mark.parametrize("retry_requests", [True, False])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_is_honoured(status: int, retry_requests: bool) -> None:
    reply, slept = await run(
        Script(refused(status, "1"), refused(status, "Tue, 14 Nov 2023 22:13:23 GMT"), FINE),
        retry_requests=retry_requests,
        retry_budget_s=6.0,
    )
    assert isinstance(reply, Answered)
    assert (reply.status, reply.sends) == (200, 3)
    assert slept == [1.25, 3.5]


async def test_a_retry_after_beyond_the_budget_is_not_slept() -> None:
    reply, slept = await run(Script(refused(429, "120"), FINE), retry_budget_s=6.0)
    assert isinstance(reply, Answered)
    assert (reply.status, reply.sends, reply.body, slept) == (429, 1, b'{"detail":"slow down"}', [])


@pytest.mark.parametrize("retry_after", [None, "soon"])
async def test_without_a_readable_retry_after_it_backs_off(retry_after: str | None) -> None:
    reply, slept = await run(Script(refused(429, retry_after), refused(503, retry_after), FINE), draw=0.0)
    assert isinstance(reply, Answered)
    assert (reply.status, slept) == (200, [0.25, 0.5])


async def test_a_bare_503_is_final_without_retry_requests_and_a_429_is_not() -> None:
    reply, _ = await run(Script(refused(503), FINE), retry_requests=False)
    assert isinstance(reply, Answered)
    assert (reply.status, reply.sends) == (503, 1)
    reply, _ = await run(Script(refused(429), FINE), retry_requests=False)
    assert isinstance(reply, Answered)
    assert (reply.status, reply.sends) == (200, 2)


async def test_throttling_without_end_is_given_up_within_a_minute() -> None:
    reply, slept = await run(Script(refused(503, "2")))
    assert isinstance(reply, Answered)
    assert reply.status == 503
    assert reply.sends == len(slept) + 1
    assert 50 < sum(slept) <= 60


@pytest.mark.parametrize("status", [400, 404, 408, 413, 422, 500, 502, 504])
async def test_no_other_status_is_tried_again(status: int) -> None:
    script = Script(refused(status, "1"), FINE)
    reply, slept = await run(script)
    assert isinstance(reply, Answered)
    assert (reply.status, reply.sends, len(script.bodies), slept) == (status, 1, 1, [])


async def test_the_delivery_of_a_reply_covers_every_try() -> None:
    async def drops_once(link: Link) -> None:
        await link.request()
        stopped.set()

    stopped = asyncio.Event()

    class Stopping(Waits):
        async def sleep(self, delay_s: float) -> None:
            await super().sleep(delay_s)
            await context.__aexit__(None, None, None) if len(self.slept) == 1 else None

    context = serving(drops_once)
    server = await context.__aenter__()
    async with a_client(waits=Stopping()) as client:
        reply = await client.post_run(server.base_url, b"{}")
    assert isinstance(reply, Unanswered)
    assert reply.failure_kind == keys.TRANSPORT_UNREACHABLE
    assert (reply.delivery, reply.sends, reply.tries) == (Delivery.POSSIBLY_DELIVERED, 1, 4)


# Time limits and cancellation


class Hanging:
    """Reads requests, never answers, and notices when the client hangs up."""

    def __init__(self) -> None:
        self.reads, self.is_gone = 0, asyncio.Event()

    async def __call__(self, link: Link) -> None:
        await link.request()
        self.reads += 1
        await link.gone()
        self.is_gone.set()


@LOOPS
def test_a_rollout_beyond_its_time_is_hung_up_on(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        hanging = Hanging()
        async with serving(hanging) as server, a_client() as client:
            reply = await client.post_run(server.base_url, b"{}", timeout_s=0.05)
            assert isinstance(reply, Unanswered)
            assert (reply.delivery, reply.failure_kind) == (Delivery.POSSIBLY_DELIVERED, keys.TRANSPORT_TIMEOUT)
            assert (reply.sends, reply.tries, hanging.reads) == (1, 1, 1)
            assert "0.05" in reply.message
            async with asyncio.timeout(5):
                await hanging.is_gone.wait()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_a_time_limit_covers_the_body_of_a_reply() -> None:
    async def stalls(link: Link) -> None:
        await link.request()
        await link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        await link.gone()

    async with serving(stalls) as server, a_client() as client:
        reply = await client.post_run(server.base_url, b"{}", timeout_s=0.05)
    assert isinstance(reply, Unanswered)
    assert reply.failure_kind == keys.TRANSPORT_TIMEOUT


class Endless(Waits):
    """Sleeps through every time limit."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(3600)


async def test_a_time_limit_that_ends_between_two_tries_counts_the_first() -> None:
    async with serving(Script(DROP)) as server, a_client(waits=Endless()) as client:
        reply = await client.post_run(server.base_url, b"{}", timeout_s=0.4)
    assert isinstance(reply, Unanswered)
    assert (reply.delivery, reply.sends, reply.tries) == (Delivery.POSSIBLY_DELIVERED, 1, 1)


async def test_a_time_limit_that_ends_before_anything_was_sent_says_so() -> None:
    async with a_client(waits=Endless()) as client:
        reply = await client.post_run(f"http://127.0.0.1:{free_port()}", b"{}", timeout_s=0.4)
    assert isinstance(reply, Unanswered)
    assert (reply.delivery, reply.sends, reply.tries) == (Delivery.NOT_SENT, 0, 1)


async def test_a_wait_that_would_outlast_the_rollout_is_not_begun() -> None:
    async with serving(Script(refused(429, "30"))) as server, a_client() as client:
        reply = await client.post_run(server.base_url, b"{}", timeout_s=20.0)
    assert isinstance(reply, Answered)
    assert reply.status == 429


@LOOPS
@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_cancellation_propagates_and_closes_the_connection(timeout_s: float | None, loop_factory: LoopFactory) -> None:
    async def main() -> None:
        hanging = Hanging()
        async with serving(hanging) as server, a_client() as client:
            task = asyncio.ensure_future(client.post_run(server.base_url, b"{}", timeout_s=timeout_s))
            while not hanging.reads:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(5):
                await hanging.is_gone.wait()
            assert hanging.reads == 1

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_closing_the_client_closes_its_connections() -> None:
    gone = asyncio.Event()

    async def respond(link: Link) -> None:
        await link.request()
        await link.answer()
        await link.gone()
        gone.set()

    async with serving(respond) as server:
        async with a_client() as client:
            await client.post_run(server.base_url, b"{}")
            assert not gone.is_set()
        async with asyncio.timeout(5):
            await gone.wait()


async def test_more_requests_run_at_once_than_aiohttp_allows_by_default() -> None:
    everyone = asyncio.Barrier(301)

    async def respond(link: Link) -> None:
        await link.request()
        await everyone.wait()
        await link.answer()

    async with serving(respond) as server, a_client() as client, asyncio.timeout(20):
        tasks = [asyncio.ensure_future(client.post_run(server.base_url, b"{}")) for _ in range(300)]
        await everyone.wait()
        assert all(isinstance(reply, Answered) for reply in await asyncio.gather(*tasks))


# Control calls


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_an_aggregation_streams_its_body_on_its_own_connection() -> None:
    script = Script(("200 OK", "", b'{"agent_metrics":{}}'))
    async with serving(script) as server, a_client() as client:
        await client.post_run(server.base_url, b"{}")
        for body in (chunks(b"[1", b",2]"), b"[1,2]"):
            reply = await client.post_aggregate(server.base_url, body, 5.0)
            assert isinstance(reply, Answered)
            assert (reply.status, reply.body) == (200, b'{"agent_metrics":{}}')
        assert server.connections == 3
    assert script.bodies[1:] == [b"[1,2]"] * 2
    assert "POST /aggregate_metrics " in script.heads[1]
    assert "transfer-encoding: chunked" in script.heads[1].lower()
    assert "content-type: application/json" in script.heads[1].lower()


async def test_an_aggregation_is_tried_again_while_its_body_is_untouched() -> None:
    reads = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal reads
        reads += 1
        yield b"{}"

    async with a_client() as client:
        reply = await client.post_aggregate(f"http://127.0.0.1:{free_port()}", body(), 600.0)
    assert isinstance(reply, Unanswered)
    assert (reply.delivery, reply.tries, reads) == (Delivery.NOT_SENT, 3, 0)


async def test_an_aggregation_whose_body_is_gone_is_not_tried_again() -> None:
    script = Script(DROP, FINE)
    async with serving(script) as server, a_client() as client:
        reply = await client.post_aggregate(server.base_url, chunks(b"{", b"}"), 600.0)
    assert isinstance(reply, Unanswered)
    assert (reply.sends, script.bodies) == (1, [b"{}"])


async def test_an_aggregation_has_its_time_limit() -> None:
    async with serving(Hanging()) as server, a_client() as client:
        reply = await client.post_aggregate(server.base_url, chunks(b"{}"), 0.05)
    assert isinstance(reply, Unanswered)
    assert (reply.failure_kind, reply.delivery) == (keys.TRANSPORT_TIMEOUT, Delivery.POSSIBLY_DELIVERED)


async def test_what_goes_wrong_with_the_body_of_an_aggregation_is_raised() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"["
        raise OSError("disk on fire")

    async with serving(Script(FINE)) as server, a_client() as client:
        with pytest.raises(OSError, match="disk on fire"):
            await client.post_aggregate(server.base_url, body(), 5.0)


async def test_health_is_any_answer() -> None:
    script = Script(("404 Not Found", "", b"{}"))
    async with serving(script) as server, a_client() as client:
        reply = await client.get_health(server.base_url, 2.0)
        assert isinstance(reply, Answered)
        assert reply.status == 404
        assert script.heads[0].startswith("GET / HTTP/1.1")
        assert isinstance(await client.get_health(f"http://127.0.0.1:{free_port()}", 2.0), Unanswered)
        assert isinstance(await client.get_health("http://", 2.0), Unanswered)
    async with serving(Hanging()) as server, a_client() as client:
        reply = await client.get_health(server.base_url, 0.05)
        assert isinstance(reply, Unanswered)
        assert reply.failure_kind == keys.TRANSPORT_TIMEOUT


async def test_nothing_is_logged_of_what_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(Script(DROP, refused(429), FINE)) as server, a_client() as client:
        await client.post_run(server.base_url, json.dumps({"secret": "s3cret"}).encode())
    assert "gym_ray.environment" in {record.name for record in caplog.records}
    assert "s3cret" not in caplog.text


async def test_a_server_that_cannot_be_reached_is_named_at_once_and_not_with_every_rollout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "gym_ray.environment")
    waits, (one, other) = Waits(), (free_port(), free_port())
    async with a_client(waits=waits) as client:
        for _ in range(5):
            await client.post_run(f"http://me:s3cret@127.0.0.1:{one}", b"{}")
        await client.post_run(f"http://127.0.0.1:{other}", b"{}")
        assert len(caplog.records) == 2
        waits.now += WARN_AGAIN_S
        await client.post_run(f"http://127.0.0.1:{one}", b"{}")
    first, second, third = [entry.getMessage() for entry in caplog.records]
    assert first == third
    assert first.startswith(f"no connection to http://127.0.0.1:{one}/run: ConnectionRefusedError: ")
    assert f":{other}/run" in second
    assert "s3cret" not in caplog.text


async def test_a_server_is_warned_about_before_the_first_wait(caplog: pytest.LogCaptureFixture) -> None:
    warned: list[int] = []

    class Listening(Waits):
        async def sleep(self, delay_s: float) -> None:
            warned.append(len(caplog.records))
            await super().sleep(delay_s)

    caplog.set_level(logging.WARNING, "gym_ray.environment")
    async with a_client(waits=Listening()) as client:
        await client.post_run(f"http://127.0.0.1:{free_port()}", b"{}")
    assert warned == [1, 1]

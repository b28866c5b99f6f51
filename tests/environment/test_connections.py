"""Servers that close kept-alive connections without a word lose no row, and no row runs twice for it."""

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from gym_ray.environment.client import EnvironmentClient
from gym_ray.environment.patience import FIRST_REST_S, SURVIVORS, Patience
from gym_ray.environment.witness import Witness
from gym_ray.outcomes.reply import Answered
from tests.environment.clients import LOOPS, LoopFactory, a_client
from tests.environment.servers import Link, forever, serving

REQUEST = b"POST /run HTTP/1.1\r\n\r\n"


class Probe(asyncio.Protocol):
    """Where the HTTP connection would be."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Pair:
    """A connection with a witness on our side and a bare socket on the server's."""

    @classmethod
    async def connected(cls) -> "Pair":
        pair = cls()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            loop = asyncio.get_running_loop()
            pair.probe, pair.patience = Probe(), Patience()
            pair.witness = Witness(pair.probe, pair.patience, loop.time)
            pair.transport, _ = await loop.create_connection(lambda: pair.witness, *listener.getsockname())
            pair.server, _ = listener.accept()
        return pair

    probe: Probe
    server: socket.socket
    transport: asyncio.Transport
    patience: Patience
    witness: Witness

    async def exchange(self) -> None:
        """One request that is answered."""
        assert self.witness.begin()
        self.transport.write(REQUEST)
        await asyncio.sleep(0.001)
        assert self.server.recv(100) == REQUEST
        self.server.send(b"answer")
        await asyncio.sleep(0.001)
        self.witness.rest()

    def reset(self) -> None:
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.close()

    async def verdict(self) -> bool:
        async with asyncio.timeout(5):
            await self.probe.lost.wait()
        self.transport.close()
        self.server.close()
        await asyncio.sleep(0)
        return self.witness.disproves_delivery


async def close_before_the_write(pair: Pair) -> bool:
    pair.server.close()
    pair.transport.write(REQUEST)
    return await pair.verdict()


async def close_seen_before_the_write(pair: Pair) -> bool:
    pair.server.close()
    return await pair.verdict()


async def close_before_a_large_write(pair: Pair) -> bool:
    pair.server.close()
    pair.transport.write(b"x" * 20_000_000)
    return await pair.verdict()


async def close_between_two_writes(pair: Pair) -> bool:
    pair.server.close()
    pair.transport.write(b"head")
    pair.transport.write(b"body")
    return await pair.verdict()


async def half_close_and_close_unread(pair: Pair) -> bool:
    pair.server.shutdown(socket.SHUT_WR)
    pair.transport.write(REQUEST)
    await asyncio.sleep(0.005)
    pair.server.close()
    return await pair.verdict()


async def reset_before_the_write(pair: Pair) -> bool:
    pair.reset()
    pair.transport.write(REQUEST)
    return await pair.verdict()


async def close_after_reading(pair: Pair) -> bool:
    pair.transport.write(REQUEST)
    await asyncio.sleep(0.001)
    pair.server.recv(100)
    pair.server.close()
    return await pair.verdict()


async def reset_after_reading(pair: Pair) -> bool:
    pair.transport.write(REQUEST)
    await asyncio.sleep(0.001)
    pair.server.recv(100)
    pair.reset()
    return await pair.verdict()


async def close_with_the_request_unread(pair: Pair) -> bool:
    pair.transport.write(REQUEST)
    await asyncio.sleep(0.001)
    pair.server.close()
    return await pair.verdict()


async def close_after_reading_a_part(pair: Pair) -> bool:
    pair.transport.write(b"head")
    await asyncio.sleep(0.001)
    pair.server.recv(100)
    pair.server.close()
    pair.transport.write(b"body")  # draws a reset
    return await pair.verdict()


async def half_close_and_read_on(pair: Pair) -> bool:
    pair.server.shutdown(socket.SHUT_WR)
    pair.transport.write(REQUEST)
    await asyncio.sleep(0.001)
    assert pair.server.recv(100) == REQUEST
    return await pair.verdict()


@LOOPS
@pytest.mark.parametrize("is_reused", [False, True], ids=["fresh", "reused"])
@pytest.mark.parametrize(
    ("happening", "is_disproved"),
    [
        (close_before_the_write, True),
        (close_seen_before_the_write, True),
        (close_before_a_large_write, True),
        (close_between_two_writes, True),
        (reset_before_the_write, True),
        (close_after_reading, False),
        (reset_after_reading, False),
        (close_after_reading_a_part, False),
        (close_with_the_request_unread, False),
        (half_close_and_read_on, False),
    ],
)
def test_delivery_is_disproved_exactly_where_no_byte_can_have_been_read(
    happening: object, is_disproved: bool, is_reused: bool, loop_factory: LoopFactory
) -> None:
    async def main() -> None:
        pair = await Pair.connected()
        if is_reused:
            await pair.exchange()
        assert pair.witness.begin()
        assert await happening(pair) is is_disproved  # type: ignore[operator]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
def test_a_reset_that_follows_a_close_is_waited_for(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        pair = await Pair.connected()
        await pair.exchange()  # from here on the kernel delays its acknowledgements
        assert pair.witness.begin()
        assert await half_close_and_close_unread(pair)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
def test_after_a_disproof_nothing_can_be_written_any_more(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        pair = await Pair.connected()
        assert pair.witness.begin()
        pair.server.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.005)
        assert pair.witness.disproves_delivery
        assert pair.transport.is_closing()
        await pair.verdict()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_connection_that_ended_at_rest_is_not_begun_again(ending: str, loop_factory: LoopFactory) -> None:
    async def main() -> None:
        pair = await Pair.connected()
        await pair.exchange()
        getattr(pair.server if ending == "close" else pair, ending)()
        # The event loop has not had a chance to notice
        assert not pair.transport.is_closing()
        assert not pair.witness.begin()
        pair.transport.abort()
        await pair.verdict()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_a_close_at_rest_teaches_patience() -> None:
    pair = await Pair.connected()
    await pair.exchange()
    await asyncio.sleep(0.02)
    for _ in range(SURVIVORS):
        pair.patience.observe_survival(10.0)
    pair.server.close()
    await pair.verdict()
    limit_s = pair.patience.limit_s(asyncio.get_running_loop().time())
    assert 0.01 <= limit_s < 1.0


async def test_a_rest_that_is_not_proven_counts_as_survived_and_is_not_relied_on() -> None:
    pair = await Pair.connected()
    for _ in range(SURVIVORS):
        await pair.exchange()
        await asyncio.sleep(0.015)
        pair.witness.begin()
    assert FIRST_REST_S < pair.patience.limit_s(0.0) < 1.0
    await pair.exchange()
    await asyncio.sleep(0.011)
    assert pair.witness.begin()
    await pair.exchange()
    await asyncio.sleep(0.1)
    assert not pair.witness.begin()
    pair.transport.abort()
    await pair.verdict()


async def test_without_counters_nothing_is_disproved() -> None:
    ours, servers = socket.socketpair()  # not TCP, so that nothing is counted
    probe = Probe()
    witness = Witness(probe, Patience(), lambda: 0.0)
    await asyncio.get_running_loop().create_connection(lambda: witness, sock=ours)
    assert witness.begin()
    servers.close()
    async with asyncio.timeout(5):
        await probe.lost.wait()
    assert not witness.disproves_delivery


class FickleServer:
    """Answers at once and closes each connection after a random rest, in threads, out of step with our event loop."""

    def __init__(self, rest_s: tuple[float, float]) -> None:
        self._rest_s = rest_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._threads: list[threading.Thread] = []
        self.executions: Counter[bytes] = Counter()
        self.connections = 0
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection, random.Random(self.connections)))
                thread.start()
                self._threads.append(thread)

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _serve(self, connection: socket.socket, dice: random.Random) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            while data := connection.recv(65536):
                while (head := data.find(b"\r\n\r\n")) < 0 or len(data) < head + 12:
                    data += connection.recv(65536)
                self.executions[data[head + 4 :]] += 1
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                connection.settimeout(dice.uniform(*self._rest_s))


@contextmanager
def fickle(rest_s: tuple[float, float]) -> Iterator[FickleServer]:
    server = FickleServer(rest_s)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@LOOPS
@pytest.mark.parametrize("rest_s", [(0.02, 0.02), (0.005, 0.02)], ids=["one time", "many times"])
def test_a_server_that_closes_every_connection_at_rest_loses_no_row(
    rest_s: tuple[float, float], loop_factory: LoopFactory
) -> None:
    async def one(client: EnvironmentClient, server: FickleServer, number: int, dice: random.Random) -> None:
        await asyncio.sleep(dice.uniform(0, 2.5 if number % 4 == 0 else 0.1) * max(rest_s))
        reply = await client.post_run(server.base_url, b"%08d" % number)
        assert isinstance(reply, Answered), reply
        assert reply.sends == 1

    async def main(server: FickleServer) -> None:
        async with a_client(retry_requests=False) as client:

            async def worker(start: int) -> None:
                dice = random.Random(start)
                for number in range(start, start + 40):
                    await one(client, server, number, dice)

            await asyncio.gather(*(worker(100 * k) for k in range(4)))

    with fickle(rest_s) as server, asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main(server))
    assert len(server.executions) == 160
    assert set(server.executions.values()) == {1}
    assert server.connections < 100


@LOOPS
def test_a_server_that_closes_after_every_answer_loses_no_row(loop_factory: LoopFactory) -> None:
    async def answers_once(link: Link) -> None:
        await link.request()
        await link.answer()

    async def main() -> int:
        async with serving(answers_once) as server, a_client(retry_requests=False) as client:

            async def worker() -> None:
                for _ in range(40):
                    reply = await client.post_run(server.base_url, b"{}")
                    assert isinstance(reply, Answered)
                    assert reply.sends == 1

            await asyncio.gather(*(worker() for _ in range(4)))
            return server.connections

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(main()) == 160


@LOOPS
def test_kept_connections_are_used_again(loop_factory: LoopFactory) -> None:
    async def respond(link: Link) -> None:
        await link.request()
        await link.answer()

    async def main() -> int:
        async with serving(forever(respond)) as server, a_client(retry_requests=False) as client:
            for _ in range(5):
                await asyncio.gather(*(client.post_run(server.base_url, b"{}") for _ in range(8)))
            return server.connections

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(main()) == 8


async def test_data_that_nobody_asked_for_is_not_taken_for_an_answer() -> None:
    async def shouts_after_the_answer(link: Link) -> None:
        await link.request()
        await link.answer(b'{"n":1}')
        await asyncio.sleep(0.001)
        await link.send(b'HTTP/1.1 408 Request Timeout\r\nContent-Length: 7\r\n\r\n{"n":0}')
        await link.gone()

    async with serving(shouts_after_the_answer) as server, a_client(retry_requests=False) as client:
        for _ in range(3):
            reply = await client.post_run(server.base_url, b"{}")
            assert isinstance(reply, Answered)
            assert (reply.status, reply.body) == (200, b'{"n":1}')
            await asyncio.sleep(0.004)  # within the rest that is relied on without experience


async def test_many_dead_connections_cost_no_try() -> None:
    async def answers_once(link: Link) -> None:
        await link.request()
        await release.wait()
        await link.answer()

    release = asyncio.Event()
    async with serving(answers_once) as server, a_client(retry_requests=False) as client:
        wave = [asyncio.ensure_future(client.post_run(server.base_url, b"{}")) for _ in range(30)]
        await asyncio.sleep(0.05)
        release.set()
        await asyncio.gather(*wave)
        reply = await client.post_run(server.base_url, b"{}")
    assert isinstance(reply, Answered)
    assert reply.sends == 1

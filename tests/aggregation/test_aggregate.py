import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from gym_ray import keys
from gym_ray.aggregation.aggregate import (
    CHUNK_BYTES,
    Entry,
    Lines,
    aggregate,
    aggregate_groups,
    raise_for_errors,
)
from gym_ray.aggregation.grouping import Group
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.errors import AggregationError, InputError
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered

Respond = Callable[[bytes], Awaitable[Reply]]


def group(name: str) -> Group:
    return Group(EnvironmentServer(name, "legacy_agent", f"http://{name}"), f"{name}_agent", ())


def answer(body: bytes | dict[str, Any], status: int = 200) -> Answered:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answered(status, content, "http://s/aggregate_metrics")


class Servers:
    """Answers for each base URL, and what was posted there. Not an HTTP client: it only reads the body."""

    def __init__(self, **answers: Reply | Respond) -> None:
        self._answers = answers
        self.bodies: dict[str, bytes] = {}
        self.chunks: list[bytes] = []

    async def post(self, base_url: str, body: AsyncIterator[bytes]) -> Reply:
        name = base_url.removeprefix("http://")
        chunks = [chunk async for chunk in body]
        self.chunks += chunks
        self.bodies[name] = b"".join(chunks)
        reply = self._answers[name]
        return await reply(self.bodies[name]) if callable(reply) else reply


def records(**by_server: list[dict[str, Any]]) -> Lines:
    return lambda group: iter([json.dumps(item).encode() + b"\n" for item in by_server.get(group.server.name, [])])


FINE = answer({"agent_metrics": {"mean/reward": 0.5}, "key_metrics": {"mean/reward": 0.5}})


async def test_every_server_gets_its_own_records_stripped_and_in_order() -> None:
    servers = Servers(a=FINE, b=FINE)
    lines = records(a=[{"reward": 1, "response": {"usage": {"n": 1}, "output": []}}, {"reward": 0}], b=[{"reward": 2}])
    await aggregate([group("a"), group("b")], lines, servers.post)
    assert json.loads(servers.bodies["a"]) == {
        "verify_responses": [{"reward": 1, "response": {"usage": {"n": 1}}}, {"reward": 0}]
    }
    assert json.loads(servers.bodies["b"]) == {"verify_responses": [{"reward": 2}]}


async def test_entries_are_sorted_by_label_and_hold_what_the_server_sent() -> None:
    servers = Servers(b=FINE, a=answer({"perf_summary": {"x": 1}, "group_level_metrics": [{"t": 0}]}))
    entries = await aggregate([group("b"), group("a")], records(), servers.post)
    assert entries == [
        {
            "agent_ref": {"name": "a_agent"},
            "_ng_environment_server": "a",
            "agent_metrics": {},
            "key_metrics": {},
            "group_level_metrics": [{"t": 0}],
            "repeat_level_metrics": [],
            "perf_summary": {"x": 1},
        },
        {
            "agent_ref": {"name": "b_agent"},
            "_ng_environment_server": "b",
            "agent_metrics": {"mean/reward": 0.5},
            "key_metrics": {"mean/reward": 0.5},
            "group_level_metrics": [],
            "repeat_level_metrics": [],
        },
    ]


async def test_no_group_means_no_request() -> None:
    assert await aggregate([], records(), Servers().post) == []


async def test_groups_are_posted_at_the_same_time_and_each_is_told_as_it_finishes() -> None:
    a_may_answer = asyncio.Event()

    async def slow(_: bytes) -> Reply:
        await a_may_answer.wait()
        return FINE

    async def fast(_: bytes) -> Reply:
        return FINE

    told: list[str] = []

    def on_entry(entry: Entry) -> None:
        told.append(entry[keys.ENVIRONMENT_SERVER])
        a_may_answer.set()

    servers = Servers(a=slow, b=fast)
    async with asyncio.timeout(10):
        entries = await aggregate([group("a"), group("b")], records(), servers.post, on_entry)
    assert told == ["b", "a"]
    assert [entry[keys.ENVIRONMENT_SERVER] for entry in entries] == ["a", "b"]


async def test_a_long_body_goes_in_bounded_chunks_that_are_read_off_the_loop() -> None:
    threads = set()

    def lines(_: Group) -> Iterator[bytes]:
        for number in range(3_000):
            threads.add(threading.current_thread())
            yield b'{"n":%d,"pad":"%b"}\n' % (number, b"x" * 300)

    servers = Servers(a=FINE)
    await aggregate([group("a")], lines, servers.post)
    assert [item["n"] for item in json.loads(servers.bodies["a"])["verify_responses"]] == list(range(3_000))
    assert len(servers.chunks) > 4
    assert max(map(len, servers.chunks)) < 1.1 * CHUNK_BYTES
    assert threading.main_thread() not in threads


REFUSED = Unanswered(
    Delivery.NOT_SENT, keys.TRANSPORT_UNREACHABLE, "ClientConnectorError", "refused by http://u:pw@s/x", "http://s"
)
NO_METRICS: Entry = {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": [], "repeat_level_metrics": []}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (answer(b'{"detail":"KeyError"}', 500),
         {"type": "HTTPError", "message": "500, url='http://s/aggregate_metrics'", "http_status": 500,
          "response_body": '{"detail":"KeyError"}'}),
        (REFUSED,
         {"type": "ClientConnectorError", "message": "refused by http://s/x", "http_status": None,
          "response_body": None}),
        (answer(b'{"agent_metrics":{"mean/reward":NaN}}'),
         {"type": "InvalidMetrics", "message": "the reply is not JSON: NaN is not a number in JSON", "http_status": 200,
          "response_body": '{"agent_metrics":{"mean/reward":NaN}}'}),
        (answer(b""),
         {"type": "InvalidMetrics", "message": "the reply is not JSON: Expecting value: line 1 column 1 (char 0)",
          "http_status": 200, "response_body": None}),
    ],
)  # fmt: skip
async def test_a_server_that_does_not_aggregate_leaves_an_entry_and_the_others_theirs(
    reply: Reply, error: dict[str, Any]
) -> None:
    bad, fine = await aggregate([group("z"), group("a")], records(), Servers(a=reply, z=FINE).post)
    assert bad == {
        "agent_ref": {"name": "a_agent"},
        "_ng_environment_server": "a",
        **NO_METRICS,
        "aggregation_error": error,
    }
    assert fine["agent_metrics"] == {"mean/reward": 0.5}
    with pytest.raises(AggregationError, match=r"1 of 2 .*a_agent"):
        raise_for_errors([bad, fine])
    raise_for_errors([fine])


async def test_an_error_is_bounded_and_shows_no_credentials() -> None:
    body = b"Authorization: Bearer sk-abcdefghijklmnopqrstuvwxyz012345 " + b"\xff" * 100_000
    (entry,) = await aggregate([group("a")], records(), Servers(a=answer(body, 502)).post)
    error = entry["aggregation_error"]
    assert len(error["response_body"]) <= 2_000
    assert "sk-abc" not in json.dumps(entry)


async def test_a_long_reply_is_read_too() -> None:
    long = {"agent_metrics": {}, "group_level_metrics": [{"task": n, "text": "x" * 90} for n in range(2_000)]}
    (entry,) = await aggregate([group("a")], records(), Servers(a=answer(long)).post)
    assert entry["group_level_metrics"] == long["group_level_metrics"]


def broken(_: Group) -> Iterator[bytes]:
    yield b"{}\n"
    raise InputError("r.jsonl:2: damage")


async def test_records_that_cannot_be_read_are_the_error_of_their_group_only() -> None:
    def lines(of: Group) -> Iterator[bytes]:
        return broken(of) if of.server.name == "a" else iter([b"{}\n"])

    found = await aggregate_groups([group("b"), group("a")], lines, Servers(a=FINE, b=FINE).post)
    bad, fine = found.entries
    assert bad["aggregation_error"] == {
        "type": "InputError",
        "message": "r.jsonl:2: damage",
        "http_status": None,
        "response_body": None,
    }
    assert keys.AGGREGATION_ERROR not in fine
    with pytest.raises(InputError) as caught:
        found.raise_first()
    assert caught.value is found.faults[0]
    assert any(frame.name == "broken" for frame in caught.traceback)


async def test_the_first_error_in_the_order_of_labels_is_raised() -> None:
    servers = Servers(a=FINE, b=answer(b"", 500), c=FINE)
    found = await aggregate_groups(
        [group("c"), group("b"), group("a")], lambda of: broken(of) if of.server.name == "c" else iter(()), servers.post
    )
    with pytest.raises(AggregationError, match=r"b_agent: HTTPError \(HTTP 500\)"):
        found.raise_first()


async def test_without_errors_nothing_is_raised() -> None:
    found = await aggregate_groups([group("a")], records(), Servers(a=FINE).post)
    found.raise_first()
    assert found.faults == (None,)


async def test_files_are_let_go_of_when_a_server_stops_reading_or_the_caller_gives_up() -> None:
    closed: list[str] = []
    waiting = asyncio.Event()

    def lines(of: Group) -> Iterator[bytes]:
        try:
            while True:
                yield b'{"pad":"%b"}\n' % (b"x" * 100_000)
        finally:
            closed.append(of.server.name)

    async def post(base_url: str, body: AsyncIterator[bytes]) -> Reply:
        async for chunk in body:
            if len(chunk) > 100_000:
                break
        if base_url == "http://b":
            waiting.set()
            await asyncio.Event().wait()
        return FINE

    running = asyncio.ensure_future(aggregate([group("a"), group("b")], lines, post))
    async with asyncio.timeout(10):
        await waiting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert sorted(closed) == ["a", "b"]

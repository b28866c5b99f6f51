"""Samples of load taken from servers on loopback, of which none can disturb the others or the caller."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gym_ray.environment.load import MAX_SAMPLE_BYTES, LoadSample, sample_load
from gym_ray.outcomes.reply import Reply
from tests.environment.clients import a_client
from tests.environment.servers import Behaviour, Link, serving

METRICS = b'vllm:num_requests_waiting{e="0"} 2\nvllm:num_requests_waiting{e="1"} 1\nvllm:num_requests_running 5\n'
TOO_MANY = b'vllm:num_requests_running{e="0"} 1e308\nvllm:num_requests_running{e="1"} 1e308\n'

Get = Callable[[str, str, float, int], Awaitable[Reply]]


def saying(body: bytes, status: str = "200 OK", headers: str = "") -> Behaviour:
    async def behaviour(link: Link) -> None:
        await link.request()
        await link.answer(body, status, headers)

    return behaviour


async def hanging(link: Link) -> None:
    await link.request()
    await link.gone()


def in_no_time(get: Get, hung_url: str) -> Get:
    """The same with a limit of 50 ms for one server, so that its hanging costs a test no more."""

    async def quick(base_url: str, path: str, timeout_s: float, max_bytes: int) -> Reply:
        return await get(base_url, path, 0.05 if base_url == hung_url else timeout_s, max_bytes)

    return quick


async def test_servers_of_both_kinds_are_summed() -> None:
    env_says, model_says = saying(b'{"waiting": 3, "running": 4}'), saying(METRICS)
    async with serving(env_says) as env, serving(model_says) as model, a_client() as client:
        sample = await sample_load(client.get, [env.base_url], [f"{model.base_url}/v1"])
    assert sample == LoadSample(waiting=6, running=9, servers=2, unreachable=0)


async def test_servers_are_asked_at_once() -> None:
    all_are_asked = asyncio.Barrier(3)

    async def behaviour(link: Link) -> None:
        await link.request()
        await all_are_asked.wait()
        await link.answer(METRICS)

    async with serving(behaviour) as server, a_client() as client:
        sample = await sample_load(client.get, [], [server.base_url] * 3)
    assert sample == LoadSample(waiting=9, running=15, servers=3, unreachable=0)


async def test_a_server_that_hangs_is_counted_and_the_others_are_heard() -> None:
    async with serving(hanging) as hung, serving(saying(METRICS)) as model, a_client() as client:
        sample = await sample_load(in_no_time(client.get, hung.base_url), [hung.base_url], [model.base_url])
    assert sample == LoadSample(waiting=3, running=5, servers=1, unreachable=1)


@pytest.mark.parametrize(
    "behaviour",
    [
        saying(b"\xff\xfe"),
        saying(TOO_MANY),
        saying(METRICS, status="500 Oops"),
        saying(b"zz", headers="Content-Encoding: gzip\r\n"),
        saying(METRICS + b"#" * MAX_SAMPLE_BYTES),
    ],
    ids=["no text", "sums beyond a float", "an error", "not gzip", "too large"],
)
async def test_garbage_is_no_answer(behaviour: Behaviour) -> None:
    async with serving(behaviour) as server, a_client() as client:
        assert await sample_load(client.get, [server.base_url], [server.base_url]) is None


async def test_a_redirect_is_not_followed() -> None:
    async with serving(saying(METRICS)) as good, a_client() as client:
        elsewhere = saying(b"", status="302 Found", headers=f"Location: {good.base_url}/metrics\r\n")
        async with serving(elsewhere) as server:
            assert await sample_load(client.get, [], [server.base_url]) is None
        assert good.connections == 0


@pytest.mark.parametrize("url", ["http://a..b", "http://[::1", "nothing"])
async def test_an_address_that_is_none_is_no_answer(url: str) -> None:
    async with a_client() as client:
        assert await sample_load(client.get, [url], [url]) is None

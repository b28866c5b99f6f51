"""A bad environment server beside a good one, over real connections: the good one does not wait for it."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import ConfigError

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def good(request: web.Request) -> web.Response:
    await asyncio.sleep(0.01)
    return web.json_response({"reward": 1.0, "response": {}})


async def refuses(_: web.Request) -> web.Response:
    return web.Response(status=503, headers={"Retry-After": "1"})


async def hangs(_: web.Request) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def drips(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.2)


async def lies(request: web.Request) -> web.Response:
    row = await request.json()
    return web.json_response({"reward": 1.0, "response": {}, "_ng_task_index": row["_ng_task_index"] + 1})


class Served:
    """One server with a behaviour that can change."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[float] = []
        self.in_flight = self.most = 0
        self.runner: web.AppRunner | None = None
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(time.monotonic())
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            return await self.behaviour(request)
        finally:
            self.in_flight -= 1

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/run", self.handle)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None


@asynccontextmanager
async def two_servers(bad: Behaviour) -> AsyncIterator[tuple[Served, Served, Deployment]]:
    servers = {"good": Served(good), "bad": Served(bad)}
    for served in servers.values():
        await served.start()
    config: dict[str, Any] = {}
    for name, served in servers.items():
        block = {"host": "127.0.0.1", "port": served.port}
        config[name] = {"environment_servers": {"legacy_agent": {**block, "agent_server": {"name": f"{name}_agent"}}}}
        config[f"{name}_agent"] = {"responses_api_agents": {"simple_agent": block}}
    try:
        yield servers["good"], servers["bad"], Deployment.of_config(config)
    finally:
        for served in servers.values():
            await served.stop()


def rows(*names: str) -> list[dict[str, Any]]:
    return [{"responses_create_params": {"input": name}, "agent_ref": {"name": f"{name}_agent"}} for name in names]


def settings(**given: Any) -> RolloutCollectionConfig:
    return RolloutCollectionConfig(
        **{"executor": "local", "shards": 2, "num_samples_in_parallel": 16, "disable_aggregation": True} | given
    )


async def ends_of_the_good(deployed: Deployment, count: int, **given: Any) -> float:
    """Seconds until every rollout of the good server has ended, though the plan begins with the bad one's."""
    began, ended = time.monotonic(), 0
    async with RolloutRunner(settings(**given), deployment=deployed) as runner:
        async for row, result in runner.run(rows(*["bad"] * count, *["good"] * count)):
            ended += row["agent_ref"]["name"] == "good_agent" and result.get("reward") == 1.0
            if ended == count:
                return time.monotonic() - began
    raise AssertionError("the run ended before the good server's rollouts had")


@pytest.mark.parametrize("bad", [refuses, hangs, drips, lies])
async def test_the_others_go_on(bad: Behaviour) -> None:
    async with two_servers(bad) as (fine, broken, deployed):
        assert (
            await ends_of_the_good(deployed, 100) < 10.0
        )  # with the bad one's in front it would never end, or in minutes
        assert len(fine.requests) == 100
        assert broken.most <= 16


async def test_a_dead_server_holds_nobody_up_and_its_rollouts_end_unsent() -> None:
    async with two_servers(good) as (_, broken, deployed):
        await broken.stop()
        kinds: Counter[str] = Counter()
        async with RolloutRunner(settings(server_patience_s=2.0), deployment=deployed) as runner:
            async for row, result in runner.run(rows(*["bad"] * 200, *["good"] * 100)):
                name = row["agent_ref"]["name"]
                kinds[f"{name}: {result.get('_ng_failure_class', 'result')}"] += 1
        assert kinds == {"good_agent: result": 100, "bad_agent: agent_request_failed": 200}


async def test_a_server_that_comes_back_gets_its_rollouts() -> None:
    async with two_servers(good) as (_, broken, deployed):
        await broken.stop()

        async def comes_back() -> None:
            await asyncio.sleep(3.0)
            await broken.start()

        coming = asyncio.ensure_future(comes_back())
        async with RolloutRunner(settings(num_samples_in_parallel=8), deployment=deployed) as runner:
            results = [result async for _, result in runner.run(rows(*["bad"] * 100))]
        await coming
        lost = sum("_ng_failure_class" in result for result in results)
        assert len(results) == 100
        assert lost <= 16  # at most what was in flight, or waited in the shards, when it was found out


async def test_refusals_slow_down_what_is_sent_to_that_server() -> None:
    async with two_servers(refuses) as (_, broken, deployed):
        async with asyncio.timeout(20):
            try:
                async with asyncio.timeout(3):
                    async with RolloutRunner(settings(), deployment=deployed) as runner:
                        async for _ in runner.run(rows(*["bad"] * 200)):
                            pass
            except TimeoutError:
                pass
        early = sum(at - broken.requests[0] < 0.5 for at in broken.requests)
        assert early <= 20
        assert len(broken.requests) <= 3 * 16 + 20  # each that it refused comes back after a second at the soonest


async def test_a_cap_for_one_server() -> None:
    async with two_servers(good) as (fine, broken, deployed):
        async with RolloutRunner(settings(max_in_flight_per_server={"bad": 2}), deployment=deployed) as runner:
            results = [result async for _, result in runner.run(rows(*["bad", "good"] * 50))]
        assert len(results) == 100
        assert broken.most <= 2
        assert fine.most > 2


async def test_a_cap_for_a_server_that_is_not_there_is_refused() -> None:
    async with two_servers(good) as (fine, _, deployed):
        with pytest.raises(ConfigError, match="no environment server other; there are bad, good"):
            async with RolloutRunner(settings(max_in_flight_per_server={"other": 2}), deployment=deployed) as runner:
                async for _ in runner.run(rows("good")):
                    pass
        assert not fine.requests

"""How the tests talk to a deployment: the two kinds of request, and one client that keeps status and body together."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from gym_ray.example import (
    ExampleDeployment,
    LedgerOptions,
    Limits,
    example_deployment,
    example_rows,
    profile_of_texts,
)

ARITHMETIC = "arithmetic_environment_server"
CALCULATOR = "calculator_tools_environment_server"

_ROWS = {name: example_rows(name).read_bytes().splitlines() for name in ("arithmetic", "calculator_tools")}


def row(task: int = 0, rollout: int = 0, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    """The body of `/run` for a flat row."""
    stamps = {"_ng_task_index": task, "_ng_rollout_index": rollout, "_ng_attempt_index": attempt}
    return {**orjson.loads(_ROWS["arithmetic"][task]), **stamps, **fields}


def episode(task: int = 0, rollout: int = 0, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    """The body of `/run` for a materialized task; `fields` replace those of its `task_data`."""
    materialized = orjson.loads(_ROWS["calculator_tools"][task])
    materialized["task_input"]["task_data"].update(fields)
    return {"episode_id": {"rollout_id": f"{task}-{rollout}", "attempt": attempt}, "task": materialized}


@dataclass(frozen=True)
class Caller:
    """A client of one deployment."""

    deployment: ExampleDeployment
    session: aiohttp.ClientSession

    def url(self, instance: str) -> str:
        """The base URL that the merged config gives for an instance."""
        (implementations,) = self.deployment.config[instance].values()
        (block,) = implementations.values()
        return f"http://{block['host']}:{block['port']}"

    async def get(self, url: str) -> tuple[int, Any]:
        """Status and decoded body."""
        async with self.session.get(url) as reply:
            return reply.status, orjson.loads(await reply.read())

    async def post(self, url: str, body: object) -> tuple[int, Any]:
        """Status and decoded body."""
        data = io.BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))
        async with self.session.post(url, data=data) as reply:
            return reply.status, orjson.loads(await reply.read())

    async def run(self, instance: str, body: object) -> tuple[int, Any]:
        """Status and decoded body of `POST /run`."""
        return await self.post(f"{self.url(instance)}/run", body)

    def stats(self, instance: str) -> dict[str, Any]:
        """The server's own counts."""
        return self.deployment.servers[instance].stats()


@asynccontextmanager
async def calling(
    latency: str = "0",
    failures: str = "",
    limits: Limits | None = None,
    ledger: LedgerOptions | None = None,
    seed: int = 0,
) -> AsyncIterator[Caller]:
    """A client with a fresh deployment of its own."""
    profile = profile_of_texts(latency, failures=failures, seed=seed)
    async with (
        example_deployment(profile, limits=limits or Limits(), ledger=ledger or LedgerOptions()) as deployment,
        aiohttp.ClientSession() as session,
    ):
        yield Caller(deployment, session)


async def until(holds: Callable[[], bool]) -> None:
    """Lets the loop work until the condition holds; a bound on the wait says so if it never does."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)

"""What a training step costs beyond its rollouts: `run_examples` of a warm helper against plain aiohttp calls.

    python -m benchmarks.step                                  # 64 and 1,024 rows, both executors
    python -m benchmarks.step --rows 256 --executors local --steps 5

Both sides send the same rows to the same server from the same process with the same cap, in turn, and decode every
reply. Warm-up steps come first, so that actors run and connections are open; numbers are medians over the other steps.
"""

import argparse
import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.scenarios import ROW_CHARS, Scenario
from benchmarks.server import AGENT
from benchmarks.trial import served
from gym_ray.config import Executor
from gym_ray.deployment.merged import load_deployment
from gym_ray.helper import RolloutCollectionHelper

WARM_UP = 3
"""The first step starts actors and opens connections, the second still meets cold caches."""
REPLY_BYTES = 1_000
LATENCY_S = (0.19, 0.21)
"""As long as a short episode; the longest of a step is close to the upper end."""
SHARDS = 2

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """Milliseconds from the start of a step."""

    called_ms: float
    """Until the call that takes the rows has returned; nothing is sent before."""
    first_ms: float
    last_ms: float


Side = Callable[[Rows], Awaitable[Step]]


def make_rows(count: int) -> Rows:
    """Rows as a trainer keeps them, with their identity."""
    return [
        {
            "_ng_task_index": number,
            "_ng_rollout_index": 0,
            "responses_create_params": {"input": [{"role": "user", "content": f"{number}? ".ljust(ROW_CHARS, ".")}]},
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
        }
        for number in range(count)
    ]


def direct(session: aiohttp.ClientSession, base_url: str, cap: int) -> Side:
    """The calls alone."""

    async def post(row: dict[str, Any], slots: asyncio.Semaphore) -> Any:
        headers = {"content-type": "application/json"}
        async with slots, session.post(f"{base_url}/run", data=orjson.dumps(row), headers=headers) as response:
            response.raise_for_status()
            return orjson.loads(await response.read())

    async def step(rows: Rows) -> Step:
        started_at, slots = time.perf_counter(), asyncio.Semaphore(cap)
        tasks = [asyncio.ensure_future(post(row, slots)) for row in rows]
        called_at = time.perf_counter()
        ended_at = []
        for future in asyncio.as_completed(tasks):
            assert "reward" in await future
            ended_at.append(time.perf_counter())
        return _step(started_at, called_at, ended_at, rows)

    return step


def through(helper: RolloutCollectionHelper) -> Side:
    """`run_examples` as a trainer calls it."""

    async def step(rows: Rows) -> Step:
        started_at = time.perf_counter()
        completions = helper.run_examples(rows)
        called_at = time.perf_counter()
        ended_at = []
        async for _, result in completions:
            assert "reward" in result
            ended_at.append(time.perf_counter())
        return _step(started_at, called_at, ended_at, rows)

    return step


def _step(started_at: float, called_at: float, ended_at: list[float], rows: Rows) -> Step:
    assert len(ended_at) == len(rows)
    called, first, last = ((at - started_at) * 1000 for at in (called_at, ended_at[0], ended_at[-1]))
    return Step(called, first, last)


async def measure(executors: list[Executor], counts: list[int], steps: int, cap: int, port: int) -> Table:
    """The sides take turns, step by step."""
    table = Table(title=f"one step, cap {cap}, medians of {steps}", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("side")
    for heading in ("step ms", "added", "first ms", "added", "in the call ms", "worst added"):
        table.add_column(heading, justify="right")
    timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
    deployment = load_deployment(head=f"127.0.0.1:{port}")
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        sides = {"direct": direct(session, f"http://127.0.0.1:{port}", cap)}
        for executor in executors:
            helper = RolloutCollectionHelper(executor=executor, shards=SHARDS, max_in_flight=cap, deployment=deployment)
            sides[f"gym_ray {executor}"] = through(await stack.enter_async_context(helper))
        for count in counts:
            taken: dict[str, list[Step]] = {name: [] for name in sides}
            rows = make_rows(count)
            for _ in range(WARM_UP + steps):
                for name, side in sides.items():
                    taken[name].append(await side(rows))
            add_lines(table, count, {name: all_steps[WARM_UP:] for name, all_steps in taken.items()})
    return table


def add_lines(table: Table, count: int, taken: dict[str, list[Step]]) -> None:
    """One line for each side; what it adds is the difference to `direct` in the same turn."""
    base = taken["direct"]
    for name, steps in taken.items():
        added = [step.last_ms - plain.last_ms for step, plain in zip(steps, base, strict=True)]
        first = [step.first_ms - plain.first_ms for step, plain in zip(steps, base, strict=True)]
        table.add_row(
            f"{count:,}",
            name,
            f"{statistics.median(step.last_ms for step in steps):.1f}",
            f"{statistics.median(added):+.1f}",
            f"{statistics.median(step.first_ms for step in steps):.1f}",
            f"{statistics.median(first):+.1f}",
            f"{statistics.median(step.called_ms for step in steps):.1f}",
            f"{max(added):+.1f}",
        )
    table.add_section()


def main() -> None:
    """Parse the flags, start a server, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--executors", nargs="+", choices=["ray", "local"], default=["ray", "local"])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--cap", type=int, default=1024)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scenario = Scenario("step", max(args.rows), REPLY_BYTES, args.cap, SHARDS, LATENCY_S)
    with served(scenario) as port:
        table = asyncio.run(measure(args.executors, args.rows, args.steps, args.cap, port))
    Console().print(table)


if __name__ == "__main__":
    main()

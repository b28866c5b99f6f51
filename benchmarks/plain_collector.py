"""The plain way to collect rollouts: one process, one session, one semaphore. The yardstick for what gym_ray costs.

As fast as simple code gets: uvloop, orjson, no limit on connections, bounded tasks. It keeps no plan, resumes nothing,
retries nothing and stops at the first fault.

    python -m benchmarks.plain_collector --head 127.0.0.1:11000 -i rows.jsonl -o out/rollouts.jsonl --concurrency 256
"""

import argparse
import asyncio
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import orjson
import uvloop

KEPT = ("_ng_task_index", "_ng_rollout_index", "agent_ref")
"""Identity of a row that its record repeats."""


async def collect(head: str, rows: Path, output: Path, concurrency: int) -> None:
    """Run every row once, write each reply as a line, then have the server aggregate them all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        base_urls = await environment_servers(session, head)
        slots = asyncio.Semaphore(concurrency)
        with output.open("wb") as file:
            async with asyncio.TaskGroup() as tasks:
                for row in read_rows(rows):
                    await slots.acquire()
                    url = base_urls[row["agent_ref"]["name"]]
                    task = tasks.create_task(run_one(session, url, row, file))
                    task.add_done_callback(lambda _: slots.release())
        await aggregate(session, next(iter(base_urls.values())), output)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows with their identity."""
    with path.open("rb") as lines:
        for index, line in enumerate(lines):
            yield {**orjson.loads(line), "_ng_task_index": index, "_ng_rollout_index": 0}


async def run_one(session: aiohttp.ClientSession, base_url: str, row: dict[str, Any], file: BinaryIO) -> None:
    """One rollout, from its row to its line."""
    headers = {"content-type": "application/json"}
    async with session.post(f"{base_url}/run", data=orjson.dumps(row), headers=headers) as response:
        response.raise_for_status()
        result = orjson.loads(await response.read())
    result |= {key: row[key] for key in KEPT}
    file.write(orjson.dumps(result) + b"\n")


async def aggregate(session: aiohttp.ClientSession, base_url: str, output: Path) -> None:
    """Send what the metrics need of every result, write what comes back."""
    results = []
    with output.open("rb") as lines:
        for line in lines:
            result = orjson.loads(line)
            result.pop("responses_create_params", None)
            result["response"] = {"usage": result["response"].get("usage")}
            results.append(result)
    results.sort(key=lambda result: (result["_ng_task_index"], result["_ng_rollout_index"]))
    body = orjson.dumps({"verify_responses": results})
    async with session.post(
        f"{base_url}/aggregate_metrics", data=body, headers={"content-type": "application/json"}
    ) as response:
        response.raise_for_status()
        metrics = orjson.loads(await response.read())
    output.with_name(f"{output.stem}_aggregate_metrics.json").write_text(json.dumps([metrics], indent=2))


async def environment_servers(session: aiohttp.ClientSession, head: str) -> dict[str, str]:
    """Agent -> base URL of the server that fronts it."""
    async with session.get(f"http://{head}/global_config_dict_yaml") as response:
        config = orjson.loads(orjson.loads(await response.read()))  # the YAML of the stand-in is JSON
    urls = {}
    for instance in config.values():
        for server in instance.get("environment_servers", {}).values():
            urls[server["agent_server"]["name"]] = f"http://{server['host']}:{server['port']}"
    return urls


def main() -> None:
    """Parse the flags and collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", required=True)
    parser.add_argument("-i", "--input", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, default=256)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(collect(args.head, args.input, args.output, args.concurrency))


if __name__ == "__main__":
    main()

"""What aggregating many records takes of memory and CPU.

    python -m benchmarks.aggregation [RECORDS] [jsonl|parquet]

A run folder with RECORDS results of 1 KB is made, then `aggregate_run` sends them to a server in another process that
reads the body and answers with empty metrics. The body is streamed, so only the index of the records grows with them.
"""

import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path

from aiohttp import web

from benchmarks.recording import a_record
from gym_ray.aggregating import aggregate_run
from gym_ray.config import RolloutCollectionConfig
from gym_ray.paths import RunPaths
from gym_ray.recording.journal import Recorder

BATCH = 512


def main(count: int, record_format: str) -> None:
    """Print memory before and after, CPU, and wall time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = RunPaths.of_output(folder / "r.jsonl")
        with paths.shard(0).materialized.open("wb") as plan:
            plan.writelines(b'{"_ng_task_index":%d,"_ng_rollout_index":0}\n' % number for number in range(count))
        recorder = Recorder.open(paths, 1, seals=record_format == "parquet")
        for first in range(0, count, BATCH):
            numbers = range(first, min(count, first + BATCH))
            recorder.append((0, True, a_record(number, 1024)) for number in numbers)
            recorder.seal(grown_only=True)
        recorder.seal()
        recorder.close()
        started, port = multiprocessing.Event(), multiprocessing.Value("i", 0)
        server = multiprocessing.Process(target=_serve, args=(started, port), daemon=True)
        server.start()
        started.wait()
        block = {"host": "127.0.0.1", "port": port.value, "agent_server": {"name": "agent"}}
        deployment = {"env": {"environment_servers": {"e": block}}, "agent": {"responses_api_agents": {"a": block}}}
        (folder / "d.yaml").write_text(json.dumps(deployment))
        config = RolloutCollectionConfig(output_jsonl_fpath=str(paths.merged), deployment=str(folder / "d.yaml"))
        before, wall, cpu = _peak_mb(), time.monotonic(), time.process_time()
        asyncio.run(aggregate_run(config))
        print(
            f"{count} records ({record_format}): {time.monotonic() - wall:.1f} s, {time.process_time() - cpu:.1f} s CPU"
        )
        print(f"peak memory {_peak_mb():.0f} MB, {_peak_mb() - before:+.0f} MB since before")
        server.terminate()
        server.join()


def _serve(
    started: "multiprocessing.synchronize.Event", port: "multiprocessing.sharedctypes.Synchronized[int]"
) -> None:
    async def aggregate(request: web.Request) -> web.Response:
        async for _ in request.content.iter_any():
            pass
        return web.json_response({})

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 40)
        app.router.add_post("/aggregate_metrics", aggregate)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.value = runner.addresses[0][1]
        started.set()
        await asyncio.Event().wait()

    asyncio.run(serve())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000, sys.argv[2] if len(sys.argv) > 2 else "jsonl")

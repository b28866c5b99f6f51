"""Runs the bundled deployment's rows on a cluster of several nodes while something happens to one of them.

    python -m tests.ray.nodes_program HOME killed|removed|drained|scaled|late

Prints one JSON object: how the run ended, what its servers executed, and how many shards it had over time.
"""

import asyncio
import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.example import LatencyRange, LedgerOptions, Profile, example_in_thread, example_rows
from gym_ray.observe.tally import Progress
from gym_ray.recording.run_names import run_at
from gym_ray.recording.status import read_status
from gym_ray.recording.verification import verify_run

NODE = {"object_store_memory": 80 << 20}
RAY = Path(sys.executable).with_name("ray")
BEGUN = 40
"""Results after which something happens."""


def new_cluster(event: str) -> tuple[Any, list[Any]]:
    """A head and two nodes; for `late` a head alone, with a place for the driver and three shards."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **NODE})  # type: ignore[no-untyped-call]
    nodes = [] if event == "late" else [add_node(cluster), add_node(cluster)]
    return cluster, nodes


def add_node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, **NODE)


async def happen(event: str, cluster: Any, nodes: list[Any], runner: RolloutRunner) -> None:
    match event:
        case "killed" | "removed":
            await asyncio.to_thread(cluster.remove_node, nodes[0], allow_graceful=event == "removed")
        case "drained":
            command = [RAY, "drain-node", "--address", cluster.address, "--node-id", nodes[0].node_id]
            command += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "test"]
            process = await asyncio.create_subprocess_exec(*command, "--deadline-remaining-seconds", "60")
            assert await process.wait() == 0
        case "scaled":
            await runner.scale(6)
            await asyncio.sleep(4.0)
            await runner.scale(1)
        case "late":
            add_node(cluster)  # installs signal handlers, so in this thread


async def main(home: Path, event: str) -> dict[str, Any]:
    cluster, nodes = new_cluster(event)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    profile = Profile(latency=LatencyRange(0.2, 0.4))
    with example_in_thread(profile, ledger=LedgerOptions(capacity=10_000)) as served:
        output = home / "out" / "r.jsonl"
        config = RolloutCollectionConfig(
            head=served.head_address, input_jsonl_fpath=str(example_rows("arithmetic")), output_jsonl_fpath=str(output),
            num_repeats=2, num_samples_in_parallel=16, shards=6 if event == "late" else 3,
        )  # fmt: skip
        paths, begun, shards = run_at(output), asyncio.Event(), set[int]()

        def on_progress(progress: Progress) -> None:
            if progress.results >= BEGUN:
                begun.set()
            if (status := read_status(paths)) is not None:
                shards.add(status.shards)

        async with RolloutRunner(config) as runner:

            async def disturb() -> None:
                await begun.wait()
                await happen(event, cluster, nodes, runner)

            disturbing = asyncio.ensure_future(disturb())
            report = await runner.collect(on_progress=on_progress)
            await disturbing
        executions: Any = [tuple(each) for server in served.servers.values() for each in server.stats()["executions"]]
    ray.shutdown()
    cluster.shutdown()
    by_attempt = Counter(executions)
    return {
        "planned": report.progress.planned,
        "results": report.progress.results,
        "is_sound": verify_run(paths).is_sound,
        "executions": len(executions),
        "most_for_an_attempt": max(by_attempt.values()),
        "shards": sorted(shards),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    os.environ.update(RAY_TMPDIR=sys.argv[1], RAY_USAGE_STATS_ENABLED="0")
    sys.stdout.write("\n" + json.dumps(asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))) + "\n")

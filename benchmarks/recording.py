"""What records cost the driver, and what it costs to continue a run.

    python -m benchmarks.recording [--records 20000] [--resume 200000]

Batches hold 256 small records, or about 8 MiB of large ones, as the driver writes them: records of two shards, then the
log of attempts. CPU of this process; the last fsync is included. Continuing: the folder of a run with 1 KB results of
half its rollouts is opened as `run --resume` does, plan compared, history read, and nothing is sent.
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.planning import CONFIG
from gym_ray.actors.opening import open_run
from gym_ray.config import RolloutCollectionConfig
from gym_ray.deployment.lookup import Deployment
from gym_ray.paths import RunPaths
from gym_ray.preparing import prepare, visible_folder
from gym_ray.recording.attempts import AttemptLog, Ended, Started
from gym_ray.recording.journal import Recorder

KIB = 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000, help="small records; a fiftieth of it large ones")
    parser.add_argument("--resume", type=int, default=200_000, help="rollouts of the run that is continued")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, large = asked.records, asked.records // 50
        cpu_s = _write(Path(folder) / "small", small, KIB, 256)
        print(f"append, {small} records of 1 KiB: {cpu_s / small * 1e6:.1f} us CPU a record")
        cpu_s = _write(Path(folder) / "large", large, 200 * KIB, 40)
        print(f"append, {large} records of 200 KiB: {large * 200 * KIB / cpu_s / 1e6:.0f} MB/s of CPU")
    with tempfile.TemporaryDirectory() as folder:
        _resume(Path(folder), asked.resume)


def _write(folder: Path, count: int, size: int, batch_items: int) -> float:
    """CPU seconds for writing `count` records."""
    folder.mkdir()
    paths = RunPaths(folder, "rollouts")
    lines = [memoryview(a_record(number, size)) for number in range(min(count, batch_items))]
    recorder, log = Recorder.open(paths, 2), AttemptLog(paths.attempts)
    started = time.process_time()
    for first in range(0, count, batch_items):
        numbers = range(first, min(count, first + batch_items))
        log.started([Started(1767600000000, number, 0, 0) for number in numbers])
        recorder.append((number % 2, True, lines[number - first]) for number in numbers)
        log.ended([Ended(1767600000000, number, 0, 0, 0, 1234.5, 1) for number in numbers])
    recorder.close()
    log.close()
    return time.process_time() - started


def _resume(folder: Path, rollouts: int) -> None:
    rows, output = folder / "rows.jsonl", folder / "out" / "rollouts.jsonl"
    text = "The quick brown fox jumps over the lazy dog. " * 10
    with rows.open("w") as stream:
        for number in range(rollouts):
            params = {"input": [{"role": "user", "content": f"{number} {text}"}]}
            stream.write(json.dumps({"responses_create_params": params, "agent_ref": {"name": "agent"}}) + "\n")
    deployment = Deployment.of_config(CONFIG)
    servers = tuple(deployment.environment_servers.values())
    settings = {"input_jsonl_fpath": str(rows), "output_jsonl_fpath": str(output)}

    def opened(*, resumes: bool) -> Any:
        config = RolloutCollectionConfig.model_validate({**settings, "resume_from_cache": resumes})
        prepared = asyncio.run(prepare(config, deployment, None))
        with visible_folder(prepared.spec) as spec:
            return open_run(spec, servers, prepared.lines)

    opened(resumes=False).close()
    paths = RunPaths.of_output(output)
    recorder = Recorder.open(paths, 2)
    for batch in _halves(rollouts):
        recorder.append(batch)
    recorder.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _report(f"continue a run of {rollouts} rollouts, half of them done", lambda: opened(resumes=True).close())
    grown = resource.getrusage(resource.RUSAGE_SELF)
    print(f"peak memory: {grown.ru_maxrss / 1024:.0f} MB ({(grown.ru_maxrss - before) / 1024:+.0f})")


def _halves(rollouts: int) -> Iterator[list[tuple[int, bool, bytes]]]:
    for first in range(0, rollouts, 512):
        yield [(number % 2, True, a_record(number, KIB)) for number in range(first, min(first + 512, rollouts), 2)]


def a_record(number: int, size: int) -> bytes:
    stamps = {"_ng_task_index": number, "_ng_rollout_index": 0, "_ng_environment_server": "env"}
    head = json.dumps({"reward": 1.0, "text": "x" * size, **stamps}).encode()
    return head + b"\n"


def _report(what: str, work: Callable[[], object]) -> None:
    wall, cpu = time.monotonic(), time.process_time()
    work()
    print(f"{what}: {time.monotonic() - wall:.1f} s ({time.process_time() - cpu:.1f} s CPU)")


if __name__ == "__main__":
    main()

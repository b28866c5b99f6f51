"""What planning costs: CPU for each row beyond reading and parsing it, and how much memory it takes.

    python -m benchmarks.planning [ROWS] [natural|interleave|mapped]

Rows are about 2 KB. The first two lines are the floor: reading with the parser of the planner, and with `json.loads`.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gym_ray.deployment.lookup import Deployment
from gym_ray.paths import RunPaths
from gym_ray.planning.shaping import Shaping
from gym_ray.planning.writing import write_plan
from gym_ray.rows.document import parse_document
from gym_ray.rows.reading import read_rows

CONFIG = {
    "agent": {"responses_api_agents": {"simple_agent": {"host": "127.0.0.1", "port": 1}}},
    "env": {
        "environment_servers": {
            "legacy_agent": {"host": "127.0.0.1", "port": 2, "agent_server": {"name": "agent"}},
        }
    },
}
MODES: dict[str, dict[str, Any]] = {
    "natural": {},
    "interleave": {"interleave_repeats": True},
    "mapped": {"agent_map": {"_default": "agent"}, "overrides": {"temperature": 1.0}},
}


def main(count: int, mode: str) -> None:
    """Print the costs of planning `count` rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        _write_rows(rows, count)
        _report("read and parse", count, lambda: [None for row in read_rows(rows) if not parse_document(row)])
        _report("read and json.loads", count, lambda: [None for row in read_rows(rows) if not json.loads(row.line)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        paths, deployment = RunPaths.of_output(f"{folder}/plan.jsonl"), Deployment.of_config(CONFIG)
        _report(
            f"plan ({mode})", count, lambda: write_plan(read_rows(rows), Shaping(**MODES[mode]), deployment, paths, 2)
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"peak memory grew by {grown / 1024:.0f} MB")


def _report(what: str, count: int, work: Callable[[], object]) -> None:
    started = time.process_time()
    work()
    print(f"{what}: {(time.process_time() - started) / count * 1e6:.1f} us a row")


def _write_rows(path: Path, count: int) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 40
    with path.open("w") as stream:
        for number in range(count):
            row = {
                "responses_create_params": {"input": [{"role": "user", "content": f"{number} {text}"}]},
                "agent_ref": {"name": "agent"},
                "task_id": f"t{number}",
            }
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000, sys.argv[2] if len(sys.argv) > 2 else "natural")

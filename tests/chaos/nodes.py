"""A Ray cluster of several nodes whose nodes can be killed: `Nodes` for the one who does it, the program for the nodes.

    python -m tests.chaos.nodes TMP

Prints the address, then obeys `kill` and `add`, a line each, with a line in return.
"""

import os
import subprocess
import sys
from pathlib import Path

import psutil

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


class Nodes:
    """The process that has the nodes."""

    def __init__(self, folder: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nodes", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self.address = self._answer()

    @property
    def family(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def tell(self, command: str) -> None:
        """Have a node killed or added."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        self._answer()

    def close(self) -> None:
        """End every node."""
        family = self.family.children(recursive=True)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        for process in psutil.wait_procs(family, timeout=5)[1]:
            process.kill()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("nodes: "):
                return line.removeprefix("nodes: ").strip()
        raise AssertionError("the nodes have ended")


def _say(text: str) -> None:
    sys.stdout.write(f"\nnodes: {text}\n")
    sys.stdout.flush()


def _main() -> None:
    os.environ.update(RAY_TMPDIR=sys.argv[1], RAY_USAGE_STATS_ENABLED="0")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})  # type: ignore[no-untyped-call]
    nodes = [cluster.add_node(**NODE) for _ in range(2)]  # type: ignore[no-untyped-call]
    _say(cluster.address)
    for line in sys.stdin:
        if line.strip() == "kill" and nodes:
            cluster.remove_node(nodes.pop(0), allow_graceful=False)  # type: ignore[no-untyped-call]
        elif line.strip() == "add":
            nodes.append(cluster.add_node(**NODE))  # type: ignore[no-untyped-call]
        _say("done")
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    _main()

"""The bundled deployment in a process of its own that can be killed, and comes back at the same addresses.

    python -m tests.chaos.served LEDGER PORT...

The ledger is one file for all lives of it: a line for each execution, appended when it begins.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from gym_ray.example import ExampleDeployment, LatencyRange, LedgerOptions, Profile
from gym_ray.example.listening import Listener

LATENCY = LatencyRange(0.02, 0.2)
LISTENERS = 7
"""A head, and an environment, an agent and a resources server for each of two environments."""


class AtPorts(ExampleDeployment):
    """A deployment that listens where it is told."""

    def __init__(self, ports: list[int], ledger: Path) -> None:
        super().__init__(Profile(latency=LATENCY), ledger=LedgerOptions(path=ledger))
        self._ports: Iterator[int] = iter(ports)

    async def _listen(self, opened: AsyncExitStack, application: web.Application, port: int = 0) -> Listener:
        return await super()._listen(opened, application, next(self._ports))


class Served:
    """The process, seen from the one that kills it."""

    def __init__(self, ledger: Path) -> None:
        self._ports = _free_ports(LISTENERS)
        self._ledger = ledger
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def head_address(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        command = [sys.executable, "-m", "tests.chaos.served", str(self._ledger), *map(str, self._ports)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP makes it hang, SIGCONT ends that."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


async def _serve(ledger: Path, ports: list[int]) -> None:
    deployment = AtPorts(ports, ledger)
    await deployment.start()
    os.write(1, b"ready\n")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), list(map(int, sys.argv[2:]))))

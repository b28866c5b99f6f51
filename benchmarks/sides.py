"""Who is measured: the command line of each collector for one scenario."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.scenarios import Scenario

ROOT = Path(__file__).parents[1]
Command = Callable[[Scenario, str, Path, Path], list[str]]
"""Scenario, head address, rows, output path -> command."""

DISPATCHING = ("ray::DriverActor", "ray::ShardActor")
"""Titles of gym_ray's own Ray processes: what must not grow with the number of rollouts."""


OPTIONAL = ("gym_ray local", "gym_ray api")
"""Other ways into the same code: measured only when named."""


def commands(peer_python: str | None) -> dict[str, Command]:
    """The sides that this machine can run, by name."""
    sides: dict[str, Command] = {
        "gym_ray": _gym_ray("ray"),
        "gym_ray local": _gym_ray("local"),
        "gym_ray api": _api,
        "plain": _plain,
    }
    if peer_python is not None:
        sides["peer"] = _peer(peer_python)
    return sides


def environment() -> Mapping[str, str]:
    """What every command is started with: this checkout on the path, no cluster that happens to be around."""
    kept = {name: value for name, value in os.environ.items() if name not in {"RAY_ADDRESS", "NEMO_GYM_CONFIG_DICT"}}
    return {**kept, "PYTHONPATH": str(ROOT)}


def _gym_ray(executor: str) -> Command:
    def command(scenario: Scenario, head: str, rows: Path, output: Path) -> list[str]:
        return [
            sys.executable, "-m", "gym_ray", "run", "-i", str(rows), "-o", str(output), "--head", head,
            "--shards", str(scenario.shards), "--concurrency", str(scenario.concurrency), "--executor", executor,
            "--display", "none", "--json",
        ]  # fmt: skip

    return command


def _api(scenario: Scenario, head: str, rows: Path, output: Path) -> list[str]:
    return [
        sys.executable, "-m", "benchmarks.api_collector", "--head", head, "-i", str(rows), "-o", str(output),
        "--concurrency", str(scenario.concurrency), "--shards", str(scenario.shards),
    ]  # fmt: skip


def _plain(scenario: Scenario, head: str, rows: Path, output: Path) -> list[str]:
    return [
        sys.executable, "-m", "benchmarks.plain_collector", "--head", head, "-i", str(rows), "-o", str(output),
        "--concurrency", str(scenario.concurrency),
    ]  # fmt: skip


def _peer(python: str) -> Command:
    script = str(ROOT / "benchmarks" / "peer_collector.py")

    def command(scenario: Scenario, head: str, rows: Path, output: Path) -> list[str]:
        return [
            python, script, "--head", head, "-i", str(rows), "-o", str(output),
            "--concurrency", str(scenario.concurrency),
        ]  # fmt: skip

    return command

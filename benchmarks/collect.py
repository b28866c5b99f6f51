"""gym_ray against other collectors: the same work, the same run, one after the other.

    python -m benchmarks.collect small large wide memory [--peer-python /path/to/python] [--scale 0.1] [--rounds 3]

Sides: `gym_ray` (the command, with Ray actors), `plain` (plain_collector.py) and, with --peer-python naming an
environment that has nemo-gym, `peer`; when named in --sides also `gym_ray local` (the same in one process) and
`gym_ray api` (as a program calls it). In every round each side does the scenario once; the
table shows medians. The CPU of the server is not counted; that of Ray is.
"""

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.sides import OPTIONAL, Command, commands
from benchmarks.table import breakdown, median, ratios, table
from benchmarks.trial import Trial, run_trial

WIDTH = 150
"""The table does not fit a narrow terminal, and a wrapped one can still be read."""
console = Console(width=max(Console().width, WIDTH))

SLOW_S = 0.1
"""Mean latency from which the cap decides how long a scenario takes, and not the CPU."""


def main() -> None:
    """Parse the flags, run, print, and write the numbers if asked."""
    args = _parse()
    available = commands(args.peer_python)
    chosen = args.sides.split(",") if args.sides else [side for side in available if side not in OPTIONAL]
    if unknown := set(chosen) - set(available):
        sys.exit(f"no such side: {', '.join(sorted(unknown))}; there are {', '.join(available)}")
    sides = {side: available[side] for side in chosen}
    console.print(f"{machine()['cpu']}, {machine()['cores']} cores, {machine()['date']}", highlight=False)
    trials: list[Trial] = []
    for name in args.scenarios or list(SCENARIOS):
        scaled = [scenario.scaled(args.scale) for scenario in SCENARIOS[name]]
        done = [trial for scenario in scaled for trial in run_scenario(scenario, sides, args.rounds)]
        trials += done
        if len(scaled) > 1:
            _print_growth(scaled, done, list(sides))
    if args.json:
        facts = {"machine": machine(), "scale": args.scale, "trials": [trial.to_dict() for trial in trials]}
        Path(args.json).write_text(json.dumps(facts, indent=2) + "\n")


def run_scenario(scenario: Scenario, sides: dict[str, Command], rounds: int) -> list[Trial]:
    """Every side once a round, in turn, so that whatever else this machine does meets all of them."""
    trials: list[Trial] = []
    for number in range(rounds):
        for side, command in sides.items():
            console.print(f"{scenario.name}: round {number + 1} of {rounds}: {side}", style="dim", highlight=False)
            try:
                trials.append(run_trial(side, command, scenario))
            except (RuntimeError, TimeoutError) as error:
                console.print(f"{side} did not do the work: {error}", markup=False, highlight=False)
    medians = [median(of) for side in sides if (of := [trial for trial in trials if trial.side == side])]
    title = f"{scenario.name}: {scenario.rollouts} rollouts of {scenario.reply_bytes} B, {scenario.concurrency} at once"
    if medians and scenario.mean_latency_s >= SLOW_S:
        title += f"; ideal {medians[0].ideal_s:.2f} s, needed: " + ", ".join(
            f"{trial.side} {trial.collection_s:.2f} s ({trial.collection_s / trial.ideal_s:.2f}x)" for trial in medians
        )
    console.print(table(title, medians, "peer" if "peer" in sides else "plain"))
    if "peer" in sides and (line := ratios(medians, "plain")):
        console.print(line, highlight=False)
    for trial in medians:
        if len(trial.cpu_us_by_process) > 1:
            console.print(f"CPU µs/rollout of collection by process, {breakdown(trial)}", highlight=False)
    return trials


def machine() -> dict[str, Any]:
    """Where and when this was measured."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _print_growth(scenarios: list[Scenario], trials: list[Trial], sides: list[str]) -> None:
    """How much more memory the longer run needs."""
    first, last = scenarios[0].name, scenarios[-1].name
    for side in sides:
        of = {
            name: [trial for trial in trials if trial.side == side and trial.scenario == name] for name in (first, last)
        }
        if all(of.values()):
            before, after = median(of[first]), median(of[last])
            grown = after.dispatching_rss_mb - before.dispatching_rss_mb
            private = after.dispatching_private_mb - before.dispatching_private_mb
            console.print(
                f"{side}: driver and shards (or the only process) grow by {grown:.0f} MB, "
                f"{private:.0f} MB of it private, from {first} to {last}",
                highlight=False,
            )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="default: all")
    parser.add_argument("--peer-python", help="a Python that has nemo-gym")
    parser.add_argument("--sides", help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rollouts, for a quick look")
    parser.add_argument("--json", metavar="FILE", help="write every trial as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Carries out seeded schedules of kills, full disks, torn files and stops, and checks that every run still adds up.

    python -m tests.chaos --schedules 20 --seed 1 [--executor ray] [--kinds shard,driver] [--no-replay] [--format both]

Each schedule begins a run on the bundled deployment, does something to it a few times, and continues it until it is
done. The first one after which something is wrong ends the program with its seed; its folder is kept.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.schedule import KINDS, LOCAL_KINDS, RAY_KINDS, run_schedule


def main() -> int:
    """Run the schedules and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=10)
    parser.add_argument("--events", type=int, default=5, help="of each schedule")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the others follow")
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--kinds", help=f"comma-separated, of: {', '.join(KINDS)}; node needs --executor ray")
    parser.add_argument("--no-replay", action="store_true")
    parser.add_argument("--format", choices=("jsonl", "parquet", "both"), default="jsonl")
    asked = parser.parse_args()
    kinds = asked.kinds.split(",") if asked.kinds else LOCAL_KINDS if asked.executor == "local" else RAY_KINDS
    happened: Counter[str] = Counter()
    for seed in range(asked.seed, asked.seed + asked.schedules):
        folder = Path(tempfile.mkdtemp(prefix="gc-"))  # short: Ray puts sockets below it
        began = time.monotonic()
        try:
            events = run_schedule(
                seed, kinds, events=asked.events, executor=asked.executor, replays=not asked.no_replay,
                record_format=asked.format, folder=folder,
            )  # fmt: skip
        except BaseException:
            sys.stdout.write(f"schedule {seed} found something; its folder is {folder}\n")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        happened += events
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(events.items()))
        sys.stdout.write(f"schedule {seed}: {told or 'nothing in time'}; {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(happened.items()))
    sys.stdout.write(f"{asked.schedules} schedules, {told}: every rollout has one result\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

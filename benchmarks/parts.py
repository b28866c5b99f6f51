"""What sealing costs: CPU for each record, MB/s, size on disk and memory, for small and for large records.

    python -m benchmarks.parts [SMALL_COUNT] [LARGE_COUNT]

Records are text of a few thousand words that compresses by about a half, which is little for rollouts. Appending to the
journal is measured too, since a record pays for both.
"""

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from gym_ray import keys
from gym_ray.recording.journal import AppendFile
from gym_ray.recording.part_schema import Facts
from gym_ray.recording.parts import PartReader, read_lines, write_part

SIZES = {"1 KB": 1_000, "200 KB": 200_000}
BATCH = 32
"""Records of one append, as they come from a shard under load."""


def main(*counts: int) -> None:
    """Print the costs for as many records of each size."""
    print(f"{'records of':<12}{'step':<22}{'CPU us/record':>14}{'MB/s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for (name, size), count in zip(SIZES.items(), counts, strict=True):
            _measure(Path(folder), name, _records(count, size))


def _measure(folder: Path, name: str, lines: list[bytes]) -> None:
    part, total = folder / f"{len(lines)}.parquet", sum(map(len, lines))
    facts = {(number, 0, 0): Facts(12.5, 1_767_225_600_000 + number, 1) for number in range(len(lines))}

    def report(step: str, work: Callable[[], object]) -> None:
        started = time.process_time()
        work()
        spent = time.process_time() - started
        print(f"{name:<12}{step:<22}{spent / len(lines) * 1e6:>14.1f}{total / spent / 1e6:>8.0f}")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report("write_part", lambda: write_part(part, lines, [], facts))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    report("append to a journal", lambda: _append(folder / f"{len(lines)}.jsonl", lines))
    report("read_lines", lambda: [None for _ in read_lines(part)])
    with PartReader(part) as reader:
        report("scan", lambda: [None for _ in reader.scan()])
        report("line, in order", lambda: [None for position in range(len(reader)) if not reader.line(position)])
    print(
        f"{name:<12}{total / 1e6:.0f} MB of lines became {part.stat().st_size / 1e6:.1f} MB; "
        f"sealing took {grown / 1e6:.0f} MB of memory beside them"
    )


def _append(path: Path, lines: list[bytes]) -> None:
    file = AppendFile(path)
    try:
        for start in range(0, len(lines), BATCH):
            file.append(lines[start : start + BATCH])
    finally:
        file.close()


def _records(count: int, size: int) -> list[bytes]:
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(3_000)]
    text = " ".join(source.choices(words, k=400_000))
    return [_record(number, source.randrange(len(text) - size), text, size) for number in range(count)]


def _record(number: int, start: int, text: str, size: int) -> bytes:
    record = {
        keys.REWARD: 1.0,
        keys.RESPONSE: {
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": text[start : start + size - 350]}]}
            ],
            keys.USAGE: {"input_tokens": 100, "output_tokens": number, "total_tokens": number + 100},
        },
        keys.TASK_INDEX: number,
        keys.ROLLOUT_INDEX: 0,
        keys.AGENT_REF: {"type": "responses_api_agents", keys.NAME: "simple_agent"},
        keys.ENVIRONMENT_SERVER: "simple_environment",
    }
    return orjson.dumps(record) + b"\n"


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3])) if len(sys.argv) > 2 else main(20_000, 400)

"""Writes the example's task rows: `python -m gym_ray.example.generation [FOLDER]`.

Invariant: the same bytes on every machine and Python version. Without a folder it writes the files that the package
ships.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from gym_ray.example.arithmetic_rows import arithmetic_row
from gym_ray.example.calculator_rows import calculator_row
from gym_ray.example.environment import JsonObject
from gym_ray.example.rows import ROW_FILES

_ROWS_OF_EACH = 240
"""Enough that a pass@k has narrow bounds, few enough that a demonstration ends while one watches."""

_WRITERS: dict[str, Callable[[int], JsonObject]] = {"arithmetic": arithmetic_row, "calculator_tools": calculator_row}


def row_lines(name: str) -> Iterator[bytes]:
    """The lines of one environment's file, newlines included."""
    for number in range(_ROWS_OF_EACH):
        yield orjson.dumps(_WRITERS[name](number)) + b"\n"


def write_rows(folder: Path) -> None:
    """Writes `<name>.jsonl` for every environment."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, shipped in ROW_FILES.items():
        (folder / shipped.name).write_bytes(b"".join(row_lines(name)))


if __name__ == "__main__":
    write_rows(Path(sys.argv[1]) if len(sys.argv) > 1 else next(iter(ROW_FILES.values())).parent)

"""Where the example's task rows are; `generation.py` writes them."""

from pathlib import Path
from types import MappingProxyType

from gym_ray.errors import InputError

_DATA = Path(__file__).parent / "data"

ROW_FILES = MappingProxyType({name: _DATA / f"{name}.jsonl" for name in ("arithmetic", "calculator_tools")})
"""Environment -> its rows, one JSON object a line."""


def example_rows(name: str) -> Path:
    """The rows of one environment, shipped with the package.

    Raises:
        InputError: there is no environment of that name.
    """
    if name not in ROW_FILES:
        raise InputError(f"example rows: expected one of {', '.join(ROW_FILES)}, found {name!r}")
    return ROW_FILES[name]

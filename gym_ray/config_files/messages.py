"""What pydantic finds wrong, as lines that say where, what and how to set it right. Pure."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gym_ray.config_files.fields import FIELDS, FLAGS
from gym_ray.config_files.layers import Layers, Path
from gym_ray.deployment.secrets import MASK, is_secret_key
from gym_ray.deployment.suggestions import near_name

MAX_SHOWN = 60
"""Characters of a wrong value that are shown."""


def explain(error: ValidationError, values: Mapping[str, Any], layers: Layers) -> list[str]:
    """One line for each setting that is wrong."""
    found: dict[Path, list[str]] = {}
    for fact in error.errors():
        path, value = _place(fact["loc"], values)
        text = fact["msg"].removeprefix("Value error, ").removeprefix(f"{'.'.join(path)}: ")
        if fact["type"] == "missing":
            path, text = (*path, str(fact["loc"][-1])), "is missing"
        elif fact["type"] == "extra_forbidden":
            text = "no such setting" + _near(path)
        elif fact["type"] != "value_error":
            text = f"expected {text.removeprefix('Input should be ')}, found {_shown(path, value)}"
        lines = found.setdefault(path, [])
        if text not in lines:
            lines.append(text)
    return [_line(path, texts, layers) for path, texts in found.items() if not path or not _is_outdone(path, found)]


def _is_outdone(path: Path, found: Mapping[Path, Any]) -> bool:
    """True if something inside of it is wrong: then another branch of its union is the one that was meant."""
    return any(other[: len(path)] == path and len(other) > len(path) for other in found)


def _line(path: Path, texts: list[str], layers: Layers) -> str:
    if not path:
        return f"settings: {'; '.join(texts)}"
    dotted = ".".join(path)
    how = f"set it with +{dotted}=<value>"
    if len(path) == 1 and path[0] in FLAGS:
        how += f" or {FLAGS[path[0]]}"
    return f"{layers.origin(path)}: {dotted}  {' or '.join(texts)}  {how}"


def _place(loc: tuple[int | str, ...], values: Mapping[str, Any]) -> tuple[Path, Any]:
    """The path of a fact without the names of union branches, and the value there."""
    path: list[str] = []
    value: Any = values
    for part in loc:
        if part in (value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()):
            value = value[part]
            path.append(str(part))
    return tuple(path), value


def _near(path: Path) -> str:
    near = near_name(path[-1], FIELDS) if len(path) == 1 else None
    return f", did you mean {near!r}?" if near else ""


def _shown(path: Path, value: Any) -> str:
    if any(is_secret_key(part) for part in path):
        return MASK
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."

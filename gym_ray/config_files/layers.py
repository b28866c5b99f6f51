"""Layers of settings, the later over the earlier, with the origin of every value. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_ray.config_files.fields import FIELDS, FLAGS
from gym_ray.config_files.overrides import Override
from gym_ray.deployment.instances import SERVER_TYPES
from gym_ray.deployment.reserved import POLICY_KEYS, RESERVED_KEYS
from gym_ray.deployment.suggestions import near_name

Path = tuple[str, ...]

_REFERENCE = re.compile(r"\$\{\s*([A-Za-z_]\w*)")


class Layers:
    """What the layers so far come to. Problems are collected, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.origins: dict[Path, str] = {}
        """Where each value of a setting of ours comes from; for a map where each of its values does."""
        self._merged = OmegaConf.create({})
        self._foreign: set[str] = set()

    def add_file(self, config: DictConfig, origin: str) -> None:
        """Merge what a file says."""
        allowed = {*RESERVED_KEYS, *POLICY_KEYS, *_instances(config), *_references(config)}
        for key in map(str, config):
            near = near_name(key, FIELDS)
            # A deployment's own keys may be called anything; one that looks like ours is taken for a slip
            is_theirs = key in allowed or (bool(_instances(config)) and near is None)
            if key not in FIELDS and not is_theirs:
                self.problems.append(unknown(origin, key))
            elif key not in FIELDS:
                self._foreign.add(key)
        self._merge(config, origin)

    def add_override(self, override: Override, value: Any) -> None:
        """Apply an override."""
        top = override.key[0]
        if top not in FIELDS and top not in {*RESERVED_KEYS, *POLICY_KEYS, *self._foreign}:
            self.problems.append(unknown(override.name, override.path))
            return
        if override.mode == "" and len(override.key) > 1 and not self._has(override.key):
            self.problems.append(
                f"{override.name}: {override.path}  is not set yet  add it with +{override.path}=<value>"
            )
            return
        self.set(override.key, value, override.name)

    def set(self, path: Path, value: Any, origin: str) -> None:
        """Set one value; a map is merged into the one that is there."""
        layer: Any = value
        for part in reversed(path):
            layer = {part: layer}
        self._merge(OmegaConf.create(layer), origin)

    def get(self, key: str) -> Any:
        """A top-level value with its interpolations resolved, None if there is none.

        Raises:
            OmegaConfBaseException: it cannot be resolved, or is marked as missing.
        """
        # `in` is no for a value that cannot be resolved
        if key not in set(self._merged):
            return None
        value = self._merged[key]
        return (
            OmegaConf.to_container(value, resolve=True, throw_on_missing=True) if OmegaConf.is_config(value) else value
        )

    def values(self) -> dict[str, Any]:
        """The settings of ours that are given. One that cannot be resolved is a problem and left out."""
        found = {}
        for key in map(str, self._merged):
            if key not in FIELDS:
                continue
            try:
                found[key] = self.get(key)
            except OmegaConfBaseException as error:
                reason, origin = str(error).partition("\n")[0], self.origin((key,))
                self.problems.append(f"{origin}: {key}  cannot be resolved: {reason}  set it with +{key}=<value>")
        return found

    def origin(self, path: Path) -> str:
        """Where a value comes from: of a map that was given in parts, where one of its values does."""
        for length in range(len(path), 0, -1):
            start = path[:length]
            if start in self.origins:
                return self.origins[start]
            if inside := next((origin for known, origin in self.origins.items() if known[:length] == start), None):
                return inside
        return "default"

    def _has(self, path: Path) -> bool:
        node: Any = OmegaConf.to_container(self._merged, resolve=False)
        for part in path:
            if not isinstance(node, dict) or part not in node:
                return False
            node = node[part]
        return True

    def _merge(self, layer: DictConfig, origin: str) -> None:
        merged = OmegaConf.merge(self._merged, layer)
        assert isinstance(merged, DictConfig)
        self._merged = merged
        for path, _ in leaves(OmegaConf.to_container(layer, resolve=False)):
            if path[0] not in FIELDS:
                continue
            # What this value replaces: itself, everything inside of it, or the plain value that it now lies inside of
            for known in [known for known in self.origins if known[: len(path)] == path or path[: len(known)] == known]:
                del self.origins[known]
            self.origins[path] = origin


def unknown(origin: str, path: str) -> str:
    """The line about a setting that does not exist."""
    name = path.partition(".")[0]
    meant = {flag.removeprefix("--").replace("-", "_"): field for field, flag in FLAGS.items()}
    near = meant.get(name) or near_name(name, FIELDS)
    return f"{origin}: {path}  no such setting  " + (
        f"did you mean {near!r}?" if near else "`gym-ray config` lists them"
    )


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in nested maps that is not a map with something in it, with its path."""
    if isinstance(value, Mapping) and (value or not path):
        for key, item in value.items():
            yield from leaves(item, (*path, str(key)))
    else:
        yield path, value


def _instances(config: DictConfig) -> set[str]:
    """Keys of server instances, and of nothing else: `_inherit_from` and `_copy` make one too."""
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    marks = {*SERVER_TYPES, "_inherit_from", "_copy"}
    return {
        str(key)
        for key, value in plain.items()
        if (isinstance(value, dict) and not marks.isdisjoint(value)) or (isinstance(value, str) and _is_composed(value))
    }


def _is_composed(value: str) -> bool:
    return value.startswith(("${inherit_from:", "${copy:"))


def _references(config: DictConfig) -> set[str]:
    """Names that interpolations in the file refer to."""
    return set(_REFERENCE.findall(OmegaConf.to_yaml(config, resolve=False)))

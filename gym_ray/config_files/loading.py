"""Loads the settings of a run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from gym_ray import keys
from gym_ray.config import RolloutCollectionConfig
from gym_ray.config_files.fields import FIELDS, flag_of, value_for
from gym_ray.config_files.layers import Layers, Path, leaves, unknown
from gym_ray.config_files.messages import explain
from gym_ray.config_files.overrides import Override, parse_override, parse_value
from gym_ray.deployment.head import DEFAULT_HOST, DEFAULT_PORT
from gym_ray.deployment.merged import CONFIG_VARIABLE
from gym_ray.deployment.yaml_config import read_mapping
from gym_ray.errors import ConfigError
from gym_ray.rows.locating import locate

VARIABLE_PREFIX: Final = "GYM_RAY_"
CONFIG_PATHS: Final = "config_paths"
"""Names further files among the overrides, as in NeMo Gym."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and its origin."""

    path: str
    value: Any
    origin: str
    """A file, a variable, an override such as `+limit=...`, a flag, or `default`."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings of a run."""

    config: RolloutCollectionConfig
    origins: Mapping[Path, str]
    """Where each value comes from that is not a default."""

    def settings(self) -> Iterator[Setting]:
        """Every value, those of maps one by one, in the order of the fields."""
        for path, value in leaves(self.config.model_dump()):
            known = [path[:length] for length in range(len(path), 0, -1) if path[:length] in self.origins]
            yield Setting(".".join(path), value, self.origins[known[0]] if known else "default")


def load_config(
    files: Sequence[str] = (),
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LoadedConfig:
    """The settings from YAML files, `GYM_RAY_` variables, overrides and flags, each over the one before.

    Args:
        overrides: `key=value`, `+key=value` or `++key=value`; `+config_paths=[...]` names further files.
        flags: field -> value; None is a flag that was not given.

    Raises:
        ConfigError: every problem, one a line: where, which setting, what is wrong, how to set it right.
    """
    layers = Layers()
    parsed = [parse_override(text) for text in overrides]
    for file in [*files, *_further_files(parsed)]:
        layers.add_file(_read(file, environ), file)
    _add_variables(layers, environ)
    for override in parsed:
        if override.path != CONFIG_PATHS:
            layers.add_override(override, _value(override))
    for field, value in (flags or {}).items():
        if value is not None:
            layers.set((field,), value, flag_of(field))
    if not environ.get(CONFIG_VARIABLE):
        _add_head(layers)
    return LoadedConfig(_validated(layers), layers.origins)


def _read(file: str, environ: Mapping[str, str]) -> DictConfig:
    try:
        text = locate(file, environ).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config {file}: cannot be read: it is not UTF-8 text") from None
    return read_mapping(text or "{}", file, "settings")


def _further_files(overrides: Sequence[Override]) -> Iterator[str]:
    for override in overrides:
        if override.path == CONFIG_PATHS:
            yield from map(str, override.value if isinstance(override.value, list) else [override.value])


def _add_variables(layers: Layers, environ: Mapping[str, str]) -> None:
    for name, text in sorted(environ.items()):
        if not name.startswith(VARIABLE_PREFIX) or not text:
            continue
        field = name.removeprefix(VARIABLE_PREFIX).lower()
        if field not in FIELDS:
            layers.problems.append(unknown(name, field))
            continue
        layers.set((field,), value_for(field, parse_value(text, name), text), name)


def _value(override: Override) -> Any:
    if len(override.key) == 1 and override.key[0] in FIELDS:
        return value_for(override.key[0], override.value, override.raw)
    return override.value


def _add_head(layers: Layers) -> None:
    """A head server that a shared file names is the default head. Source: protocol §1.1."""
    try:
        if layers.get("head") is not None or layers.get("deployment") is not None:
            return
        server, host = layers.get(keys.HEAD_SERVER), layers.get("default_host")
    except OmegaConfBaseException:
        return
    if isinstance(server, Mapping):
        host = server.get("host") or host or DEFAULT_HOST
        address = f"[{host}]" if ":" in str(host) else host
        layers.set(("head",), f"{address}:{server.get('port') or DEFAULT_PORT}", keys.HEAD_SERVER)


def _validated(layers: Layers) -> RolloutCollectionConfig:
    values = layers.values()
    try:
        config = RolloutCollectionConfig(**values)
    except ValidationError as error:
        raise ConfigError("\n".join([*layers.problems, *explain(error, values, layers)])) from None
    if layers.problems:
        raise ConfigError("\n".join(layers.problems))
    return config

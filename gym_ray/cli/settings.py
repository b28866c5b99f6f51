"""From files, overrides and flags to validated settings, with errors that say how to set things right."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from gym_ray.config import RolloutCollectionConfig
from gym_ray.errors import ConfigError


def load_settings(files: Sequence[str], overrides: Sequence[str], flags: Mapping[str, Any]) -> RolloutCollectionConfig:
    """Settings from YAML files, then overrides, then flags that were given; later wins.

    Raises:
        ConfigError: every problem, one to a line.
    """
    merged = OmegaConf.merge(
        *(_read(file) for file in files),
        _dotlist(overrides),
        OmegaConf.create({key: value for key, value in flags.items() if value is not None}),
    )
    values = OmegaConf.to_container(merged, resolve=True)
    assert isinstance(values, dict)
    try:
        return RolloutCollectionConfig(**{str(key): value for key, value in values.items()})
    except ValidationError as error:
        raise ConfigError("\n".join(_explained(dict(fact)) for fact in error.errors())) from None


def _read(file: str) -> DictConfig:
    try:
        loaded = OmegaConf.load(file)
    except (OSError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"--config {file}: {error}") from None
    if not isinstance(loaded, DictConfig):
        raise ConfigError(f"--config {file}: expected settings as `key: value`, found a list")
    return loaded


def _dotlist(overrides: Sequence[str]) -> DictConfig:
    for text in overrides:
        if "=" not in text:
            raise ConfigError(f"{text!r}: expected a setting such as +{text.lstrip('+')}=VALUE")
    return OmegaConf.from_dotlist([text.lstrip("+") for text in overrides])


def _explained(fact: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in fact["loc"]) or "settings"
    if fact["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path, RolloutCollectionConfig.model_fields, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{path}: no such setting{hint}"
    what = fact["msg"].removeprefix("Value error, ")
    return f"{path}: {what} (set it with +{path}=<value>)" if fact["loc"] else what

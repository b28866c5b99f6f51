"""A merged config from its YAML text, resolved leniently.

A deployment's config has more in it than a runner needs, and parts of it can only be resolved on the machine that they
are meant for. So what cannot be resolved here keeps its text, for example `${oc.env:ONLY_ON_THE_SERVER}`; it is an
error only where somebody uses it. The resolvers `inherit_from` and `copy`, which composition has already applied, keep
their text by the same rule (source: protocol §1.2).
"""

from collections.abc import Mapping
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_ray.errors import ConfigError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_config(text: str, where: str) -> dict[str, Any]:
    """The config as plain values, resolved leniently. JSON text is YAML too.

    Raises:
        ConfigError: not YAML, not a mapping, or an interpolation that cannot even be read.
    """
    return resolve_config(read_mapping(text, where, "server instances"))


def read_mapping(text: str, where: str, what: str) -> DictConfig:
    """The mapping in a YAML text, with its interpolations as they are. `what` it should hold is for the message.

    Raises:
        ConfigError: not YAML, not a mapping, or an interpolation that cannot even be read; the text is never quoted.
    """
    try:
        # First, because `OmegaConf.create` takes a single word for a mapping and trips over a single number
        if not isinstance(yaml.compose(text, _LOADER), yaml.MappingNode):
            raise ConfigError(f"{where}: expected a mapping of {what}, found something else")
        config = OmegaConf.create(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: expected YAML, but it cannot be read: {_place(error)}") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{where}: {error.full_key or 'a value'}: the interpolation in it cannot be read") from None
    assert isinstance(config, DictConfig)
    return config


def resolve_config(config: Mapping[Any, Any] | DictConfig) -> dict[str, Any]:
    """Plain nested dicts and lists of a config; what cannot be resolved keeps its text."""
    node = config if isinstance(config, DictConfig) else OmegaConf.create(dict(config))
    try:
        plain = OmegaConf.to_container(node, resolve=True)
    except (OmegaConfBaseException, ValueError, TypeError):
        plain = _resolve_what_can_be(node, frozenset())
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _resolve_what_can_be(node: DictConfig | ListConfig, above: frozenset[int]) -> Any:
    if id(node) in above:  # a node that is interpolated into itself
        return None
    above |= {id(node)}
    raw = OmegaConf.to_container(node, resolve=False)
    if isinstance(node, DictConfig):
        assert isinstance(raw, dict)
        return {str(key): _value_of(node, key, text, above) for key, text in raw.items()}
    assert isinstance(raw, list)
    return [_value_of(node, index, text, above) for index, text in enumerate(raw)]


def _value_of(node: DictConfig | ListConfig, key: Any, text: Any, above: frozenset[int]) -> Any:
    try:
        value = node[key]
    # A resolver may raise anything that its code can raise; each of them means "not on this machine"
    except Exception:  # noqa: BLE001
        return text
    return _resolve_what_can_be(value, above) if isinstance(value, DictConfig | ListConfig) else value


def _place(error: yaml.YAMLError) -> str:
    """Where the YAML breaks, without the text around it: that may hold a credential."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else str(problem)

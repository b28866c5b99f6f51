"""Settings as they are typed on a command line or stand in a variable. Pure.

`key=value` changes a setting that exists, `+key=value` adds one, `++key=value` does either. Values are YAML, and also
Hydra's maps without a blank after the colon.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gym_ray.errors import ConfigError

_OVERRIDE = re.compile(r"(\+{0,2})([^=+~\s][^=]*)=(.*)", re.DOTALL)
_TIGHT_COLON = re.compile(r"""([{,]\s*[\w./-]+):(?=[^\s/]|/(?!/))""")
"""In a flow map YAML takes `{a:2}` for a key without a value. A URL in a list has a colon before two slashes."""


@dataclass(frozen=True, slots=True)
class Override:
    """One override."""

    mode: Literal["", "+", "++"]
    key: tuple[str, ...]
    """The parts of the dotted key."""
    raw: str
    """The text of the value."""
    value: Any

    @property
    def path(self) -> str:
        return ".".join(self.key)

    @property
    def name(self) -> str:
        """What messages call it: without the value, which may be a credential."""
        return f"{self.mode}{self.path}=..."


def parse_override(text: str) -> Override:
    """Read one override.

    Raises:
        ConfigError: it is none.
    """
    found = _OVERRIDE.fullmatch(text)
    key = tuple(found[2].strip().split(".")) if found else ()
    if found is None or not all(key):
        raise ConfigError(f"{text}: expected an override such as +key=value")
    mode: Any = found[1]
    return Override(mode, key, found[3], parse_value(found[3], text))


def parse_value(raw: str, where: str) -> Any:
    """The value of a text; interpolations stay as they are.

    Raises:
        ConfigError: not a YAML value.
    """
    text = _TIGHT_COLON.sub(r"\1: ", raw) if raw.lstrip().startswith("{") else raw
    if not text.strip():
        return ""
    try:
        return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)["value"]  # type: ignore[index,call-overload]
    except (yaml.YAMLError, OmegaConfBaseException):
        raise ConfigError(f"{where}: the value cannot be read: put text with special characters in quotes") from None

"""Prompt templates: the messages that a run writes into rows which bring none.

Source: protocol §5.8.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from gym_ray.errors import ConfigError
from gym_ray.rows.locating import locate


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template whose `{field}` places are filled from the top-level fields of a row."""

    user: str
    system: str | None = None

    def messages(self, row: Mapping[str, Any]) -> list[dict[str, str]]:
        """The messages for a row.

        Raises:
            ValueError: the row lacks a field, or a field does not have what the template asks of it.
        """
        texts = [("system", self.system), ("user", self.user)]
        return [{"role": role, "content": _filled(text, row)} for role, text in texts if text is not None]


def load_prompt(path: str, environ: Mapping[str, str] = os.environ) -> Prompt:
    """The template in a YAML file with `user` and perhaps `system`.

    Raises:
        ConfigError: the file cannot be read, or is not such a template.
    """
    try:
        content = yaml.safe_load(locate(path, environ).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"prompt_config: {path} cannot be read as YAML: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("user"), str):
        raise ConfigError(f"prompt_config: {path}: expected a mapping with the text `user`")
    system = content.get("system")
    if system is not None and not isinstance(system, str):
        raise ConfigError(f"prompt_config: {path}: `system` is not a text")
    for text in (content["user"], system or ""):
        _check(text, path)
    return Prompt(content["user"], system)


def _check(template: str, path: str) -> None:
    try:
        fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise ConfigError(
            f"prompt_config: {path}: {error}; write {{{{ and }}}} for braces that are meant as such"
        ) from None
    if any(not field or field[0].isdecimal() for field in fields):
        raise ConfigError(f"prompt_config: {path}: a place has no field name; write {{{{ and }}}} for plain braces")


def _filled(template: str, row: Mapping[str, Any]) -> str:
    try:
        return template.format_map(row)
    except KeyError as error:
        raise ValueError(f"the template asks for the field {error}, which the row does not have") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"the template cannot be filled: {error}") from None

"""Reads prompt templates. Source: protocol §5.8."""

import os
from collections.abc import Mapping
from string import Formatter

import yaml

from gym_ray.errors import ConfigError
from gym_ray.rows.locating import locate
from gym_ray.rows.prompts import Prompt


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

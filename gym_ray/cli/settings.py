"""From what was typed to the settings of a verb."""

from collections.abc import Mapping, Sequence
from typing import Any

from gym_ray.config import RolloutCollectionConfig
from gym_ray.config_files.loading import load_config
from gym_ray.paths import RunPaths


def load_settings(
    files: Sequence[str] | None,
    overrides: Sequence[str] | None,
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> RolloutCollectionConfig:
    """The settings from everywhere; `defaults` fill what is then still None.

    Raises:
        ConfigError: every problem, one to a line.
    """
    settings = load_config(files or (), overrides or (), flags).config
    unset = {field: value for field, value in (defaults or {}).items() if getattr(settings, field) is None}
    return settings.model_copy(update=unset)


def kept_settings(output: str) -> list[str]:
    """The file of settings beside a run, for a command that names nothing but the run; none if there is none."""
    kept = RunPaths.of_output(output).resolved_config
    return [str(kept)] if kept.exists() else []

"""Where the merged config of a deployment comes from: a file, a head server or the environment.

Source: protocol §1.1-1.3.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from gym_ray.deployment.head import HeadAddress, fetch_config_text
from gym_ray.deployment.lookup import Deployment
from gym_ray.deployment.yaml_config import parse_config
from gym_ray.errors import ConfigError

__all__ = ["Deployment", "load_deployment"]

CONFIG_VARIABLE = "NEMO_GYM_CONFIG_DICT"


def load_deployment(
    *, head: str | None = None, file: str | None = None, environ: Mapping[str, str] = os.environ
) -> Deployment:
    """The deployment to talk to, from the first of these that is given: `file`, `head`, the variable
    `NEMO_GYM_CONFIG_DICT`, the default head address. Blocks for up to 10 s when it asks a head.

    Args:
        head: `HOST:PORT` of a head server.
        file: a merged config as YAML or JSON.

    Raises:
        ConfigError: the file or the variable cannot be read or used.
        DeploymentUnreachableError: the head does not answer as one.
    """
    text, source = _config_text(head, file, environ)
    return Deployment.of_config(parse_config(text, source), source, environ)


def _config_text(head: str | None, file: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    if file is not None:
        try:
            return _unwrapped(Path(file).expanduser().read_text(encoding="utf-8")), file
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"deployment: {file} cannot be read: {_reason(error)}") from None
    if head is None and environ.get(CONFIG_VARIABLE):
        return environ[CONFIG_VARIABLE], CONFIG_VARIABLE
    address = HeadAddress.parse(head) if head is not None else HeadAddress()
    return fetch_config_text(address), address.url


def _unwrapped(text: str) -> str:
    """The YAML of a file that holds a head's answer as it came: a JSON string."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"

"""Where the models behind a deployment are served. Pure. Source: protocol §1.4."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from gym_ray import keys

_URL_KEYS = ("openai_base_url", "base_url")


def model_server_urls(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The base URLs of the inference servers that a merged config names, without credentials, each once."""
    return tuple(dict.fromkeys(_urls(config)))


def _urls(config: Mapping[str, Any]) -> Iterator[str]:
    for tree in config.values():
        models = tree.get(keys.RESPONSES_API_MODELS) if isinstance(tree, Mapping) else None
        for block in models.values() if isinstance(models, Mapping) else ():
            if isinstance(block, Mapping):
                yield from _named(block)


def _named(block: Mapping[str, Any]) -> list[str]:
    """The usable URLs under the keys that name an inference server."""
    values = [block.get(key) for key in _URL_KEYS]
    named = [url for value in values for url in (value if isinstance(value, list) else [value])]
    return [clean for url in named if isinstance(url, str) and "${" not in url and (clean := _without_credentials(url))]


def _without_credentials(url: str) -> str | None:
    """The URL without user, query and fragment; None if it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket that is not closed
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

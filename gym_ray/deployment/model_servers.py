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
            for key in _URL_KEYS:
                named = block.get(key) if isinstance(block, Mapping) else None
                for url in named if isinstance(named, list) else [named]:
                    if isinstance(url, str) and url.startswith(("http://", "https://")) and "${" not in url:
                        yield _without_credentials(url)


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

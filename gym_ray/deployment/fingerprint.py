"""What of a deployment's config decides results, as digests by dotted key: no value can be read from them.

Pure. Addresses, credentials, capture folders and the instances that a plan does not touch are no part of it, so that a
run may be continued on a deployment that was started anew elsewhere. Source: protocol §7.7.3.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gym_ray import keys
from gym_ray.deployment.lookup import Deployment
from gym_ray.deployment.secrets import is_secret_key

_OPERATIONAL = frozenset({"host", "port", "num_workers", "entrypoint", "model_call_capture_dir", "nemo_gym_log_dir"})
_ADDRESSES = ("url", "endpoint", "headers")
"""The last word of keys that say where something is, or who asks."""


def configuration_digests(deployment: Deployment, servers: Iterable[str], agents: Iterable[str] = ()) -> dict[str, str]:
    """Dotted key -> digest of its value, for these environment servers and agents and every instance that they
    reference."""
    found: dict[str, str] = {}
    waiting, seen = [*servers, *agents], set[str]()
    while waiting:
        name = waiting.pop()
        block = deployment.config.get(name)
        if name in seen or not isinstance(block, Mapping):
            continue
        seen.add(name)
        for dotted, value in _leaves(block, name):
            found[dotted] = hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
        waiting += _references(block)
    return dict(sorted(found.items()))


def _leaves(value: Any, dotted: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield dotted, value
        return
    for key, item in value.items():
        if not _is_operational(str(key)):
            yield from _leaves(item, f"{dotted}.{key}")


def _is_operational(key: str) -> bool:
    return key in _OPERATIONAL or is_secret_key(key) or key.lower().rsplit("_", 1)[-1] in _ADDRESSES


def _references(value: Any) -> Iterator[str]:
    """The names in every `{type, name}` of a block."""
    if isinstance(value, Mapping):
        name = value.get(keys.NAME)
        if isinstance(name, str) and "type" in value:
            yield name
        for item in value.values():
            yield from _references(item)

"""Values that may be shown: whatever looks like a credential is masked.

A deployment's config holds API keys. Everything that prints or writes a part of it goes through `mask_secrets`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    {
        "apikey",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "pwd",
        "secret",
        "secrets",
    }
)
_KEY_OWNERS = frozenset({"access", "account", "api", "auth", "encryption", "private", "secret", "signing", "ssh"})
"""`api_key` is a credential, `sort_key` and `key_metrics` are not."""

_USER_INFO = re.compile(r"(?<=://)[^/?#\s@]+@")
_QUERY = re.compile(r"(?<=[?&])([^=&#\s]+)=([^&#\s]+)")
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_KNOWN_TOKEN = re.compile(r"\b(?:sk|hf|gh[opsu]|github_pat|nvapi|xox[abp])[-_][A-Za-z0-9_-]{16,}")


def is_secret_key(key: str) -> bool:
    """True if a value under this key is probably a credential."""
    words = [word.lower() for word in _WORDS.findall(key)]
    if not words:
        return False
    if not _SECRET_WORDS.isdisjoint(words) or words[-1] == "token":
        return True
    return words[-1] in {"key", "keys"} and len(words) > 1 and words[-2] in _KEY_OWNERS


def mask_secrets(value: Any) -> Any:
    """A copy of a JSON-like value in which credentials are `***`: by their key, at any depth, and inside of strings
    (user names in URLs, key-like query parameters, bearer tokens, tokens of known shape).

    Empty values and None stay, so that a credential that is not set can be seen to be missing.
    """
    if isinstance(value, Mapping):
        return {key: _mask_all(item) if is_secret_key(str(key)) else mask_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_secrets(item) for item in value]
    if isinstance(value, str):
        return _mask_text(value)
    return value


def _mask_all(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_all(item) for item in value]
    return value if value is None or value == "" or isinstance(value, bool) else MASK


def _mask_text(text: str) -> str:
    text = _USER_INFO.sub(MASK + "@", text)
    text = _QUERY.sub(lambda found: f"{found[1]}={MASK}" if is_secret_key(found[1]) else found[0], text)
    text = _BEARER.sub(lambda found: f"{found[1]} {MASK}", text)
    return _KNOWN_TOKEN.sub(MASK, text)

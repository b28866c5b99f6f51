"""Failures that are the same but for numbers, ids and quotations have one signature. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gym_ray import keys

MAX_CHARS = 160
MAX_EXAMPLES = 5

_PATTERNS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(0x)?(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\""), "<text>"),
    (re.compile(r"\d+(\.\d+)?"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def signature_of(failure: Mapping[str, Any]) -> str:
    """The class, kind and type of a failure row with its message, normalized."""
    typed = failure.get(keys.FAILURE_RECORD)
    cause = typed.get(keys.FAILURE) if isinstance(typed, Mapping) else None
    cause = cause if isinstance(cause, Mapping) else {}
    failure_class = str(failure.get(keys.FAILURE_CLASS) or "unclassified")
    names = [failure_class]
    kind = cause.get(keys.FAILURE_KIND) or failure.get(keys.FAILURE_KIND)
    names += [str(each) for each in (kind, failure.get(keys.FAILURE_TYPE)) if each and str(each) not in names]
    status = failure.get(keys.FAILURE_HTTP_STATUS)
    if isinstance(status, int):
        names.append(f"HTTP {status}")
    message = failure.get(keys.FAILURE_MESSAGE) or cause.get(keys.FAILURE_REASON) or failure.get(keys.ERROR_MESSAGE)
    return f"{' / '.join(names)}: {_normalized(str(message))}" if message else " / ".join(names)


def _normalized(message: str) -> str:
    message = message[: 8 * MAX_CHARS]
    for pattern, name in _PATTERNS:
        message = pattern.sub(name, message)
    return message if len(message) <= MAX_CHARS else f"{message[:MAX_CHARS]}…"


@dataclass(slots=True)
class Signature:
    """The failures of one kind."""

    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    """Ids `<task>-<rollout>` of some of them."""


class Signatures:
    """Groups failure rows."""

    def __init__(self) -> None:
        self._by_text: dict[str, Signature] = {}

    def add(self, rollout: str, failure: Mapping[str, Any]) -> None:
        """Count a failure row."""
        text = signature_of(failure)
        group = self._by_text.setdefault(text, Signature(text))
        group.count += 1
        if len(group.examples) < MAX_EXAMPLES:
            group.examples.append(rollout)

    def ranked(self) -> list[Signature]:
        """The signatures, the most frequent first."""
        return sorted(self._by_text.values(), key=lambda group: (-group.count, group.text))

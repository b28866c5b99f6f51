"""Hints for a name that does not exist."""

import difflib
from collections.abc import Iterable

MAX_NAMES = 8
"""Names listed when nothing is near: enough to recognise the right one, short enough for one line."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to put behind an error about `name`: the nearest known name, else which there are."""
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {near[0]!r}?"
    if not names:
        return "there is none"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"there are {', '.join(map(repr, names[:MAX_NAMES]))}{more}"

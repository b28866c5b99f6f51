"""Hints for a name that does not exist."""

import difflib
from collections.abc import Iterable

MAX_NAMES = 8
"""Names listed when nothing is near: enough to recognise the right one, short enough for one line."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to put behind an error about `name`: the nearest known name, else which there are."""
    names = sorted(known)
    if near := near_name(name, names):
        return f"did you mean {near!r}?"
    if not names:
        return "there is none"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"there are {', '.join(map(repr, names[:MAX_NAMES]))}{more}"


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, None if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return near[0] if near else None

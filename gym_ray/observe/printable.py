"""Text of others, safe to show: nothing in it moves the cursor, colours the terminal or reorders what we wrote."""

import unicodedata

MAX_SHOWN = 300
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Control, format (bidirectional marks among them), surrogate and private characters, line and paragraph separators."""


def printable(text: str, limit: int = MAX_SHOWN) -> str:
    """`text` on one line, unsafe characters as escapes, cut after `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSAFE else char for char in cut
    )

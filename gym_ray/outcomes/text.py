"""Text that may stand in a record: bounded, encodable and without credentials."""

import re

MAX_TEXT = 2_000
"""Characters of a message or a body that a failure row keeps, the ellipsis included. Source: protocol §6.6, §7.5."""

_BYTES_OF_TEXT = 4 * MAX_TEXT + 4
"""UTF-8 takes at most four bytes for a character, so this prefix of a body decides all that is kept of it."""

_USERINFO = re.compile(r"//[^/?#\s]*@")


def bounded(text: str) -> str:
    """`text` cut to `MAX_TEXT` characters, the last of them `…` where something was cut."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def public(text: str) -> str:
    """`text` bounded, without `user:password@` of URLs, and with `?` for what UTF-8 cannot encode."""
    cleaned = _USERINFO.sub("//", text).encode("utf-8", "replace").decode()
    return bounded(cleaned)


def excerpt(body: bytes) -> str | None:
    """The start of a body as text, invalid bytes replaced; None for an empty body."""
    return bounded(body[:_BYTES_OF_TEXT].decode("utf-8", "replace")) if body else None

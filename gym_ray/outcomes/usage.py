"""How many tokens a reply says it used: `response.usage.total_tokens`, else `usage.total_tokens` beside it."""

import msgspec


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None


class _Reply(msgspec.Struct):
    response: _Response | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Reply).decode


def total_tokens(body: bytes) -> int | None:
    """The tokens of one reply; None if it does not say. Costs a pass over the body, so ask only for a token budget."""
    try:
        reply = _decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    for usage in (reply.response.usage if reply.response else None, reply.usage):
        if usage is not None and usage.total_tokens is not None:
            return usage.total_tokens
    return None

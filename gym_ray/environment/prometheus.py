"""Requests waiting and running, as inference servers say it in the Prometheus text format. Pure.

Source: protocol §1.8.
"""

import re

WAITING, RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"
MAX_REQUESTS = 1e9
"""No server holds as many: a larger number is garbage, and sums of such numbers leave the range of a float."""

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(\{(\"(\\.|[^\"\\])*\"|[^\"}])*\})?\s+(?P<value>\S+)(\s+-?\d+)?\s*"
)


def gauge_sums(text: str) -> tuple[int, int] | None:
    """Requests waiting and running, over all label sets; None if the text says neither.

    Values that are no number of requests (NaN, infinite, negative, above `MAX_REQUESTS`) are passed over.
    """
    sums: dict[str, int] = {}
    for line in text.split("\n"):  # splitlines would also cut at separators inside of label values
        found = _SAMPLE.fullmatch(line) if line.startswith((WAITING, RUNNING)) else None
        if found is None or found["name"] not in (WAITING, RUNNING):
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if 0 <= value <= MAX_REQUESTS:
            sums[found["name"]] = sums.get(found["name"], 0) + int(value)
    return (sums.get(WAITING, 0), sums.get(RUNNING, 0)) if sums else None

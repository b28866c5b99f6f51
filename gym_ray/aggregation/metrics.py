"""The reply of a server to `/aggregate_metrics`, read strictly. Pure. Source: protocol §3.2, §3.4.

A NaN or an infinity makes the whole reply an error: it is not JSON, the file of metrics must be, and a metric that
turned into null would look like one that was not computed.
"""

import json
import math
from typing import Any, NoReturn

from gym_ray import keys

Entry = dict[str, Any]
"""One object of `<stem>_aggregate_metrics.json`."""


class InvalidMetrics(ValueError):
    """A reply that holds no metrics; the message says what it holds."""


def empty_metrics() -> Entry:
    """The metrics of a server that computed none."""
    return {
        keys.AGENT_METRICS: {},
        keys.KEY_METRICS: {},
        keys.GROUP_LEVEL_METRICS: [],
        keys.REPEAT_LEVEL_METRICS: [],
    }


def read_metrics(body: bytes) -> Entry:
    """The metrics of a reply; what it leaves out is empty, and `perf_summary` is absent unless it has one.

    Raises:
        InvalidMetrics: not JSON, or not of the shape of metrics.
    """
    try:
        reply = json.loads(body, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidMetrics(f"the reply is not JSON: {error}") from None
    if not isinstance(reply, dict):
        raise InvalidMetrics(f"the reply is {_kind(reply)}, not an object")
    metrics = empty_metrics()
    for key, empty in metrics.items():
        value = reply.get(key)
        if value is None:
            continue
        if type(value) is not type(empty) or not all(isinstance(part, dict) for part in _parts(value)):
            expected = "an object" if isinstance(empty, dict) else "a list of objects"
            raise InvalidMetrics(f"{key} is {_kind(value)}, not {expected}")
        metrics[key] = value
    summary = reply.get(keys.PERF_SUMMARY)
    if summary is not None:
        if not isinstance(summary, dict):
            raise InvalidMetrics(f"{keys.PERF_SUMMARY} is {_kind(summary)}, not an object")
        metrics[keys.PERF_SUMMARY] = summary
    return metrics


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list with something else than objects", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond a double")
    return value

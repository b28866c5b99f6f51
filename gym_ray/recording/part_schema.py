"""The columns of a sealed part, and how they are read off a record line.

Invariants: the schema is the same for every part, whatever its records lack; `record` is the line, byte for byte; the
other columns only repeat what is in it, or what the driver knew of the attempt, so that readers can choose by them.
Source: protocol §0.1 (stamps), §7.6 (rows that are no evidence of an attempt).
"""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, NoReturn

import msgspec
import pyarrow as pa

from gym_ray import keys

TASK_INDEX: Final = "task_index"
ROLLOUT_INDEX: Final = "rollout_index"
ATTEMPT: Final = "attempt"
IS_RESULT: Final = "is_result"
IS_EVIDENCE: Final = "is_evidence"
SERVER: Final = "environment_server"
AGENT: Final = "agent"
FAILURE_CLASS: Final = "failure_class"
FAILURE_KIND: Final = "failure_kind"
RECORD: Final = "record"

SORT_COLUMNS: Final = (TASK_INDEX, ROLLOUT_INDEX, ATTEMPT)
"""What the rows of a part are sorted by; nulls come last."""
NAME_COLUMNS: Final = (SERVER, AGENT, FAILURE_CLASS, FAILURE_KIND)
"""A few names many times: dictionary pages on disk, but strings in the schema, which every reader knows."""

FACT_SCHEMA: Final = pa.schema(
    [
        pa.field(TASK_INDEX, pa.int64()),
        pa.field(ROLLOUT_INDEX, pa.int64()),
        pa.field(ATTEMPT, pa.int32(), nullable=False),
        pa.field(IS_RESULT, pa.bool_(), nullable=False),
        pa.field(IS_EVIDENCE, pa.bool_(), nullable=False),
        pa.field(SERVER, pa.string()),
        pa.field(AGENT, pa.string()),
        pa.field("reward", pa.float64()),
        pa.field("mask_sample", pa.bool_(), nullable=False),
        pa.field(FAILURE_CLASS, pa.string()),
        pa.field(FAILURE_KIND, pa.string()),
        pa.field("terminal", pa.bool_(), nullable=False),
        pa.field("latency_ms", pa.float64()),
        pa.field("sends", pa.int32()),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("total_tokens", pa.int64()),
        pa.field("ended_at", pa.timestamp("ms", tz="UTC")),
    ]
)
"""Every column but the record. `is_evidence` is false for results whose reward is null, and for failures that no
attempt stands behind; an index passes them over."""

PART_SCHEMA: Final = FACT_SCHEMA.append(pa.field(RECORD, pa.large_string(), nullable=False))
"""The columns of every part. Records are large strings, since programs join the parts of a run beyond 2 GiB."""


class Facts(NamedTuple):
    """What the driver knows of an attempt beyond its record; None where it does not."""

    latency_ms: float | None = None
    ended_at_ms: int | None = None
    """Since the epoch."""
    sends: int | None = None


_NO_FACTS = Facts()

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Agent(msgspec.Struct):
    name: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: _Int64 | None = None
    output_tokens: _Int64 | None = None
    total_tokens: _Int64 | None = None
    prompt_tokens: _Int64 | None = None
    completion_tokens: _Int64 | None = None


_NO_USAGE = _Usage()


class _Response(msgspec.Struct):
    usage: _Usage | None = None


class _Config(msgspec.Struct):
    mask_sample: Any = None


class _Cause(msgspec.Struct):
    failure_kind: str | None = None


class _TypedRecord(msgspec.Struct):
    failure: _Cause | None = None


class _Record(
    msgspec.Struct,
    kw_only=True,
    rename={
        "task": keys.TASK_INDEX,
        "rollout": keys.ROLLOUT_INDEX,
        "attempt": keys.ATTEMPT_INDEX,
        "server": keys.ENVIRONMENT_SERVER,
        "agent": keys.AGENT_REF,
        "is_omitted": keys.OMITTED_ROLLOUT,
        "is_unrouted": keys.UNROUTED_RUN_ERROR,
        "failure_class": keys.FAILURE_CLASS,
        "terminal": keys.FAILURE_TERMINAL,
        "typed": keys.FAILURE_RECORD,
        "sends": keys.SENDS,
        "failure_sends": keys.FAILURE_SENDS,
    },
):
    task: _Int64 | None = None
    rollout: _Int64 | None = None
    attempt: _Count | None = None
    server: str | None = None
    agent: _Agent | None = None
    is_omitted: Any = None
    is_unrouted: Any = None
    reward: float | msgspec.UnsetType | None = msgspec.UNSET
    mask_sample: Any = None
    instance_config: _Config | None = None
    failure_class: str | None = None
    failure_kind: str | None = None
    terminal: Any = None
    typed: _TypedRecord | None = None
    sends: _Count | None = None
    failure_sends: _Count | None = None
    response: _Response | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Record).decode

Row = tuple[Any, ...]
"""The values of `FACT_SCHEMA`, in its order."""


def read_row(line: bytes, is_result: bool, facts: Mapping[tuple[int, int, int], Facts]) -> Row:
    """What the columns hold for a JSON object line; about 2 us for a kilobyte.

    Raises:
        ValueError: the line is not a JSON object in UTF-8; says what is wrong with it.
    """
    if not line.isascii():
        line.decode()
    try:
        record = _decode(line)
    except (msgspec.MsgspecError, RecursionError):
        record = _read_slowly(line)
    attempt = record.attempt or 0
    known = _NO_FACTS
    if record.task is not None and record.rollout is not None:
        known = facts.get((record.task, record.rollout, attempt), _NO_FACTS)
    cause = record.typed.failure if record.typed is not None else None
    usage = record.response.usage if record.response is not None else None
    usage = usage or record.usage or _NO_USAGE
    sends = record.failure_sends if record.sends is None else record.sends
    return (
        record.task,
        record.rollout,
        attempt,
        is_result,
        record.reward is not None if is_result else not (record.is_omitted or record.is_unrouted),
        record.server,
        record.agent.name if record.agent is not None else None,
        None if record.reward is msgspec.UNSET else record.reward,
        bool(record.mask_sample or (record.instance_config and record.instance_config.mask_sample)),
        record.failure_class,
        (cause.failure_kind if cause is not None else None) or record.failure_kind,
        bool(record.terminal),
        known.latency_ms,
        sends if known.sends is None else known.sends,
        usage.prompt_tokens if usage.input_tokens is None else usage.input_tokens,
        usage.completion_tokens if usage.output_tokens is None else usage.output_tokens,
        usage.total_tokens,
        known.ended_at_ms,
    )


def _read_slowly(line: bytes) -> _Record:
    """For escapes of lone surrogates, which are JSON, and for values of an unusual type, which count as absent."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    legible = {
        field.name: _legible(value[field.encode_name], field.type)
        for field in msgspec.structs.fields(_Record)
        if field.encode_name in value
    }
    return _Record(**{name: found for name, found in legible.items() if found is not msgspec.UNSET})


def _legible(value: Any, kind: Any) -> Any:
    """The value as its field wants it; UNSET if it cannot be, or if a column could not hold it."""
    try:
        legible = msgspec.convert(value, kind)
        msgspec.json.encode(legible)  # refuses lone surrogates, as Arrow does
    except (ValueError, OverflowError, msgspec.MsgspecError):
        return msgspec.UNSET
    return msgspec.UNSET if legible in (math.inf, -math.inf) else legible


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a number in JSON")

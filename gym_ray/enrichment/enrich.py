"""Puts captured calls, trajectory and performance into a record, for which the whole object is built.

Source: protocol §8.6 steps 3-5.
"""

import json
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from gym_ray import keys
from gym_ray.enrichment.capture import UNREADABLE, capture_of, read_capture, without_payloads
from gym_ray.enrichment.capture_files import CaptureFile
from gym_ray.enrichment.joining import join
from gym_ray.enrichment.perf import perf_of
from gym_ray.enrichment.schema import Observations, Trajectory
from gym_ray.enrichment.trajectory import build_trajectory, task_name
from gym_ray.identity import RowIdentity
from gym_ray.rows.splicing import encode

Payloads = Literal["move", "keep", "drop"]
"""Bodies of captured calls: only in the trajectory, in the capture too, or nowhere."""

_REDACTED = "multimodal_history_redacted"


class Enrichment(NamedTuple):
    """How a record is enriched."""

    payloads: Payloads = "move"
    deletes: bool = False
    """Remove the capture file once it is merged."""


def enriched(
    record: bytes,
    line: bytes,
    identity: RowIdentity,
    key: str,
    captured: CaptureFile | None,
    latency_ms: float | None,
    payloads: Payloads = "move",
) -> bytes:
    """The record line with `ng_model_call_capture`, `ng_trajectory` and `ng_perf`, where there is anything for them.

    Args:
        line: the materialized row.
        key: the capture key of the attempt.
        captured: what model servers captured; None if capture is off.
    """
    fields: dict[str, Any] = json.loads(record)
    row = json.loads(line)
    observed, produced = fields.get(keys.AGENT_OBSERVATIONS), fields.get(keys.TRAJECTORY)
    capture: dict[str, Any] | None = None
    if captured is not None:
        capture = _capture(key, captured)
        if observed is not None:
            observed = _joined(fields, observed, capture, key)
    if capture is None and observed is None and produced is None:
        return record
    calls = capture["calls"] if capture is not None else []
    if payloads == "drop" or _is_redacted(observed):
        calls = without_payloads(calls)
    trajectory = _trajectory(fields, row, identity, key, produced, observed, calls, capture)
    if capture is not None:
        kept = calls if payloads == "keep" or trajectory is None else without_payloads(calls)
        gaps = capture.get("gaps", [])
        fields[keys.MODEL_CALL_CAPTURE] = capture_of(key, kept, gaps)
    if trajectory is not None:
        fields[keys.TRAJECTORY] = trajectory.model_dump(mode="json")
        perf = perf_of(trajectory, latency_ms) if captured is not None else None
        if perf is not None:
            fields[keys.PERF] = perf
    return encode(fields) + b"\n"


def _capture(key: str, captured: CaptureFile) -> dict[str, Any]:
    if captured.is_unreadable:
        return capture_of(key, [], [{"code": UNREADABLE}])
    return read_capture(key, captured.lines, is_incomplete=captured.is_incomplete)


def _joined(fields: dict[str, Any], observed: Any, capture: dict[str, Any], key: str) -> Any:
    try:
        bundle = join(Observations.model_validate(observed), capture["calls"], key)
    except (ValidationError, ValueError):
        capture.setdefault("gaps", []).append({"code": "agent_observation_join_failed"})
        return observed
    fields[keys.AGENT_OBSERVATIONS] = bundle.model_dump(mode="json")
    return fields[keys.AGENT_OBSERVATIONS]


def _trajectory(
    fields: dict[str, Any],
    row: dict[str, Any],
    identity: RowIdentity,
    key: str,
    produced: Any,
    observed: Any,
    calls: list[dict[str, Any]],
    capture: dict[str, Any] | None,
) -> Trajectory | None:
    """The trajectory; None, with a gap in its place, if what there is does not make one."""
    try:
        return build_trajectory(
            task_id=task_name(row, identity.task_index),
            rollout_id=key,
            produced=produced,
            observed=observed,
            calls=calls,
            capture_gaps=capture.get("gaps") if capture is not None else None,
            resolved=fields.get("resolved"),
        )
    except Exception as error:  # noqa: BLE001 - a record must not be lost for what is told beside it
        fields.pop(keys.TRAJECTORY, None)
        gap = {"code": "trajectory_projection_failed", "detail": type(error).__name__}
        if capture is not None:
            capture.setdefault("gaps", []).append(gap)
        elif isinstance(fields.get(keys.AGENT_OBSERVATIONS), dict):
            bundle = fields[keys.AGENT_OBSERVATIONS]
            bundle["gaps"] = [*bundle["gaps"], gap] if isinstance(bundle.get("gaps"), list) else [gap]
        return None


def _is_redacted(observed: Any) -> bool:
    gaps = observed.get("gaps") if isinstance(observed, dict) else None
    return isinstance(gaps, list) and any(isinstance(gap, dict) and gap.get("code") == _REDACTED for gap in gaps)

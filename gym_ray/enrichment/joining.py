"""Which captured call belongs to which invocation that an agent observed. Pure. Source: protocol §8.4 (join)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gym_ray.enrichment.capture import Call
from gym_ray.enrichment.schema import CallReference, Compaction, Gap, ModelReference, Observations

AMBIGUOUS = "model_call_reference_ambiguous"
UNMATCHED = "model_call_reference_unmatched"
CONFLICT = "model_call_reference_conflict"
UNOWNED = "model_call_ownership_unavailable"


class CallIndex:
    """Finds calls by reference."""

    def __init__(self, calls: Iterable[Mapping[str, Any]]) -> None:
        """`calls` have `model_call_id`, `model_ref` and `response_id`."""
        self._calls = list(calls)

    def matches(self, reference: CallReference) -> list[int]:
        """The positions of the calls that a reference may mean."""
        return [position for position, call in enumerate(self._calls) if _is_meant(reference, call)]


def join(observations: Observations, calls: list[Call], capture_id: str) -> Observations:
    """The bundle with references to calls resolved, and a gap for each that cannot be."""
    index = CallIndex(calls)
    owners: dict[int, str] = {}
    gaps: list[Gap] = list(observations.gaps)
    records = [record.model_copy(deep=True) for record in observations.records]
    for record in records:
        for reference in _references(record):
            gap = _own(index.matches(reference), record.invocation_id, owners)  # type: ignore[union-attr]
            if gap is not None:
                gaps.append(Gap(code=gap, invocation_id=record.invocation_id, detail=_named(reference)))  # type: ignore[union-attr]
    by_id = {record.invocation_id: record for record in records if record.kind == "agent_invocation"}
    for position, call in enumerate(calls):
        session = by_id.get(str(call.get("client_session_id")))
        if session is not None and position not in owners:
            owners[position] = session.invocation_id
            session.model_calls.append(reference_to(call))
        elif position not in owners:
            gaps.append(Gap(code=UNOWNED, detail=f"capture:{capture_id}:call_index={call['call_index']}"))
    return Observations(source=observations.source, records=records, gaps=unique_gaps(gaps))


def reference_to(call: Mapping[str, Any]) -> CallReference:
    """A reference to a captured call."""
    ref = call.get("model_ref")
    model = ModelReference.model_validate(ref) if isinstance(ref, Mapping) else None
    return CallReference(model_call_id=call.get("model_call_id"), model_ref=model, response_id=call.get("response_id"))


def unique_gaps(gaps: Iterable[Gap]) -> list[Gap]:
    """Each gap once, in order."""
    return list({(gap.code, gap.invocation_id, gap.detail): gap for gap in reversed(list(gaps))}.values())[::-1]


def _own(found: list[int], invocation: str, owners: dict[int, str]) -> str | None:
    """Note who owns a call; the code of the gap if that cannot be told. The first owner wins."""
    if not found:
        return UNMATCHED
    if len(found) > 1:
        return AMBIGUOUS
    owner = owners.setdefault(found[0], invocation)
    return None if owner == invocation else CONFLICT


def _references(record: Any) -> Iterator[CallReference]:
    if record.kind == "agent_invocation":
        yield from record.model_calls
    elif isinstance(record, Compaction):
        yield from record.model_calls
        yield from (each for each in (record.before_model_call, record.after_model_call) if each is not None)


def _is_meant(reference: CallReference, call: Mapping[str, Any]) -> bool:
    ref = reference.model_ref.model_dump() if reference.model_ref is not None else None
    agrees = (ref is None or call.get("model_ref") == ref) and (
        reference.response_id is None or call.get("response_id") == reference.response_id
    )
    if reference.model_call_id is not None:
        return agrees and call.get("model_call_id") == reference.model_call_id
    return agrees


def _named(reference: CallReference) -> str:
    if reference.model_call_id is not None:
        return f"model_call_id={reference.model_call_id}"
    name = reference.model_ref.name if reference.model_ref is not None else ""
    return f"{name}:{reference.response_id}"

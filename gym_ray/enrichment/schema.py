"""The shape of `ng_trajectory` and of what agents observe. Source: protocol §8.5.1, §8.5.2."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Milliseconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModelReference(_Strict):
    """A model server."""

    type: Literal["responses_api_models"]
    name: str


class CallReference(_Strict):
    """Names one model call: by its id, or by its server and response."""

    model_call_id: str | None = None
    model_ref: ModelReference | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model_call_id is None and (self.model_ref is None or self.response_id is None):
            raise ValueError("a reference needs model_call_id, or model_ref and response_id")
        return self


class Invocation(_Strict):
    """One run of an agent, or of a part of it."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: Milliseconds | None = None
    error_type: str | None = None
    model_calls: list[CallReference] = Field(default_factory=list)
    conversation: list[Any] = Field(default_factory=list)


class Turn(_Strict):
    """One question to a model and its answer."""

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: Annotated[int, Field(ge=1)]
    timestamp: float
    question: Any = None
    answer: Any = None
    reasoning_content: Any = None
    resolved: bool | None = None
    step_count: Count = 0
    model_calls: list[CallReference] = Field(default_factory=list)


class ResponseMetadata(_Strict):
    """What is known of the response of a model call."""

    response_id: str | None = None
    model_ref: ModelReference | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: float | None = None


class TokenStats(_Strict):
    """Token counts of a model call."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None
    cached_tokens: Count | None = None


class ModelCall(_Strict):
    """One call of a model."""

    model_call_id: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Milliseconds | None = None
    request: Any = None
    response: Any = None
    response_metadata: ResponseMetadata = Field(default_factory=ResponseMetadata)
    token_stats: TokenStats = Field(default_factory=TokenStats)


class ToolCall(_Strict):
    """One call of a tool."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: Milliseconds | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"] = "unknown"
    error_type: str | None = None
    output: Any = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.started_at is not None and self.completed_at is not None and self.completed_at < self.started_at:
            raise ValueError("a tool call completes after it starts")
        return self


class Gap(_Strict):
    """Something that is known to be missing."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


class Trajectory(_Strict):
    """`ng_trajectory`."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[Invocation] = Field(default_factory=list)
    turns: list[Turn] = Field(default_factory=list)
    model_calls: list[ModelCall] = Field(default_factory=list)
    tool_calls: list[ToolCall] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _unique("invocation ids", [each.invocation_id for each in self.invocations])
        _unique("model call ids", [each.model_call_id for each in self.model_calls if each.model_call_id is not None])
        _unique("turns", [(each.invocation_id, each.turn_no) for each in self.turns])
        return self


class Compaction(_Strict):
    """A context that an agent has made shorter."""

    kind: Literal["context_compaction"]
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: CallReference | None = None
    model_calls: list[CallReference] = Field(default_factory=list)
    after_model_call: CallReference | None = None


class Sandbox(_Strict):
    """A place where code of an agent ran."""

    kind: Literal["sandbox"]
    role: Literal["agent", "verifier", "environment"]
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: Literal["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"] = "unknown"
    exit_code: int | None = None
    wall_time_s: float | None = None
    cpu_time_s: float | None = None
    peak_memory_mib: float | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class ObservedInvocation(Invocation):
    """An invocation in a bundle."""

    kind: Literal["agent_invocation"]


class ObservedToolCall(ToolCall):
    """A tool call in a bundle."""

    kind: Literal["tool_call"]


Observed = Annotated[ObservedInvocation | ObservedToolCall | Compaction | Sandbox, Field(discriminator="kind")]


class Observations(_Strict):
    """`ng_agent_observations`."""

    source: str
    records: list[Observed] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Self:
        parents = {each.invocation_id: each.parent_invocation_id for each in self.invocations}
        _unique("invocation ids", [each.invocation_id for each in self.invocations])
        for start in parents:
            seen, at = set[str](), parents.get(start)
            while at is not None and at not in seen:
                if at == start:
                    raise ValueError(f"invocation {start!r} is its own ancestor")
                seen.add(at)
                at = parents.get(at)
        return self

    @property
    def invocations(self) -> list[ObservedInvocation]:
        return [record for record in self.records if isinstance(record, ObservedInvocation)]

    @property
    def tool_calls(self) -> list[ObservedToolCall]:
        return [record for record in self.records if isinstance(record, ObservedToolCall)]


def _unique(what: str, values: list[Any]) -> None:
    if len(values) != len(set(values)):
        raise ValueError(f"{what} are not unique")

"""What a user may set for one run. Field names and defaults are those of NeMo Gym's collection config; ours come last.

Source: protocol §5.1 (names, defaults), §5.11 (constraints).
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

RoutingMode = Literal["agent", "legacy", "taskset"]
Executor = Literal["ray", "local"]
RecordFormat = Literal["jsonl", "parquet", "both"]
MAX_ROLLOUT_ATTEMPTS = 255
OnStall = Literal["report", "cancel"]


class SkillsConfig(BaseModel):
    """Where a run's skills are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="A folder of skill folders, each with a SKILL.md.")


class RolloutCollectionConfig(BaseModel):
    """The settings of one run. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Where rows come from and records go
    input_jsonl_fpath: str | list[str] | None = Field(
        None, description="Input rows: a file, a URI, a glob, or several; .jsonl, .jsonl.gz, .jsonl.zst or .parquet."
    )
    input_glob: str | None = Field(
        None, description="For `aggregate`: globs of shard files, comma-separated, also of several runs."
    )
    output_jsonl_fpath: str | None = Field(
        None, description="Output path <dir>/<stem>.jsonl; every other file of the run is named after it."
    )
    fresh: bool = Field(False, description="Archive the files of an earlier run in the output folder, then start anew.")
    resume_from_cache: bool = Field(
        False, description="Continue the run in the output folder: run what has neither a result nor a final failure."
    )
    extend: bool = Field(
        False, description="With resume: add the repeats that num_repeats asks for beyond those of the run."
    )
    only: list[str] | None = Field(
        None,
        description="With resume: run only `missing`, `failed`, or `failed:CLASS` (a pattern), also final failures.",
    )
    dispatch_longest_first: bool = Field(
        False, description="With resume: start rollouts first that took longest before."
    )
    max_rollout_attempts: int | None = Field(
        None,
        ge=1,
        le=MAX_ROLLOUT_ATTEMPTS,
        description="Attempts of a rollout over all continuations; NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, 3.",
    )
    record_format: RecordFormat = Field(
        "jsonl", description="`jsonl`, `parquet` (sealed parts, JSONL only for the tail), or `both` in full."
    )
    part_bytes: int = Field(64 << 20, ge=1024, description="Bytes of records that make a Parquet part.")
    merge_shards: bool | None = Field(
        None, description="Write <stem>.jsonl, all results sorted, at the end; default: unless records are Parquet."
    )

    # Which deployment serves
    head: str | None = Field(None, description="HOST:PORT of the head server.")
    deployment: str | None = Field(None, description="A file with the merged config, for when no head server runs.")

    # What runs, how often, where
    limit: int | None = Field(None, ge=0, description="Use only the first N input lines; 0 means all.")
    task_ids: list[str] | None = Field(None, description="Run only the tasks with these ids, each once.")
    task_ids_fpath: str | None = Field(None, description="As task_ids, from a file with one id a line.")
    task_id: list[str] | None = Field(None, description="Run only tasks whose id matches one of these patterns.")
    exclude_task_id: list[str] | None = Field(
        None, description="Leave out tasks whose id matches one of these patterns."
    )
    sample: int | None = Field(None, ge=1, description="Run a random sample of so many of the tasks.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the sample: the same seed draws the same tasks.")
    prompt_config: str | None = Field(
        None, description="A YAML file with `user` and perhaps `system`, for rows without input."
    )
    skills: SkillsConfig | None = Field(None, description="Skills that the run uses; stamped on every flat row.")
    agent_name: str | None = Field(None, description="Run every row on this agent; short for agent_map._default.")
    agent_map: dict[str, str] | None = Field(
        None, description="Agent or task source -> agent; `_default` is the fallback."
    )
    fan_out: dict[str, list[str]] | None = Field(
        None, description="Agent or task source -> agents that all run the row."
    )
    num_repeats: int | dict[str, int] = Field(1, description="Rollouts of each task; a map may hold `_default`.")
    num_repeats_add_seed: bool = Field(
        False, description="Set a seed equal to the rollout index in metadata.extra_body."
    )
    interleave_repeats: bool = Field(False, description="Start rollout 0 of every task before rollout 1 of any.")
    interleave_by_agent: bool = Field(False, description="Start the rollouts of the agents in turn.")
    responses_create_params: dict[str, Any] = Field(
        default_factory=dict, description="Top-level overrides for the row's responses_create_params."
    )
    environment_routing_mode: RoutingMode = Field("agent", description="How a row finds its environment server.")
    environment_server_name: str | None = Field(None, description="The server of every row in legacy routing mode.")
    environment_server_routes: dict[str, str] = Field(
        default_factory=dict, description="Taskset -> environment server."
    )
    allow_unsupported_pairing: bool = Field(
        False, description="Run agents on tasks whose allowed_agents leave them out."
    )

    # How much at once, for how long
    num_samples_in_parallel: int | None = Field(
        None, gt=0, description="The cap: rollouts in flight over the whole run."
    )
    max_in_flight_per_server: PositiveInt | dict[str, PositiveInt] | None = Field(
        None, description="Most rollouts in flight at one environment server; a map may hold `_default`."
    )
    server_patience_s: float = Field(
        60.0, ge=0, description="Hold rollouts back so long for a server that is gone; then they fail unsent."
    )
    stall_factor: float = Field(
        5.0, gt=1, description="Name what a run waits for after so many 99th percentiles without an end."
    )
    on_stall: OnStall = Field(
        "report", description="`cancel` also cancels what is in flight in a stall and leaves it to a resume."
    )
    dispatch_budget_s: float | None = Field(
        None, ge=0, description="Start rollouts only in the first so many seconds; 0 starts none."
    )
    drain_margin_s: float | None = Field(
        None, ge=0, description="Start none in the last seconds of the budget; default: learned from durations."
    )
    deadline: str | None = Field(
        None, description="Start rollouts only until then: an ISO time, or `slurm` for the end of the Slurm job."
    )
    grace_s: float = Field(30.0, ge=0, description="How long a terminated run may drain before it is cancelled.")
    token_budget: int | None = Field(None, ge=0, description="Start none once replies have reported so many tokens.")
    rollout_timeout_s: float | None = Field(None, gt=0, description="Wall-clock limit of one rollout; off by default.")
    retry_requests: bool = Field(True, description="Replay a request that may already have reached its server.")
    retry_budget_s: float | None = Field(None, gt=0, description="Most seconds that one rollout spends on retries.")

    # What follows the last rollout
    require_complete: bool = Field(False, description="Compute no score while rollouts are unfinished.")
    min_coverage: float | None = Field(
        None, gt=0, le=1, description="Share of results from which on an incomplete run ends with exit code 0."
    )
    count_failure_classes_as_zero: list[str] = Field(
        default_factory=list, description="Failure classes whose rollouts count with a reward of 0."
    )
    count_missing_rollouts_as_zero: bool = Field(
        False, description="Count rollouts without any record with a reward of 0."
    )
    disable_health_check: bool = Field(
        False, description="Do not look at the results once more for what seems wrong with them."
    )
    disable_aggregation: bool = Field(False, description="Do not call /aggregate_metrics at the end.")
    aggregate_timeout_s: float = Field(600.0, gt=0, description="Time limit of each /aggregate_metrics request.")

    # Where it runs
    executor: Executor = Field("ray", description="`ray`, or `local` to dispatch in this process without Ray.")
    shards: int = Field(2, ge=1, le=1024, description="Shard actors, and the number of record files of each kind.")
    ray_address: str | None = Field(None, description="Ray cluster to join; default: RAY_ADDRESS, else a local one.")

    @field_validator("task_ids", "task_id", "exclude_task_id", mode="before")
    @classmethod
    def _ids_are_text(cls, ids: Any) -> Any:
        """An id like 17 is read as a number from a command line or a YAML file, but rows compare it as text."""
        if not isinstance(ids, list):
            return ids
        return [
            str(each).lower() if isinstance(each, bool) else str(each) if isinstance(each, int) else each
            for each in ids
        ]

    @field_validator("only")
    @classmethod
    def _only_what_there_is(cls, only: list[str] | None) -> list[str] | None:
        for each in only or ():
            if each not in ("missing", "failed") and not (each.startswith("failed:") and each != "failed:"):
                raise ValueError(f"only: expected missing, failed or failed:CLASS, found {each!r}")
        return only

    @field_validator("num_repeats", mode="before")
    @classmethod
    def _no_repeats_are_one(cls, repeats: Any) -> Any:
        return 1 if repeats is None else repeats

    @model_validator(mode="after")
    def _check(self) -> Self:
        repeats = self.num_repeats if isinstance(self.num_repeats, dict) else {"num_repeats": self.num_repeats}
        if low := sorted(key for key, count in repeats.items() if count < 1):
            raise ValueError(f"num_repeats must be at least 1, but is lower for: {', '.join(low)}")
        if self.task_ids is not None and self.task_ids_fpath is not None:
            raise ValueError("task_ids and task_ids_fpath both name the tasks: keep one of them")
        if self.agent_name is not None and (self.agent_map or {}).get("_default", self.agent_name) != self.agent_name:
            raise ValueError("agent_name and agent_map._default name different agents: keep one of them")
        for basis, agents in (self.fan_out or {}).items():
            if not agents or len(set(agents)) != len(agents):
                raise ValueError(f"fan_out.{basis} must list at least one agent, each once")
        if self.environment_routing_mode == "legacy" and not self.environment_server_name:
            raise ValueError("environment_routing_mode=legacy needs environment_server_name")
        if self.environment_routing_mode == "taskset" and not self.environment_server_routes:
            raise ValueError("environment_routing_mode=taskset needs environment_server_routes")
        if self.fresh and self.resume_from_cache:
            raise ValueError("fresh and resume_from_cache exclude each other: keep one of them")
        if self.extend and not self.resume_from_cache:
            raise ValueError("extend adds to a run that is continued: add resume_from_cache, or use `gym-ray extend`")
        if self.only is not None and not self.resume_from_cache:
            raise ValueError("only selects from a run that is continued: add resume_from_cache (--resume)")
        if self.dispatch_budget_s is not None and self.num_samples_in_parallel is None:
            raise ValueError("dispatch_budget_s needs num_samples_in_parallel: without a cap of its own nothing waits")
        return self

    @property
    def merges(self) -> bool:
        """Whether all results are written into one file."""
        return self.record_format != "parquet" if self.merge_shards is None else self.merge_shards

    @property
    def cap(self) -> int:
        """Rollouts in flight over the whole run."""
        return self.num_samples_in_parallel or DEFAULT_CAP


SHAPING_SETTINGS = (
    "limit",
    "task_ids",
    "task_ids_fpath",
    "task_id",
    "exclude_task_id",
    "sample",
    "seed",
    "prompt_config",
    "skills",
    "agent_name",
    "agent_map",
    "fan_out",
    "num_repeats",
    "num_repeats_add_seed",
    "interleave_repeats",
    "interleave_by_agent",
    "responses_create_params",
    "environment_routing_mode",
    "environment_server_name",
    "environment_server_routes",
)
"""The settings that decide which rollouts a plan has and what they hold."""

DEFAULT_CAP = 256
"""Enough to keep an inference server busy, low enough to be kind to one that nobody sized; printed when it is used."""

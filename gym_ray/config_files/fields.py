"""The settings that exist, and what a text means for one of them. Pure."""

from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from gym_ray.config import RolloutCollectionConfig

FIELDS: Final = RolloutCollectionConfig.model_fields

FLAGS: Final = {
    "agent_name": "--agent",
    "input_jsonl_fpath": "--input",
    "num_samples_in_parallel": "--concurrency",
    "output_jsonl_fpath": "--output",
    "ray_address": "--address",
    "record_format": "--format",
    "resume_from_cache": "--resume",
} | {
    field: "--" + field.replace("_", "-")
    for field in (
        "deployment", "disable_aggregation", "exclude_task_id", "executor", "fresh", "head", "interleave_repeats",
        "limit", "min_coverage", "num_repeats", "only", "prompt_config", "sample", "seed", "shards", "task_id",
    )
}  # fmt: skip
"""The flags of the command line; every other setting is typed as an override."""


def flag_of(field: str) -> str:
    """How a field is set on the command line: by its flag, else as `+field=<value>`."""
    return FLAGS.get(field, f"+{field}=<value>")


def value_for(field: str, value: Any, raw: str) -> Any:
    """A value that was read from text, as its field wants it: text that looks like a number stays text where only text
    will do, and one value stands for a list of one.
    """
    kinds = _kinds(FIELDS[field].annotation)
    if isinstance(value, bool | int | float) and str in kinds and type(value) not in kinds:
        return raw.strip()
    if value is not None and list in kinds and str not in kinds and not isinstance(value, list | dict):
        return [raw.strip() if isinstance(value, bool | int | float) else value]
    return value


def _kinds(annotation: Any) -> set[Any]:
    """The plain types that an annotation allows."""
    if get_origin(annotation) in {UnionType, Union}:
        return {kind for each in get_args(annotation) for kind in _kinds(each)}
    return {get_origin(annotation) or annotation}

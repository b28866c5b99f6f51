"""`gym-ray plan`: what a run would do; sends nothing and writes nothing."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from gym_ray.cli.options import (
    Agent,
    Concurrency,
    ConfigFiles,
    DeploymentFile,
    ExcludeTaskIds,
    Head,
    Input,
    InterleaveRepeats,
    JsonOutput,
    Limit,
    NumRepeats,
    Output,
    Overrides,
    PromptConfig,
    Sample,
    Seed,
    Shards,
    TaskIds,
)

if TYPE_CHECKING:
    from gym_ray.config import RolloutCollectionConfig
    from gym_ray.preview import RunPreview


def plan(
    overrides: Overrides = None,
    input_: Input = None,
    output: Output = None,
    head: Head = None,
    deployment: DeploymentFile = None,
    config: ConfigFiles = None,
    agent: Agent = None,
    shards: Shards = None,
    concurrency: Concurrency = None,
    num_repeats: NumRepeats = None,
    limit: Limit = None,
    interleave_repeats: InterleaveRepeats = None,
    task_id: TaskIds = None,
    exclude_task_id: ExcludeTaskIds = None,
    sample: Sample = None,
    seed: Seed = None,
    prompt_config: PromptConfig = None,
    json_output: JsonOutput = False,
) -> None:
    """Show what would run: counts by server, agent and shard, the cap, the first bodies. Sends no rollout.

    Exit code 2, with every problem, when the plan is not valid.
    """
    from gym_ray.cli.settings import load_settings  # noqa: PLC0415 - `--help` shall not pay for it

    flags = {
        "input_jsonl_fpath": input_ or None,
        "output_jsonl_fpath": output,
        "head": head,
        "deployment": deployment,
        "agent_name": agent,
        "shards": shards,
        "num_samples_in_parallel": concurrency,
        "num_repeats": num_repeats,
        "limit": limit,
        "interleave_repeats": interleave_repeats,
        "task_id": task_id or None,
        "exclude_task_id": exclude_task_id or None,
        "sample": sample,
        "seed": seed,
        "prompt_config": prompt_config,
    }
    typer.echo(plan_text(load_settings(config or [], overrides or [], flags), json_output=json_output), nl=False)


def plan_text(settings: "RolloutCollectionConfig", *, json_output: bool) -> str:
    """The preview of a run, for a person or as JSON."""
    from gym_ray.preview import preview  # noqa: PLC0415

    shown = preview(settings)
    return (json.dumps(shown.to_dict(), indent=2) if json_output else "\n".join(_lines(shown))) + "\n"


def _lines(shown: "RunPreview") -> Iterator[str]:
    from gym_ray.observe.printable import printable  # noqa: PLC0415

    summary = shown.plan
    yield f"{summary.rollouts} rollouts of {summary.tasks} tasks from {summary.rows} rows"
    yield f"deployment: {printable(shown.deployment)}"
    yield f"about {summary.body_bytes / 1e3:,.0f} kB of requests; cap {shown.cap} in flight"
    for title, counts in (("server", summary.rollouts_by_server), ("agent", summary.rollouts_by_agent)):
        for name, count in counts.items():
            yield f"  {title} {printable(name)}: {count} rollouts"
    for number, (count, cap) in enumerate(zip(summary.rollouts_by_shard, shown.cap_by_shard, strict=True)):
        yield f"  shard {number}: {count} rollouts, {cap} in flight"
    for warning in summary.warnings:
        yield f"warning: {printable(warning, 2000)}"
    for server, body in shown.first_bodies.items():
        yield f"first body for {printable(server)}:"
        yield json.dumps(body, indent=2)  # escapes whatever is not ASCII
    yield "nothing was sent"

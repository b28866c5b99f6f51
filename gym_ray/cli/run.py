"""`gym-ray run`: the main job, from rows to records, metrics and a summary."""

import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gym_ray.cli.options import (
    CAPACITY,
    EXAMPLE,
    ROWS,
    Address,
    Agent,
    Concurrency,
    ConfigFiles,
    DeploymentFile,
    Display,
    ExcludeTaskIds,
    Executor,
    Fail,
    Head,
    Input,
    InterleaveRepeats,
    JsonOutput,
    Latency,
    Limit,
    NumRepeats,
    Output,
    Overrides,
    PromptConfig,
    Sample,
    Seed,
    Shards,
    Tail,
    TaskIds,
    Verbose,
)
from gym_ray.cli.plan import plan_text
from gym_ray.cli.verbosity import set_verbosity


def run(
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
    task_id: TaskIds = None,
    exclude_task_id: ExcludeTaskIds = None,
    sample: Sample = None,
    seed: Seed = None,
    prompt_config: PromptConfig = None,
    interleave_repeats: InterleaveRepeats = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, as `gym-ray plan` does.", rich_help_panel=ROWS)
    ] = False,
    disable_aggregation: Annotated[
        bool | None,
        typer.Option("--disable-aggregation", help="Do not call /aggregate_metrics at the end.", rich_help_panel=ROWS),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume", help="Continue the run in the output folder.", rich_help_panel=ROWS),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="missing|failed|failed:CLASS",
            help="With --resume: run only these, also failures that are final; repeatable.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    min_coverage: Annotated[
        float | None,
        typer.Option(help="Share of results that is enough for exit code 0, such as 0.98.", rich_help_panel=ROWS),
    ] = None,
    record_format: Annotated[
        Literal["jsonl", "parquet", "both"] | None,
        typer.Option("--format", help="What records are written as (default jsonl).", rich_help_panel=ROWS),
    ] = None,
    fresh: Annotated[
        bool | None,
        typer.Option("--fresh", help="Move an earlier run in the output folder aside.", rich_help_panel=ROWS),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Go on without this terminal; see `gym-ray attach`.", rich_help_panel=CAPACITY),
    ] = False,
    executor: Executor = None,
    address: Address = None,
    display: Display = "auto",
    example: Annotated[
        bool,
        typer.Option(
            "--example", help="Start it for this run; without --input, run its rows.", rich_help_panel=EXAMPLE
        ),
    ] = False,
    latency: Latency = "0",
    tail: Tail = "0",
    fail: Fail = "",
    json_output: JsonOutput = False,
    verbose: Verbose = False,
) -> None:
    """Run rollouts: plan, dispatch, record, merge, aggregate."""
    from gym_ray.cli.job import run_job  # noqa: PLC0415 - `--help` shall not pay for what only a run needs
    from gym_ray.cli.output import results_stream  # noqa: PLC0415
    from gym_ray.cli.settings import load_settings  # noqa: PLC0415

    set_verbosity(verbose)
    flags: dict[str, Any] = {
        "input_jsonl_fpath": input_ or None,
        "output_jsonl_fpath": output,
        "head": head,
        "deployment": deployment,
        "agent_name": agent,
        "shards": shards,
        "num_samples_in_parallel": concurrency,
        "num_repeats": num_repeats,
        "limit": limit,
        "task_id": task_id or None,
        "exclude_task_id": exclude_task_id or None,
        "sample": sample,
        "seed": seed,
        "prompt_config": prompt_config,
        "interleave_repeats": interleave_repeats,
        "disable_aggregation": disable_aggregation,
        "resume_from_cache": resume,
        "only": only or None,
        "record_format": record_format,
        "min_coverage": min_coverage,
        "fresh": fresh,
        "executor": executor,
        "ray_address": address,
    }
    with ExitStack() as stack:
        out = stack.enter_context(results_stream())
        defaults: dict[str, Any] = {}
        if example:
            flags["head"], defaults = _example(stack, flags, latency, tail, fail, starts=not detach)
        elif (latency, tail, fail) != ("0", "0", ""):
            raise typer.BadParameter(
                "the bundled deployment has them: add --example", param_hint="--latency, --tail, --fail"
            )
        settings = load_settings(config, overrides, flags, defaults)
        if settings.input_jsonl_fpath is None:
            raise typer.BadParameter("name the rows to run, or use --example", param_hint="--input")
        if dry_run:
            out.write(plan_text(settings, json_output=json_output))
            return
        if settings.output_jsonl_fpath is None:
            raise typer.BadParameter("name where records go, such as out/rollouts.jsonl", param_hint="--output")
        if detach:
            from gym_ray.cli.detach import run_detached  # noqa: PLC0415

            arguments = [each for each in sys.argv[1:] if each != "--detach"]
            if output is None:
                arguments += ["--output", settings.output_jsonl_fpath]
            code = run_detached(arguments, settings.output_jsonl_fpath)
        else:
            code = run_job(settings, display, out, json_output=json_output, is_example=example)
    raise typer.Exit(code)


def _example(
    stack: ExitStack, flags: dict[str, Any], latency: str, tail: str, fail: str, *, starts: bool
) -> tuple[str | None, dict[str, Any]]:
    """Start the bundled deployment for the time of `stack`; its head, and settings for what nobody chose."""
    if flags["head"] is not None or flags["deployment"] is not None:
        raise typer.BadParameter(
            "it is a deployment of its own: leave out --head and --deployment", param_hint="--example"
        )
    from gym_ray.example import ROW_FILES, example_in_thread, example_rows, profile_of_texts  # noqa: PLC0415

    profile = profile_of_texts(latency, tail, fail)
    head = stack.enter_context(example_in_thread(profile)).head_address if starts else None
    folder = Path("gym-ray-example") / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    return head, {
        "input_jsonl_fpath": [str(example_rows(name)) for name in ROW_FILES],
        "output_jsonl_fpath": str(folder / "rollouts.jsonl"),
    }

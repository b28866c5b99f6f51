"""`gym-ray extend`: more repeats of every task of a run, beside those that it has."""

from typing import Annotated

import typer

from gym_ray.cli.options import (
    ROWS,
    Address,
    Agent,
    Concurrency,
    ConfigFiles,
    DeploymentFile,
    Display,
    Executor,
    Head,
    Input,
    JsonOutput,
    Output,
    Overrides,
    Shards,
    Verbose,
)
from gym_ray.cli.verbosity import set_verbosity


def extend(
    num_repeats: Annotated[
        int, typer.Option(help="Rollouts of each task that the run has afterwards.", rich_help_panel=ROWS)
    ],
    overrides: Overrides = None,
    input_: Input = None,
    output: Output = None,
    head: Head = None,
    deployment: DeploymentFile = None,
    config: ConfigFiles = None,
    agent: Agent = None,
    shards: Shards = None,
    concurrency: Concurrency = None,
    executor: Executor = None,
    address: Address = None,
    display: Display = "auto",
    json_output: JsonOutput = False,
    verbose: Verbose = False,
) -> None:
    """Add repeats to a run, with the settings that it was made with unless given anew; every earlier record stands."""
    from gym_ray.cli.job import run_job  # noqa: PLC0415 - `--help` shall not pay for what only a run needs
    from gym_ray.cli.output import results_stream  # noqa: PLC0415
    from gym_ray.cli.settings import kept_settings, load_settings  # noqa: PLC0415

    set_verbosity(verbose)
    flags = {
        "input_jsonl_fpath": input_ or None,
        "output_jsonl_fpath": output,
        "head": head,
        "deployment": deployment,
        "agent_name": agent,
        "shards": shards,
        "num_samples_in_parallel": concurrency,
        "num_repeats": num_repeats,
        "executor": executor,
        "ray_address": address,
        "resume_from_cache": True,
        "extend": True,
    }
    with results_stream() as out:
        kept = kept_settings(output) if output is not None and not input_ else []
        settings = load_settings(config or kept, overrides, flags)
        if settings.output_jsonl_fpath is None:
            raise typer.BadParameter("name the output path that the run was given", param_hint="--output")
        code = run_job(settings, display, out, json_output=json_output, is_example=False)
    raise typer.Exit(code)

"""`gym-ray aggregate`: have the servers aggregate the records of a run again; sends no rollout."""

import json
from typing import Annotated

import typer

from gym_ray import keys
from gym_ray.cli.options import ConfigFiles, DeploymentFile, Head, JsonOutput, Overrides, Verbose
from gym_ray.cli.output import results_stream
from gym_ray.cli.verbosity import set_verbosity


def aggregate(
    overrides: Overrides = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="The output path that the run was given.")
    ] = None,
    input_glob: Annotated[
        str | None,
        typer.Option("--input-glob", "-i", help="Shard files instead, comma-separated globs, also of several runs."),
    ] = None,
    head: Head = None,
    deployment: DeploymentFile = None,
    config: ConfigFiles = None,
    json_output: JsonOutput = False,
    verbose: Verbose = False,
) -> None:
    """Aggregate the records of a run again, without a single rollout. Exit code 4 when a server does not answer."""
    from gym_ray import event_loop  # noqa: PLC0415
    from gym_ray.aggregating import aggregate_run  # noqa: PLC0415 - `--help` shall not pay for it
    from gym_ray.cli.settings import load_settings  # noqa: PLC0415
    from gym_ray.observe.report import AGGREGATION_FAILED, COMPLETE, metric_lines  # noqa: PLC0415

    set_verbosity(verbose)
    flags = {"output_jsonl_fpath": output, "input_glob": input_glob, "head": head, "deployment": deployment}
    settings = load_settings(config, overrides, flags)
    with results_stream() as out:
        entries = event_loop.run(aggregate_run(settings, raise_on_error=False))
        if json_output:
            out.write(json.dumps(entries, indent=2) + "\n")
        else:
            out.writelines(f"{line}\n" for entry in entries for line in metric_lines(entry))
    failed = any(keys.AGGREGATION_ERROR in entry for entry in entries)
    raise typer.Exit(AGGREGATION_FAILED if failed else COMPLETE)

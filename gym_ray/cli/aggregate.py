"""`gym-ray aggregate`: have the servers aggregate the records of a run again; sends no rollout."""

import json
from typing import Annotated

import typer

from gym_ray import keys
from gym_ray.cli.options import ConfigFiles, DeploymentFile, Head, JsonOutput, Verbose
from gym_ray.cli.output import results_stream
from gym_ray.cli.verbosity import set_verbosity


def aggregate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [KEY=VALUE]...",
            help="The folder of a run or its output path; then any other setting, as key=value.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="The output path of the run, or of merged shards."),
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
    """Aggregate the records of a run again, without a single rollout and with the settings that it was made with.

    Exit code 4 when a server does not answer.
    """
    from gym_ray import event_loop  # noqa: PLC0415
    from gym_ray.aggregating import aggregate_run  # noqa: PLC0415 - `--help` shall not pay for it
    from gym_ray.cli.settings import kept_settings, load_settings  # noqa: PLC0415
    from gym_ray.observe.report import AGGREGATION_FAILED, COMPLETE, metric_lines  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    set_verbosity(verbose)
    run, overrides = _split(arguments or [])
    if run is not None:
        if output is not None or input_glob is not None:
            raise typer.BadParameter("name the run once: as RUN, with --output, or shard files with --input-glob")
        output = str(run_at(run).merged)
    flags = {"output_jsonl_fpath": output, "input_glob": input_glob, "head": head, "deployment": deployment}
    kept = kept_settings(output) if output is not None and input_glob is None else []
    settings = load_settings(config or kept, overrides, flags)
    with results_stream() as out:
        entries = event_loop.run(aggregate_run(settings, raise_on_error=False))
        if json_output:
            out.write(json.dumps(entries, indent=2) + "\n")
        else:
            out.writelines(f"{line}\n" for entry in entries for line in metric_lines(entry))
    failed = any(keys.AGGREGATION_ERROR in entry for entry in entries)
    raise typer.Exit(AGGREGATION_FAILED if failed else COMPLETE)


def _split(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The run, if one is named, and the settings: those have an equals sign."""
    runs = [argument for argument in arguments if "=" not in argument]
    if len(runs) > 1:
        raise typer.BadParameter(f"found {len(runs)} runs ({', '.join(map(repr, runs))}): one at a time")
    return (runs[0] if runs else None), [argument for argument in arguments if "=" in argument]

"""`gym-ray status`, `verify` and `recover`: what can be said and done about a run from its folder alone."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym_ray.cli.options import JsonOutput, Verbose
from gym_ray.cli.verbosity import set_verbosity

if TYPE_CHECKING:
    from gym_ray.recording.standing import RunStanding

COMPLETE, UNSOUND, INCOMPLETE = 0, 1, 3
WATCH_EVERY_S = 2.0

RunPath = Annotated[
    str, typer.Argument(metavar="RUN", help="The folder of a run, or the output path that the run was given.")
]


def status(
    run: RunPath,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until the run ends.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """How a run stands: running, finished or dead. Exit code 0 complete, 3 not (yet) complete."""
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415 - `--help` shall not pay for it
    from gym_ray.recording.standing import Standing, standing_of  # noqa: PLC0415

    paths = run_at(run)
    while True:
        shown = standing_of(paths)
        text = json.dumps(shown.to_dict()) if json_output else "\n".join(status_lines(shown))
        typer.echo(text)
        if not watch or shown.standing is not Standing.RUNNING:
            break
        time.sleep(WATCH_EVERY_S)
    raise typer.Exit(COMPLETE if shown.standing is Standing.COMPLETE else INCOMPLETE)


def verify(run: RunPath, json_output: JsonOutput = False, verbose: Verbose = False) -> None:
    """Check every file of a run against its manifest and the equation. Exit code 1 if it is not sound."""
    from gym_ray.observe.printable import printable  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415
    from gym_ray.recording.verification import verify_run  # noqa: PLC0415

    set_verbosity(verbose)
    checked = verify_run(run_at(run))
    typer.echo(json.dumps(checked.to_dict()) if json_output else "\n".join(printable(x, 2000) for x in checked.lines()))
    if not checked.is_sound:
        raise typer.Exit(UNSOUND)
    raise typer.Exit(COMPLETE if checked.is_complete else INCOMPLETE)


def report(
    run: RunPath,
    text: Annotated[bool, typer.Option("--text", help="As text, which is the default.")] = True,
    json_output: JsonOutput = False,
) -> None:
    """The whole story of a run from its folder: sums, scores, failures by kind, slow rollouts, what looks odd."""
    from gym_ray.folder_report import report_folder  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    told = report_folder(run_at(run))
    typer.echo(json.dumps(told.to_dict()) if json_output or not text else "\n".join(told.lines()))


def export(
    run: RunPath,
    to: Annotated[str, typer.Option("--to", "-o", metavar="FILE", help="A .jsonl, .parquet or .csv file.")],
    failures: Annotated[
        bool, typer.Option("--failures", help="Also the failures of rollouts that have no result.")
    ] = False,
) -> None:
    """Write all records of a run into one file, sorted by task and rollout, one for each rollout."""
    from gym_ray.exporting import export_run  # noqa: PLC0415 - pyarrow is for those who need it
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    count = export_run(run_at(run), Path(to).expanduser(), with_failures=failures)
    typer.echo(f"{count} records")


def merge(run: RunPath) -> None:
    """Write `STEM.jsonl` again: all results of a run, sorted by task and rollout."""
    from gym_ray.exporting import export_run  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    paths = run_at(run)
    typer.echo(f"{export_run(paths, paths.merged)} records in {paths.merged.name}")


def recover(run: RunPath, json_output: JsonOutput = False, verbose: Verbose = False) -> None:
    """Put right what a crash left: cut tails, damaged lines, temporary files. Then `run --resume` goes on."""
    from gym_ray.observe.printable import printable  # noqa: PLC0415
    from gym_ray.recording.recovery import recover_run  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415
    from gym_ray.recording.verification import verify_run  # noqa: PLC0415

    set_verbosity(verbose)
    paths = run_at(run)
    done = recover_run(paths)
    checked = verify_run(paths)
    if json_output:
        typer.echo(json.dumps({"recovered": [str(each) for each in done], **checked.to_dict()}))
    else:
        for each in done:
            typer.echo(printable(str(each), 2000))
        typer.echo("\n".join(printable(line, 2000) for line in checked.lines()))
    raise typer.Exit(COMPLETE if checked.is_sound else UNSOUND)


def status_lines(shown: "RunStanding") -> Iterator[str]:
    """A standing for a person."""
    from gym_ray.observe.printable import printable  # noqa: PLC0415

    said = shown.status
    when = f", as of {said.updated_at}" if said is not None and said.updated_at else ""
    run_id = f" {said.run_id}" if said is not None and said.run_id else ""
    yield f"run{run_id} {shown.standing}{when}: {printable(str(shown.paths.directory / shown.paths.stem), 1000)}"
    yield f"  {shown.equation}"
    for name, count in said.failures_by_kind.items() if said is not None else ():
        yield f"  failed: {count} {printable(name)}"
    if shown.holder is not None:
        yield f"  {printable(shown.holder)}"
    if str(shown.standing) in ("interrupted", "incomplete", "failed"):
        yield "  the same command with --resume goes on"

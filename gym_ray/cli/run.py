"""`gym-ray run`: the main job, from rows to records, metrics and a summary."""

import asyncio
import json
import signal
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gym_ray.cli.options import (
    Agent,
    Concurrency,
    ConfigFiles,
    DeploymentFile,
    ExcludeTaskIds,
    Fail,
    Head,
    Input,
    InterleaveRepeats,
    JsonOutput,
    Latency,
    Limit,
    NumRepeats,
    Overrides,
    Sample,
    Seed,
    Shards,
    Tail,
    TaskIds,
    Verbose,
)
from gym_ray.cli.plan import plan_text
from gym_ray.cli.verbosity import set_verbosity

if TYPE_CHECKING:
    from rich.console import Console

    from gym_ray.cli.progress import Show
    from gym_ray.config import RolloutCollectionConfig
    from gym_ray.observe.report import RunReport

INTERRUPTED, TERMINATED = 130, 143


def run(
    overrides: Overrides = None,
    input_: Input = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Output path DIR/STEM.jsonl; all files are named after it.")
    ] = None,
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, as `gym-ray plan` does; send nothing.")
    ] = False,
    disable_aggregation: Annotated[
        bool | None, typer.Option("--disable-aggregation", help="Do not call /aggregate_metrics at the end.")
    ] = None,
    fresh: Annotated[
        bool | None, typer.Option("--fresh", help="Move an earlier run in the output folder aside.")
    ] = None,
    executor: Annotated[Literal["ray", "local"] | None, typer.Option(help="[default: ray]")] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join. [default: RAY_ADDRESS, else a local one]")
    ] = None,
    display: Annotated[
        Literal["auto", "rich", "plain", "json", "none"], typer.Option(help="How progress is shown on stderr.")
    ] = "auto",
    example: Annotated[
        bool, typer.Option("--example", help="Start the bundled deployment; without --input also run its rows.")
    ] = False,
    latency: Latency = "0",
    tail: Tail = "0",
    fail: Fail = "",
    json_output: JsonOutput = False,
    verbose: Verbose = False,
) -> None:
    """Run rollouts: plan, dispatch, record, merge, aggregate.

    Exit codes: 0 complete; 1 a fault; 2 wrong settings or input, nothing was sent; 3 incomplete, the rest can be run
    again; 4 complete, but a server did not aggregate; 130 or 143 interrupted.
    """
    from gym_ray.cli.output import results_stream  # noqa: PLC0415 - `--help` shall not pay for what only a run needs
    from gym_ray.cli.progress import Display, progress_display  # noqa: PLC0415
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
        "interleave_repeats": interleave_repeats,
        "task_id": task_id or None,
        "exclude_task_id": exclude_task_id or None,
        "sample": sample,
        "seed": seed,
        "disable_aggregation": disable_aggregation,
        "fresh": fresh,
        "executor": executor,
        "ray_address": address,
    }
    with ExitStack() as stack:
        out = stack.enter_context(results_stream())
        console = _stderr()
        if example:
            flags |= _example(stack, console, flags, latency, tail, fail)
        settings = load_settings(config or [], overrides or [], flags)
        if dry_run:
            out.write(plan_text(settings, json_output=json_output))
            return
        if settings.output_jsonl_fpath is None:
            raise typer.BadParameter("name where records go, such as out/rollouts.jsonl", param_hint="--output")
        try:
            with progress_display(Display(display), console) as show:
                report = asyncio.run(_collect(settings, show))
        except KeyboardInterrupt:
            report = INTERRUPTED
        if isinstance(report, int):
            folder = Path(settings.output_jsonl_fpath).parent
            console.print(f"gym-ray: stopped; every record so far is in {folder}", markup=False, soft_wrap=True)
            raise typer.Exit(report)
        out.write(json.dumps(report.to_dict()) + "\n" if json_output else "".join(f"{x}\n" for x in report.lines()))
    raise typer.Exit(report.exit_code)


async def _collect(settings: "RolloutCollectionConfig", show: "Show") -> "RunReport | int":
    """The report, or an exit code if a SIGTERM ended the run."""
    from gym_ray.api import RolloutRunner  # noqa: PLC0415

    async def work() -> "RunReport":
        async with RolloutRunner(settings) as runner:
            return await runner.collect(on_progress=show)

    running = asyncio.ensure_future(work())
    terminated = asyncio.Event()

    def terminate() -> None:
        terminated.set()
        running.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await running
    except asyncio.CancelledError:
        if terminated.is_set():
            return TERMINATED
        running.cancel()
        raise


def _example(
    stack: ExitStack, console: "Console", flags: dict[str, Any], latency: str, tail: str, fail: str
) -> dict[str, Any]:
    """Start the bundled deployment for the time of `stack`; the settings that follow from it."""
    from gym_ray.example import ROW_FILES, example_in_thread, example_rows, profile_of_texts  # noqa: PLC0415

    served = stack.enter_context(example_in_thread(profile_of_texts(latency, tail, fail)))
    settings: dict[str, Any] = {"head": served.head_address}
    if flags["input_jsonl_fpath"] is None:
        settings["input_jsonl_fpath"] = [str(example_rows(name)) for name in ROW_FILES]
    if flags["output_jsonl_fpath"] is None:
        folder = Path("gym-ray-example") / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        settings["output_jsonl_fpath"] = str(folder / "rollouts.jsonl")
        console.print(f"gym-ray: records go to {folder}", soft_wrap=True, markup=False)
    return settings


def _stderr() -> "Console":
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, highlight=False)

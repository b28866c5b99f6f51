"""The main job with everything that a person sees of it: announcement, progress, report, exit code."""

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from rich.console import Console

from gym_ray import event_loop
from gym_ray.api import RolloutRunner
from gym_ray.cli.interruption import Interruption, exit_code
from gym_ray.cli.output import tell
from gym_ray.cli.progress import Display, Show, progress_display
from gym_ray.config import RolloutCollectionConfig
from gym_ray.observe.report import RunReport
from gym_ray.observe.tally import Progress


def run_job(
    settings: RolloutCollectionConfig, display: str, out: TextIO, *, json_output: bool, is_example: bool
) -> int:
    """Run it, write the report, and return the exit code; `is_example` if the bundled deployment ends with it."""
    ended, received = _collect(settings, display)
    if isinstance(ended, signal.Signals):
        tell(f"stopped; every record so far is in {Path(settings.output_jsonl_fpath or '').parent}; --resume goes on")
        return exit_code(ended)
    if is_example and ended.resume_command is not None:
        ended = replace(ended, resume_command=f"{ended.resume_command} --example")
    lines = [json.dumps(ended.to_dict())] if json_output else ended.lines()
    out.writelines(f"{line}\n" for line in lines)
    is_cut = received in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) and not ended.is_complete
    return exit_code(received) if is_cut and received is not None else ended.exit_code


def _collect(
    settings: RolloutCollectionConfig, display: str
) -> tuple[RunReport | signal.Signals, signal.Signals | None]:
    """The report, or the signal that cancelled the run; and the first signal that came."""
    if display != Display.NONE:
        tell(_announcement(settings))
    with progress_display(Display(display), Console(stderr=True, highlight=False)) as show:
        return event_loop.run(_interruptible(settings, show))


async def _interruptible(
    settings: RolloutCollectionConfig, show: Show
) -> tuple[RunReport | signal.Signals, signal.Signals | None]:
    runner = RolloutRunner(settings)
    latest: list[Progress] = []
    draining: list[asyncio.Task[None]] = []

    def drain(number: signal.Signals) -> bool:
        if not runner.is_running:
            return False
        waits = "" if number is signal.SIGINT else f" within {settings.grace_s:g} s"
        in_flight = latest[-1].in_flight if latest else 0
        tell(f"stopping: {in_flight} rollouts in flight may end{waits}; a second signal cancels them")
        draining.append(asyncio.get_running_loop().create_task(runner.drain()))
        return True

    def cancelled() -> None:
        tell("stopping: what is in flight is cancelled; another signal ends this at once")

    def shown(progress: Progress) -> None:
        interruption.arm()  # the driver runs, so Ray has installed its handlers
        latest[:] = [progress]
        show(progress)

    async def job() -> RunReport:
        async with runner:
            return await runner.collect(on_progress=shown)

    interruption = Interruption(drain, cancelled, grace_s=settings.grace_s)
    ended = await interruption.run(job())
    await asyncio.gather(*draining, return_exceptions=True)
    return ended, interruption.received


def _announcement(settings: RolloutCollectionConfig) -> str:
    """What will be run, with the values that nobody chose."""
    sources = settings.input_jsonl_fpath
    sources = [sources] if isinstance(sources, str) else sources or []
    rows = sources[0] if len(sources) == 1 else f"{len(sources)} inputs"
    cap = f"at most {settings.cap} in flight"
    if settings.num_samples_in_parallel is None:
        cap += " (the default; set it with --concurrency)"
    where = "in this process" if settings.executor == "local" else f"{settings.shards} shards on Ray"
    limit = f"; limit of {settings.rollout_timeout_s:g} s for each rollout" if settings.rollout_timeout_s else ""
    return f"{rows} -> {settings.output_jsonl_fpath}; {cap}, {where}{limit}"

"""Progress on stderr: a live view on a terminal, a plain line now and then elsewhere, JSON lines for programs."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gym_ray.observe.printable import printable
from gym_ray.observe.report import seconds
from gym_ray.observe.tally import Progress

REFRESHES_PER_S = 4
PLAIN_EVERY_S = 30.0
MAX_SERVERS = 8
MAX_CLASSES = 3

Show = Callable[[Progress], None]


class Display(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


@contextmanager
def progress_display(display: Display, console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Show]:
    """A function that shows a snapshot; `auto` is `rich` on a terminal and `plain` elsewhere."""
    if display is Display.AUTO:
        display = Display.RICH if console.is_terminal else Display.PLAIN
    if display is Display.RICH:
        with Live(console=console, refresh_per_second=REFRESHES_PER_S, transient=True) as live:
            yield lambda progress: live.update(view(progress))
        return
    if display is Display.PLAIN:
        yield _sometimes(lambda progress: console.print(Text(line(progress)), soft_wrap=True), clock)
    elif display is Display.JSON:
        yield _sometimes(lambda progress: console.print(Text(json_line(progress)), soft_wrap=True), clock)
    else:
        yield lambda _: None


def line(progress: Progress) -> str:
    """One line for a log file."""
    parts = [
        f"{progress.results + progress.failures}/{progress.planned} done",
        f"{progress.failures} failed",
        f"{progress.in_flight}/{progress.cap} in flight",
        f"{progress.rate_per_s:.1f}/s",
    ]
    if progress.mean_reward is not None:
        parts.append(f"mean reward {progress.mean_reward:.4f}")
    parts.append(f"elapsed {seconds(progress.elapsed_s)}")
    if progress.eta_s is not None:
        parts.append(f"ETA {seconds(progress.eta_s)}")
    return "gym-ray: " + ", ".join(parts)


def json_line(progress: Progress) -> str:
    """One JSON object with every field of the snapshot."""
    return json.dumps({**asdict(progress), "owed": progress.owed, "mean_reward": progress.mean_reward})


def view(progress: Progress) -> Group:
    """The live view: a bar, the numbers, a line for each server, the commonest failures."""
    done = progress.results + progress.failures
    bar = Table.grid(expand=True)  # on its own, a bar as wide as the terminal swallows the line below it
    bar.add_row(ProgressBar(total=max(progress.planned, 1), completed=done))
    parts: list[Text | Table] = [
        bar,
        Text(line(progress).removeprefix("gym-ray: ")),
    ]
    if len(progress.servers) > 1:
        table = Table.grid(padding=(0, 2))
        for name, part in list(progress.servers.items())[:MAX_SERVERS]:
            reward = "-" if part.mean_reward is None else f"{part.mean_reward:.4f}"
            ended = part.results + part.failures
            table.add_row(
                Text(printable(name)), f"{ended}/{part.planned}", f"{part.failures} failed", f"reward {reward}"
            )
        parts.append(table)
    for name, count in list(progress.failures_by_class.items())[:MAX_CLASSES]:
        parts.append(Text(f"failed: {count} {printable(name)}"))
    return Group(*parts)


def _sometimes(show: Show, clock: Callable[[], float]) -> Show:
    """Show the first snapshot, then one each 30 s."""
    due_at = clock()

    def maybe(progress: Progress) -> None:
        nonlocal due_at
        if clock() >= due_at:
            due_at = clock() + PLAIN_EVERY_S
            show(progress)

    return maybe

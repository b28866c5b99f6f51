"""Progress on stderr: a live view on a terminal, a plain line now and then elsewhere, JSON lines for programs."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gym_ray.observe.printable import printable
from gym_ray.observe.report import seconds
from gym_ray.observe.tally import Progress, ServerProgress

REFRESHES_PER_S = 4
PLAIN_EVERY_S = 30.0
STRAGGLER_AGE_S = 1.0
"""From this age on the last rollouts are named at once."""
MAX_SERVERS = 8
MAX_CLASSES = 3
NARROW = 60
"""Below so many columns only what fits into one is shown."""

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
    match display:
        case Display.RICH:
            with Live(console=console, refresh_per_second=REFRESHES_PER_S, transient=True) as live:
                yield lambda progress: live.update(View(progress))
        case Display.PLAIN | Display.JSON:
            written = line if display is Display.PLAIN else json_line
            lines = _Lines(lambda progress: console.print(Text(written(progress)), soft_wrap=True), clock)
            try:
                yield lines.show
            finally:
                lines.finish()
        case _:
            yield lambda _: None


def line(progress: Progress) -> str:
    """One line for a log file."""
    return "gym-ray: " + ", ".join(
        (f"{progress.results + progress.failures}/{progress.planned} done", *facts(progress))
    )


def facts(progress: Progress) -> Iterator[str]:
    """What there is to say beside how much is done."""
    yield f"{progress.failures} failed"
    yield f"{progress.in_flight}/{progress.cap} in flight"
    yield f"{progress.rate_per_s:.1f}/s"
    if progress.mean_reward is not None:
        yield f"mean reward {progress.mean_reward:.4f}"
    yield f"elapsed {seconds(progress.elapsed_s)}"
    if progress.owed == 0:
        yield "merging and aggregating"
    elif progress.oldest and progress.oldest[0].age_s >= STRAGGLER_AGE_S:
        first = progress.oldest[0]
        name = f"task {first.task_index}, rollout {first.rollout_index}"
        yield f"waiting for {name} on {printable(first.server)} since {seconds(first.age_s)}"
    elif progress.eta_s is not None:
        yield f"ETA {seconds(progress.eta_s)}"


def json_line(progress: Progress) -> str:
    """One JSON object with every field of the snapshot."""
    return json.dumps({**asdict(progress), "owed": progress.owed, "mean_reward": progress.mean_reward})


class View:
    """The live view: a bar, the numbers, a line for each server, the commonest failures; cut to what has room."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = self._narrow() if options.max_width < NARROW else self._wide()
        for drawn in console.render_lines(Group(*parts), options, pad=False)[: max(console.height - 1, 2)]:
            yield from drawn
            yield Segment.line()

    def _narrow(self) -> Iterator[RenderableType]:
        yield self._bar()
        yield from map(Text, facts(self._progress))

    def _wide(self) -> Iterator[RenderableType]:
        progress = self._progress
        yield self._bar()
        yield Text(" · ".join(facts(progress)))
        if len(progress.servers) > 1:
            table = Table.grid(padding=(0, 2))
            for name, part in list(progress.servers.items())[:MAX_SERVERS]:
                table.add_row(*_server(name, part))
            yield table
        if (hidden := len(progress.servers) - MAX_SERVERS) > 0:
            yield Text(f"and {hidden} more environment servers")
        for name, count in list(progress.failures_by_class.items())[:MAX_CLASSES]:
            yield Text(f"failed: {count} {printable(name)}")

    def _bar(self) -> Table:
        done, planned = self._progress.results + self._progress.failures, self._progress.planned
        bar = Table.grid(expand=True, padding=(0, 1))  # on its own, a bar swallows the line below it
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        bar.add_row(ProgressBar(total=max(planned, 1), completed=done), f"{done}/{planned}")
        return bar


def _server(name: str, part: ServerProgress) -> Iterator[Text]:
    reward = "-" if part.mean_reward is None else f"{part.mean_reward:.4f}"
    yield Text(printable(name), overflow="ellipsis", no_wrap=True)
    for text in (f"{part.results + part.failures}/{part.planned}", f"{part.failures} failed", f"reward {reward}"):
        yield Text(text, no_wrap=True, justify="right")


class _Lines:
    """Shows the first snapshot, one each 30 s, one as soon as the run waits for its last rollouts, and the last."""

    def __init__(self, write: Show, clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._due_at = clock()
        self._unshown: Progress | None = None
        self._named_stragglers = False

    def show(self, progress: Progress) -> None:
        """Write the snapshot if it is time, else keep it."""
        waits = bool(progress.oldest) and progress.oldest[0].age_s >= STRAGGLER_AGE_S
        if self._clock() < self._due_at and (not waits or self._named_stragglers):
            self._unshown = progress
            return
        self._named_stragglers = self._named_stragglers or waits
        self._due_at = self._clock() + PLAIN_EVERY_S
        self._unshown = None
        self._write(progress)

    def finish(self) -> None:
        """Write the last snapshot if it was not."""
        if self._unshown is not None:
            self._write(self._unshown)

"""`gym-ray attach`, `stop` and `scale`: what can be done to a run that somebody else has started."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym_ray.cli.folders import COMPLETE, INCOMPLETE, RunPath, status_lines
from gym_ray.cli.options import JsonOutput

if TYPE_CHECKING:
    from gym_ray.paths import RunPaths
    from gym_ray.recording.standing import RunStanding

FAILED = 1
LOOK_EVERY_S = 0.5
REPORT_S = 1.0
"""From the last record to the report: closing Ray takes most of it."""
SHOW_EVERY_S = 10.0
REACTION_S = 30.0
"""A driver looks for requests each second; a shared file system may show them later."""


def attach(run: RunPath) -> None:
    """Watch a run until it ends, with what its log says. Ctrl-C leaves the run alone."""
    from gym_ray.cli.output import tell  # noqa: PLC0415 - `--help` shall not pay for it
    from gym_ray.observe.printable import printable  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    paths = run_at(run)
    log, shown_at, has_settled = _Log(paths.log), float("-inf"), not paths.log.exists()
    try:
        while True:
            standing, is_running = _standing(paths)
            lines = log.new_lines()
            for line in lines:
                typer.echo(printable(line, 2000))
            if not is_running and not lines and has_settled:
                break
            has_settled = not is_running  # its report comes after its last record
            if is_running and time.monotonic() - shown_at >= SHOW_EVERY_S:
                typer.echo("\n".join(status_lines(standing)))
                shown_at = time.monotonic()
            time.sleep(LOOK_EVERY_S if is_running else REPORT_S)
    except KeyboardInterrupt:
        tell(f"the run goes on; `gym-ray stop {run}` ends it")
        raise typer.Exit(INCOMPLETE) from None
    typer.echo("\n".join(status_lines(standing)))
    raise typer.Exit(_exit_code(standing))


def stop(
    run: RunPath,
    cancel: Annotated[bool, typer.Option("--cancel", help="Do not wait for what is in flight.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return once the run has ended.")] = True,
    json_output: JsonOutput = False,
) -> None:
    """Have a run start nothing more, wherever it runs; what is in flight may end, what is left stays owed."""
    from gym_ray.recording.control import Control, request  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    paths = run_at(run)
    standing, is_running = _standing(paths)
    if is_running:
        request(paths, Control(stop="cancel" if cancel else "drain"))
        if wait:
            _await_reaction(paths)
            while is_running:
                time.sleep(LOOK_EVERY_S)
                standing, is_running = _standing(paths)
    _show(standing, json_output=json_output)
    raise typer.Exit(COMPLETE if not wait else _exit_code(standing))


def scale(
    run: RunPath,
    shards: Annotated[int, typer.Argument(min=1, max=1024, help="How many shard actors shall dispatch.")],
    json_output: JsonOutput = False,
) -> None:
    """Have a run dispatch from more or fewer shard actors; its record files stay as they are."""
    from gym_ray.errors import RunFolderError  # noqa: PLC0415
    from gym_ray.recording.control import Control, request  # noqa: PLC0415
    from gym_ray.recording.run_names import run_at  # noqa: PLC0415

    paths = run_at(run)
    standing, is_running = _standing(paths)
    if not is_running:
        raise RunFolderError(f"{paths.directory / paths.stem}: the run is {standing.standing}, so it has no shards")
    request(paths, Control(shards=shards))
    _await_reaction(paths)
    until = time.monotonic() + REACTION_S
    while is_running and time.monotonic() < until and (standing.status is None or standing.status.shards != shards):
        time.sleep(LOOK_EVERY_S)
        standing, is_running = _standing(paths)
    _show(standing, json_output=json_output)
    has_them = standing.status is not None and standing.status.shards == shards
    raise typer.Exit(COMPLETE if has_them else INCOMPLETE)


class _Log:
    """The lines that a file gets from now on, and the last ones that it has."""

    TAIL_BYTES = 4096

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at: int | None = None
        self._rest = b""

    def new_lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                is_first = self._at is None
                start = max(size - self.TAIL_BYTES, 0) if self._at is None else self._at
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at = start + len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if is_first and start > 0:
            lines = lines[1:]  # the first is cut
        return [line.decode("utf-8", "replace") for line in lines]


def _standing(paths: "RunPaths") -> tuple["RunStanding", bool]:
    from gym_ray.recording.standing import Standing, standing_of  # noqa: PLC0415

    standing = standing_of(paths)
    return standing, standing.standing is Standing.RUNNING


def _await_reaction(paths: "RunPaths") -> None:
    """Wait until the run has taken what was asked.

    Raises:
        RunFolderError: it does not look; the message says who runs it.
    """
    from gym_ray.errors import RunFolderError  # noqa: PLC0415
    from gym_ray.recording.control import is_taken  # noqa: PLC0415

    until = time.monotonic() + REACTION_S
    while not is_taken(paths):
        standing, is_running = _standing(paths)
        if not is_running:
            return
        if time.monotonic() >= until:
            raise RunFolderError(
                f"{paths.control}: asked {REACTION_S:.0f} s ago, and not taken yet by {standing.holder}: it may be "
                "aggregating, or its machine may not see this folder"
            )
        time.sleep(LOOK_EVERY_S)


def _show(standing: "RunStanding", *, json_output: bool) -> None:
    typer.echo(json.dumps(standing.to_dict()) if json_output else "\n".join(status_lines(standing)))


def _exit_code(standing: "RunStanding") -> int:
    from gym_ray.recording.standing import Standing  # noqa: PLC0415

    if standing.standing is Standing.COMPLETE:
        return COMPLETE
    return FAILED if standing.standing is Standing.FAILED else INCOMPLETE

"""Which run a person means by a path: an output path, or a folder that holds one."""

import re
from pathlib import Path

from gym_ray.errors import ConfigError
from gym_ray.paths import RunPaths

_MARKS = re.compile(r"(?P<stem>.+?)(-[0-9]+)?(_materialized_inputs\.jsonl|_run_status\.json)")


def run_at(path: str) -> RunPaths:
    """The run with this output path, or the only one in this folder.

    Raises:
        ConfigError: there is none, or there are several.
    """
    given = Path(path).expanduser()
    try:
        is_folder = given.is_dir()
    except OSError as error:  # a name that is too long
        raise ConfigError(f"{path:.100}: {error.strerror}") from None
    if not is_folder:
        return RunPaths.of_output(given)
    stems = runs_in(given)
    if len(stems) == 1:
        return RunPaths.of_output(given / f"{stems[0]}.jsonl")
    if not stems:
        raise ConfigError(f"{given}: there is no run in this folder")
    raise ConfigError(f"{given}: holds {len(stems)} runs ({', '.join(stems)}): name one, as {given}/{stems[0]}.jsonl")


def runs_in(directory: Path) -> list[str]:
    """The stems of the runs in a folder, sorted."""
    found = {match["stem"] for path in directory.iterdir() if (match := _MARKS.fullmatch(path.name))}
    return sorted(found)

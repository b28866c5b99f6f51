"""What another process asks of a run that goes on: a small file in its folder, which its driver looks for each second.

A file and not a signal or a named actor: it reaches a run from every host that sees the folder, whatever the run's
processes are and wherever they are.
"""

import logging
from contextlib import suppress
from typing import Literal

import msgspec

from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_json_atomically

logger = logging.getLogger("gym_ray.recording")


class Control(msgspec.Struct, frozen=True):
    """Requests; None asks for nothing."""

    stop: Literal["drain", "cancel"] | None = None
    """Start nothing more, and let what is in flight end or cancel it."""
    shards: int | None = None
    """How many shard actors to dispatch from."""


NOTHING = Control()


def request(paths: RunPaths, control: Control) -> None:
    """Ask a run for something, besides what was asked for and not yet taken. A cancellation is not taken back.

    Raises:
        RecordingError: the file system refuses.
    """
    asked = _read(paths)
    stop = "cancel" if "cancel" in (asked.stop, control.stop) else control.stop or asked.stop
    shards = asked.shards if control.shards is None else control.shards
    write_json_atomically(paths.control, msgspec.to_builtins(Control(stop, shards)))


def is_taken(paths: RunPaths) -> bool:
    """True once the run has taken what was asked of it."""
    return not paths.control.exists()


def take_control(paths: RunPaths) -> Control:
    """What is asked of a run, once."""
    try:
        text = paths.control.read_bytes()
    except FileNotFoundError:
        return NOTHING
    paths.control.unlink(missing_ok=True)
    try:
        return msgspec.json.decode(text, type=Control)
    except msgspec.MsgspecError as error:
        logger.warning("%s: expected requests to the run, found damage: %s: it is passed over", paths.control, error)
        return NOTHING


def _read(paths: RunPaths) -> Control:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(paths.control.read_bytes(), type=Control)
    return NOTHING

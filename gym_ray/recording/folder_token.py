"""A token file by which two processes prove to each other that they see the same folder.

Each token has a file name of its own: a network file system may still remember that an earlier name was not there.
"""

import re
import secrets
from pathlib import Path

from gym_ray.errors import RunFolderError
from gym_ray.paths import RunPaths
from gym_ray.recording.atomic import write_atomically


def write_token(paths: RunPaths) -> str:
    """Leave a token in the folder of a run, to be told to the other process and removed afterwards.

    Raises:
        RecordingError: the folder cannot be written.
    """
    token = secrets.token_hex(8)
    write_atomically(_file(paths, token), [token.encode()])
    return token


def has_token(paths: RunPaths, token: str) -> bool:
    """True if the folder, as this process sees it, holds the token.

    Raises:
        RunFolderError: the folder is there and cannot be read.
    """
    try:
        return _file(paths, token).read_text() == token
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RunFolderError(f"{paths.directory}: cannot be read: {error.strerror}: make it readable") from error


def remove_token(paths: RunPaths, token: str) -> None:
    """Remove a token; it is fine if it is not there."""
    _file(paths, token).unlink(missing_ok=True)


def _file(paths: RunPaths, token: str) -> Path:
    if not re.fullmatch("[0-9a-f]+", token):
        raise ValueError(f"expected a token, found {token!r}")
    return paths.directory / f".{paths.stem}.token-{token}"

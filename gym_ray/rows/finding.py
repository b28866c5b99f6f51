"""Which files an input names: paths, URIs, patterns of either, or several of these."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Any

from gym_ray.errors import InputError
from gym_ray.rows.locating import locate, search_roots

_WILDCARD = re.compile(r"[*?\[]")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of the input."""

    name: str
    """What messages call it: the path as the user wrote it, or as a pattern gave it."""
    path: str
    """Where it is on `filesystem`, or on this machine."""
    filesystem: Any = None
    """A `pyarrow.fs.FileSystem` for a URI."""


def find_files(inputs: Iterable[str | Path], environ: Mapping[str, str] = os.environ) -> list[InputFile]:
    """The files of an input in the order given; those of a pattern are sorted by name.

    Raises:
        InputError: a file does not exist, a pattern has none, or a URI cannot be used.
    """
    return [file for each in inputs for file in _find(str(each), environ)]


def _find(text: str, environ: Mapping[str, str]) -> Iterator[InputFile]:
    if _URI.match(text):
        yield from _find_remote(text)
        return
    path = locate(text, environ)
    if path.is_file():
        yield InputFile(text, str(path))
    elif path.is_dir():
        raise InputError(
            f"{text}: expected a file with input rows, found a folder: name its files, such as {text}/*.jsonl"
        )
    elif _WILDCARD.search(text):
        for match in _matches(text, environ):
            yield InputFile(match, match)
    else:
        raise InputError(f"{text}: expected a file with input rows, found none")


def _matches(pattern: str, environ: Mapping[str, str]) -> list[str]:
    for root in search_roots(environ):
        full = str(root / Path(pattern).expanduser())
        if found := sorted(match for match in glob.glob(full, recursive=True) if Path(match).is_file()):  # noqa: PTH207
            return found
    raise InputError(f"{pattern}: expected files with input rows, but no file's name is like this")


def _find_remote(uri: str) -> Iterator[InputFile]:
    from pyarrow import fs  # noqa: PLC0415  # half a second and 60 MB, for those who need it

    wildcard = _WILDCARD.search(uri)
    base = uri if wildcard is None else uri[: uri.rindex("/", 0, wildcard.start())]
    try:
        filesystem, path = fs.FileSystem.from_uri(base)
        if wildcard is None:
            files = [filesystem.get_file_info(path)]
        else:
            full = re.compile(translate(path + uri[len(base) :]))
            found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
            files = sorted((info for info in found if full.match(info.path)), key=lambda info: str(info.path))
    except (OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{uri}: cannot be opened: {error}") from None
    files = [info for info in files if info.type == fs.FileType.File]
    if not files:
        raise InputError(f"{uri}: expected a file with input rows, found none")
    for info in files:
        yield InputFile(uri if wildcard is None else base + info.path.removeprefix(path), info.path, filesystem)

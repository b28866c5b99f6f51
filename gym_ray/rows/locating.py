"""Where a relative path to read points. Source: protocol §0.3."""

import os
from collections.abc import Mapping
from pathlib import Path

ROOTS_VARIABLE = "NEMO_GYM_EXTRA_ROOTS"


def locate(path: str | Path, environ: Mapping[str, str] = os.environ) -> Path:
    """An absolute path as it is, else the path below the first root that has it, then below the working folder.

    A path that exists nowhere is placed below the first root, for the message.
    """
    given = Path(path).expanduser()
    candidates = [root / given for root in search_roots(environ)]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[0])


def search_roots(environ: Mapping[str, str]) -> list[Path]:
    """The folders of `NEMO_GYM_EXTRA_ROOTS`, then the working folder."""
    return [*(Path(root) for root in environ.get(ROOTS_VARIABLE, "").split(os.pathsep) if root), Path()]

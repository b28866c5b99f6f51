"""Command lines of `gym-ray` in pages and manifests, parsed by the program itself."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer

from gym_ray.cli.main import app
from gym_ray.config import RolloutCollectionConfig

PROGRAM = re.compile(r"(?:\bgym-ray|\bpython -m gym_ray)\s+(?=[a-z-]+\b)")


def commands_in(text: str) -> Iterator[list[str]]:
    """The arguments of every `gym-ray VERB ...`; a line that ends in a backslash goes on, `&` or a comment ends it."""
    for line in text.replace("\\\n", " ").splitlines():
        if (found := PROGRAM.search(line)) is not None:
            words = shlex.split(line[found.end() :], comments=True)
            yield words[: words.index("&")] if "&" in words else words


def parsed(words: list[str]) -> dict[str, Any]:
    """What the program makes of its arguments.

    Raises: what the program raises of wrong ones.
    """
    program = typer.main.get_command(app)
    verb = program.commands[words[0]]  # type: ignore[attr-defined]
    values: dict[str, Any] = verb.make_context(words[0], words[1:]).params
    for override in values.get("overrides") or ():
        assert override.split("=")[0].lstrip("+") in RolloutCollectionConfig.model_fields, override
    return values

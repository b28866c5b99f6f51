"""Shell-like patterns over task ids: `*`, `?` and `[...]`. Pure."""

import fnmatch
import re
from collections.abc import Iterable

from gym_ray.planning.task_names import TaskName


class Patterns:
    """Matches ids and keeps account of the patterns that never did. Letters count as they are written."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._pending = dict.fromkeys(patterns)
        self._exact: set[str] = set()
        self._globs: list[tuple[str, re.Pattern[str]]] = []
        for pattern in self._pending:
            if any(sign in pattern for sign in "*?["):
                self._globs.append((pattern, re.compile(fnmatch.translate(pattern))))
            else:
                self._exact.add(pattern)

    @property
    def unmatched(self) -> list[str]:
        """The patterns that matched nothing so far, as given."""
        return list(self._pending)

    def match(self, name: TaskName) -> bool:
        """True if the id, with or without its taskset, matches a pattern."""
        found = False
        for text in (name.full, name.inner):
            if text in self._exact:
                self._pending.pop(text, None)
                found = True
        for pattern, regex in self._globs:
            # Once a match is known, only patterns that still have to prove themselves are tried
            if (not found or pattern in self._pending) and (regex.match(name.full) or regex.match(name.inner)):
                self._pending.pop(pattern, None)
                found = True
        return found

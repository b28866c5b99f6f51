"""Which tasks of the input run: by id, by pattern, or a sample of them.

Pure. Selection comes before repetition, and of the rows with a selected id the first runs, once. Rows that share the id
and not the content are a mistake in the data, so they are refused.

Source: protocol §5.7; patterns and samples are ours.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gym_ray import keys
from gym_ray.deployment.suggestions import did_you_mean
from gym_ray.planning.digest_index import DIGEST_BYTES, DigestIndex
from gym_ray.planning.numbering import text_digest
from gym_ray.planning.patterns import Patterns
from gym_ray.planning.sampling import sample_key
from gym_ray.planning.task_names import TaskName, task_name

MAX_OTHER_NAMES = 10_000
"""Ids remembered for the hint about one that is missing."""


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """What a user asked for. Without any of it every row runs."""

    ids: tuple[str, ...] | None = None
    """Exactly these tasks."""
    ids_setting: str = "task_ids"
    """The setting that named them."""
    patterns: tuple[str, ...] = ()
    """Only tasks whose id matches one of these."""
    excluded: tuple[str, ...] = ()
    """No task whose id matches one of these."""
    sample: int | None = None
    """So many of the tasks that are left."""
    seed: int = 0

    @property
    def names_tasks(self) -> bool:
        """True if only tasks run that are named."""
        return self.ids is not None or bool(self.patterns)

    @property
    def is_everything(self) -> bool:
        """True if every row runs."""
        return not self.names_tasks and not self.excluded and self.sample is None


class TaskSelector:
    """Selects while rows stream by; remembers digests of the tasks that it took."""

    def __init__(self, choice: TaskChoice, cut: int | None = None) -> None:
        """`cut` is where the sample of the choice ends, if it has one; see `Sample.cut`."""
        self._choice = choice
        self._cut = cut
        self._wanted = frozenset(choice.ids or ())
        self._patterns = Patterns(choice.patterns)
        self._excluded = Patterns(choice.excluded)
        self._taken = DigestIndex()
        self._contents = bytearray()
        """The digests of their contents, by the number in `_taken`."""
        self._full_names: dict[str, str] = {}
        """Id that was asked for -> the full name under which it was found."""
        self._names: set[str] = set()
        self._other_names: set[str] = set()
        self._rows = 0

    def takes(self, row: Mapping[str, Any], identity: bytes) -> bool:
        """True if this row's task is selected and this is the row of it that runs.

        Args:
            identity: the digest of the row's text, for rows without an id.

        Raises:
            ValueError: the row has no id, or its id is that of another task too.
        """
        self._rows += 1
        name = task_name(row)
        if name is None:
            if self._choice.names_tasks or self._choice.excluded:
                raise ValueError(f"no {keys.TASK_ID}, {keys.PROBLEM_ID} or {keys.INSTANCE_ID} to select the row by")
        elif not self._is_chosen(name):
            return False
        if self._cut is not None and sample_key(name, identity, self._choice.seed) > self._cut:
            return False
        if name is not None and self._choice.names_tasks and not self._is_first(name, row):
            return False
        if self._choice.names_tasks or self._cut is not None:
            self._names.add(identity.hex() if name is None else name.full)
        return True

    @property
    def missing(self) -> list[str]:
        """After the last row: a sentence for each id and pattern that no row has."""
        setting = self._choice.ids_setting
        absent = [name for name in dict.fromkeys(self._choice.ids or ()) if name not in self._full_names]
        return [
            *(f"{setting}: no row has the id {name!r}: {did_you_mean(name, self._other_names)}" for name in absent),
            *(f"task_id: no row has an id like {pattern!r}" for pattern in self._patterns.unmatched),
        ]

    @property
    def idle_exclusions(self) -> list[str]:
        """After the last row: patterns that excluded nothing."""
        return self._excluded.unmatched

    @property
    def record(self) -> dict[str, Any] | None:
        """What `<stem>_task_selection.json` says, None if no tasks were selected.

        Rows without an id, which only a sample can take, stand in it as the digest of their text.
        """
        choice = self._choice
        if not choice.names_tasks and self._cut is None:
            return None
        by_name = choice.ids_setting if choice.ids is not None else "task_id"
        names = sorted(self._names)
        return {
            "source": by_name if choice.names_tasks else "sample",
            "selected": len(names),
            "input_rows": self._rows,
            **({} if self._cut is None else {"sample": choice.sample, "seed": choice.seed}),
            "task_ids": names,
            "digest": hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest(),
        }

    def _is_chosen(self, name: TaskName) -> bool:
        choice = self._choice
        if choice.ids is not None and not self._is_named(name):
            return False
        if choice.excluded and self._excluded.match(name):
            return False
        return not choice.patterns or self._patterns.match(name)

    def _is_named(self, name: TaskName) -> bool:
        asked = [text for text in dict.fromkeys(name) if text in self._wanted]
        if not asked and len(self._other_names) < MAX_OTHER_NAMES:
            self._other_names.add(name.inner)
        for text in asked:
            if self._full_names.setdefault(text, name.full) != name.full:
                raise ValueError(f"the id {text!r} is also that of {self._full_names[text]}: ask for {name.full}")
        return bool(asked)

    def _is_first(self, name: TaskName, row: Mapping[str, Any]) -> bool:
        content = _digest(_canonical(row))
        at = self._taken.number(_digest(name.full)) * DIGEST_BYTES
        if at == len(self._contents):
            self._contents += content
            return True
        if self._contents[at : at + DIGEST_BYTES] != content:
            raise ValueError(f"the id {name.full!r} is also that of an earlier row with other content")
        return False


def _canonical(row: Mapping[str, Any]) -> str:
    own = {key: value for key, value in row.items() if not key.startswith(keys.NG_PREFIX)}
    return json.dumps(own, sort_keys=True, default=str)


def _digest(text: str) -> bytes:
    return text_digest(text.encode("utf-8", "surrogatepass"))

"""What is wrong with a plan: every problem of every row, told at once.

Pure. A run of 200,000 rows must not learn at row 150,000 that row 3 names an unknown agent, and its user must not learn
about one wrong row at a time.
"""

from dataclasses import dataclass, field
from enum import Enum

from gym_ray.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
    GymRayError,
    InputError,
    RoutingError,
)
from gym_ray.rows.source_row import SourceRow

MAX_CAUSES = 50
"""Causes listed for each kind; a cause is for example one unknown agent, however many rows name it."""
MAX_RANGES = 12
"""Ranges of rows listed for each cause."""


class Problem(Enum):
    """The kinds, in the order in which they are told: what it means for the rows, and how a program can catch it."""

    UNREADABLE = "cannot be read", InputError
    STAMP = "carry a value that planning cannot use", InputError
    NO_PARAMS = "have no responses_create_params, which every flat row needs", InputError
    PROMPT = "cannot take the prompt", InputError
    SEED = "cannot take a seed", InputError
    SELECTION = "cannot be selected by id", InputError
    ABSENT = "are asked for, but not in the input", InputError, "task"
    MATERIALIZED = "are materialized and cannot take this setting", InputError
    TASKSET_ROUTE = "name a taskset without an entry in environment_server_routes", RoutingError
    FLAT_ROW = "are flat, which environment_routing_mode=taskset refuses", RoutingError
    NO_ROUTE = "name neither an agent nor a task_source, and agent_map has no _default (--agent sets it)", RoutingError
    REPEATS = "have no entry in num_repeats, which has no _default", ConfigError
    TASK_SOURCE = "name a task_source that leads to no agent", RoutingError
    AGENT = "name an agent that the deployment does not offer", RoutingError
    SERVER = "name an environment server that the deployment does not offer", RoutingError
    SERVER_AGENT = "name an agent that their environment server does not run", RoutingError
    SERVER_SOURCE = "name a task_source that is not their environment server's resources server", RoutingError
    PAIRING = "pair an agent with tasks that do not admit it (allow_unsupported_pairing=true runs them)", RoutingError
    UNFRONTED = "name an agent without an environment server", AgentWithoutEnvironmentServerError
    AMBIGUOUS = "name an agent with several environment servers", AmbiguousEnvironmentServerError
    DEPLOYMENT = "need a part of the deployment that cannot be used", ConfigError

    def __init__(self, says: str, error: type[GymRayError], noun: str = "row") -> None:
        self.says = says
        self.error = error
        self.noun = noun


@dataclass(slots=True)
class _Rows:
    """Where one cause was met. Neighbouring lines are one range; further ranges are only counted."""

    count: int = 0
    ranges: list[tuple[SourceRow, int]] = field(default_factory=list)
    """First row (without its line) and last number."""

    def add(self, row: SourceRow) -> None:
        self.count += 1
        if self.ranges:
            first, last = self.ranges[-1]
            if first.source == row.source and row.number in {last, last + 1}:
                self.ranges[-1] = first, row.number
                return
        if len(self.ranges) <= MAX_RANGES:
            self.ranges.append((SourceRow(b"", row.source, row.number, row.position, row.is_line), row.number))

    def __str__(self) -> str:
        shown = [_range(first, last) for first, last in self.ranges[:MAX_RANGES]]
        more = ", ..." if len(self.ranges) > MAX_RANGES else ""
        return ", ".join(shown) + more + (f" ({self.count} rows)" if self.count > 1 else "")


class Problems:
    """Collects; empty as long as the plan is valid."""

    def __init__(self) -> None:
        self._found: dict[Problem, dict[str, _Rows]] = {}
        self._counts: dict[Problem, int] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, problem: Problem, cause: str, row: SourceRow | None = None) -> None:
        """Note that `row`, or the input as a whole, has this problem for this cause."""
        causes = self._found.setdefault(problem, {})
        self._counts[problem] = self._counts.get(problem, 0) + 1
        if cause not in causes and len(causes) >= MAX_CAUSES:
            return
        rows = causes.setdefault(cause, _Rows())
        if row is not None:
            rows.add(row)

    def raise_if_any(self) -> None:
        """Raise everything that was found as one error, of the first kind's class when the kinds differ."""
        if self._found:
            kinds = sorted(self._found, key=list(Problem).index)
            raise kinds[0].error("\n".join([*map(self._describe, kinds), "nothing was sent"]))

    def _describe(self, problem: Problem) -> str:
        causes, count = self._found[problem], self._counts[problem]
        says = problem.says if count > 1 else _singular(problem.says)
        lines = [f"{count} {problem.noun}{'s' if count > 1 else ''} {says}:"]
        lines += [f"  {cause}: {rows}" if rows.count else f"  {cause}" for cause, rows in causes.items()]
        listed = sum(max(rows.count, 1) for rows in causes.values())
        return "\n".join(lines if listed >= count else [*lines, f"  ... and {count - listed} more"])


def _singular(says: str) -> str:
    verb, _, rest = says.partition(" ")
    return f"{_SINGULARS.get(verb, verb)} {rest}"


_SINGULARS = {"are": "is", "carry": "carries", "have": "has", "name": "names", "pair": "pairs", "need": "needs"}


def _range(first: SourceRow, last: int) -> str:
    if first.number == last:
        return first.where
    return f"{first.where}-{last}" if first.is_line else f"{first.where}-[{last}]"

"""Turns rows into planned rollouts, one row at a time, and collects what is wrong with any of them.

Pure: rows in, lines out; whoever calls decides where lines go. Invariant: the rollouts of a plan depend only on the
rows, their order, the shaping and the deployment.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gym_ray import keys
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import InputError
from gym_ray.planning.digest_index import DIGEST_BYTES
from gym_ray.planning.facts import RowFacts, check_stamps, given_task_index, read_facts
from gym_ray.planning.numbering import Numbering, Task
from gym_ray.planning.problems import Problem, Problems
from gym_ray.planning.rendering import RowTemplate, body_overhead
from gym_ray.planning.routing import Destination, Router
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.document import RowDocument, parse_document
from gym_ray.rows.source_row import SourceRow
from gym_ray.rows.splicing import encode


class Rollout(NamedTuple):
    """One planned rollout."""

    line: bytes
    """Its materialized row, without a line end."""
    task: Task
    number: int
    """Its `_ng_rollout_index`."""
    destination: Destination


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What a valid plan contains."""

    rows: int
    tasks: int
    rollouts: int
    rollouts_by_server: Mapping[str, int]
    rollouts_by_agent: Mapping[str, int]
    """Rows that name no agent count for the one that their environment server speaks for, if it speaks for one."""
    rollouts_by_shard: tuple[int, ...]
    body_bytes: int
    """Bytes of the first request of every rollout, within a few bytes each."""
    warnings: tuple[str, ...] = field(default=())


class Planner:
    """The state of one plan."""

    def __init__(self, shaping: Shaping, deployment: Deployment | None) -> None:
        self._shaping = shaping
        self._params = {key: encode(value) for key, value in shaping.overrides.items()}
        self._router = Router(shaping, deployment)
        self.numbering = Numbering()
        self.problems = Problems()
        self._rows = 0
        self._rollouts = 0
        self._body_bytes = 0
        self._by_server: Counter[str] = Counter()
        self._by_agent: Counter[str] = Counter()
        self._renamed: Counter[tuple[str, str]] = Counter()
        self._without_source = 0

    def plan(self, row: SourceRow) -> Iterator[Rollout]:
        """The rollouts of one row, in plan order: for each target all its repeats. Nothing once there is a problem."""
        self._rows += 1
        try:
            document = parse_document(row)
        except InputError as error:
            self.problems.add(Problem.UNREADABLE, str(error))
            return
        try:
            facts = read_facts(document.values)
            check_stamps(document.values, is_materialized=facts.is_materialized)
            given = given_task_index(document.values)
        except ValueError as error:
            self.problems.add(Problem.STAMP, str(error), row)
            return
        if not self._is_shapeable(document, facts, row):
            return
        route = self._router.route(facts)
        for problem, cause in route.problems:
            self.problems.add(problem, cause, row)
        if self.problems:
            return
        if route.renamed is not None:
            self._renamed[route.renamed] += 1
        self._without_source += facts.agent is not None and facts.source is None
        task = self._task(row, given)
        for destination in route.destinations:
            yield from self._repeated(document, facts, row, task, destination)

    def summarize(self, rollouts_by_shard: tuple[int, ...]) -> PlanSummary:
        """What was planned.

        Raises:
            InputError, RoutingError, ConfigError: the plan is not valid; the message lists every problem.
        """
        self.problems.raise_if_any()
        return PlanSummary(
            rows=self._rows,
            tasks=self.numbering.tasks,
            rollouts=self._rollouts,
            rollouts_by_server=dict(self._by_server),
            rollouts_by_agent=dict(self._by_agent),
            rollouts_by_shard=rollouts_by_shard,
            body_bytes=self._body_bytes,
            warnings=tuple(self._warnings()),
        )

    def _is_shapeable(self, document: RowDocument, facts: RowFacts, row: SourceRow) -> bool:
        """True if the settings of the run can be applied to the row; else it is noted why not."""
        if facts.is_materialized:
            refused = [
                *(["responses_create_params overrides"] if self._params else []),
                *(["num_repeats_add_seed"] if self._shaping.num_repeats_add_seed else []),
            ]
            for setting in refused:
                self.problems.add(Problem.MATERIALIZED, setting, row)
            return not refused
        if not isinstance(document.values.get(keys.RESPONSES_CREATE_PARAMS), dict):
            has_key = keys.RESPONSES_CREATE_PARAMS in document.values
            self.problems.add(Problem.NO_PARAMS, "not an object" if has_key else "missing", row)
            return False
        return True

    def _task(self, row: SourceRow, given: int | None) -> Task:
        if given is not None:
            return self.numbering.task_by_index(given)
        text = row.line if row.identity_text is None else row.identity_text
        digest = hashlib.blake2b(text, digest_size=DIGEST_BYTES)
        if row.is_terminated:
            digest.update(b"\n")
        return self.numbering.task_by_text(digest.digest())

    def _repeated(
        self, document: RowDocument, facts: RowFacts, row: SourceRow, task: Task, destination: Destination
    ) -> Iterator[Rollout]:
        try:
            template = RowTemplate(document, destination, self._params, seeded=self._shaping.num_repeats_add_seed)
        except ValueError as error:
            self.problems.add(Problem.SEED, str(error), row)
            return
        overhead = body_overhead(document.line) if facts.is_materialized else 0
        for _ in range(destination.repeats):
            number = self.numbering.next_rollout(task)
            line = template.line(task.number, number)
            self._body_bytes += len(line) + overhead
            yield Rollout(line, task, number, destination)
        self._rollouts += destination.repeats
        if destination.server is not None:
            self._by_server[destination.server.name] += destination.repeats
        if destination.runs_on is not None:
            self._by_agent[destination.runs_on] += destination.repeats

    def _warnings(self) -> Iterator[str]:
        if not self._rows:
            yield "the input has no rows: nothing will run"
        if self._renamed:
            pairs = ", ".join(f"{old} -> {new} ({count} rows)" for (old, new), count in sorted(self._renamed.items()))
            yield f"agent_map replaced the agent of {self._renamed.total()} rows: {pairs}"
        if unused := self._router.unused_repeats:
            yield f"num_repeats: no row has the agent or source {', '.join(map(repr, unused))}"
        if self.numbering.has_collisions:
            yield (
                f"some rows bring a {keys.TASK_INDEX} that another row without one was given: they count as one task; "
                "give it to every row or to none"
            )
        if self._without_source:
            yield (
                f"{self._without_source} rows name an agent but no task_source, which NeMo Gym deprecates: "
                "add the resources server that declares them"
            )

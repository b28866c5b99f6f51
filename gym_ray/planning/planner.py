"""Turns rows into planned rollouts, one row at a time, and collects what is wrong with any of them.

Pure: rows in, lines out; whoever calls decides where lines go. Invariant: the rollouts of a plan depend only on the
rows, their order, the shaping and the deployment.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from gym_ray import keys
from gym_ray.deployment.lookup import Deployment
from gym_ray.errors import InputError
from gym_ray.planning.digest_index import DigestIndex
from gym_ray.planning.facts import RowFacts, check_stamps, given_task_index, read_facts
from gym_ray.planning.numbering import Numbering, Task, index_identity, text_digest, text_identity
from gym_ray.planning.problems import Problem, Problems
from gym_ray.planning.rendering import RowTemplate, episode_bytes
from gym_ray.planning.routing import Destination, Router
from gym_ray.planning.sampling import Sample, sample_key
from gym_ray.planning.selection import TaskSelector
from gym_ray.planning.shaping import Shaping
from gym_ray.planning.task_names import task_name
from gym_ray.rows.document import RowDocument, parse_document
from gym_ray.rows.source_row import SourceRow
from gym_ray.rows.splicing import Json, encode

INPUT = "input"


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
    """Input rows that were read, selected or not."""
    tasks: int
    rollouts: int
    rollouts_by_server: Mapping[str, int]
    rollouts_by_agent: Mapping[str, int]
    """Rows that name no agent count for the one that their environment server speaks for, if it speaks for one."""
    rollouts_by_shard: tuple[int, ...]
    body_bytes: int
    """Bytes of the first request of every rollout, within a few bytes each."""
    warnings: tuple[str, ...] = ()
    selection: Mapping[str, Any] | None = field(default=None, repr=False)
    """What `<stem>_task_selection.json` says; None when every task of the input runs."""


class PlanGivenUp(Exception):
    """Nobody wants the plan any more; raised in the thread that makes it."""


class Planner:
    """The state of one plan."""

    def __init__(self, shaping: Shaping, deployment: Deployment | None, *, keeps_attempts: bool = False) -> None:
        """Without a deployment nothing is resolved or checked against one.

        `keeps_attempts`: leave the attempt numbers of rows as they are. A plan drops them: it says what runs, not how
        often that was tried, which the ledger counts.
        """
        self.numbering = Numbering()
        self.problems = Problems()
        self._shaping = shaping
        self._overrides = {key: encode(value) for key, value in shaping.overrides.items()}
        self._stamps: dict[str, Json | None] = (
            {} if shaping.skills_ref is None else {keys.SKILLS_REF: encode(shaping.skills_ref)}
        )
        self._router = Router(shaping, deployment)
        self._selects = not shaping.choice.is_everything
        self._selector = TaskSelector(shaping.choice)
        self._counts = _Counts(is_resolved=deployment is not None)
        self._keeps_attempts = keeps_attempts
        self._drawn: int | None = None
        self._is_given_up = False

    def give_up(self) -> None:
        """Have whoever plans in another thread stop with `PlanGivenUp`."""
        self._is_given_up = True

    def _check_wanted(self) -> None:
        if self._is_given_up:
            raise PlanGivenUp

    def drawn_from(self, rows: Iterable[SourceRow]) -> Iterable[SourceRow]:
        """Draw the sample that the shaping asks for, if any, by a pass over the rows; returns them for `plan`.

        The rows of an iterator, which can be passed over only once, are kept in memory.
        """
        choice, limit = self._shaping.choice, self._shaping.limit
        if choice.sample is None:
            return rows
        rows = list(rows) if iter(rows) is rows else rows
        candidates, sample = TaskSelector(choice), Sample(choice.sample)
        for row in islice(rows, limit or None):
            self._check_wanted()
            try:
                values = parse_document(row).values
                identity = _identity(row, given_task_index(values))
                if candidates.takes(values, identity):
                    sample.add(sample_key(task_name(values), identity, choice.seed))
            except ValueError:  # told when the row is planned
                continue
        self._selector, self._drawn = TaskSelector(choice, sample.cut), len(sample)
        return rows

    def plan(self, row: SourceRow) -> Iterator[Rollout]:
        """The rollouts of one row, in plan order: for each target all its repeats. Nothing once there is a problem."""
        self._check_wanted()
        self._counts.rows += 1
        try:
            document = parse_document(row)
        except InputError as error:
            self.problems.add(Problem.UNREADABLE, str(error))
            return
        params = self._params(document, row)
        try:
            problem = Problem.STAMP
            given = given_task_index(document.values)
            identity = _identity(row, given)
            problem = Problem.SELECTION
            if self._selects and not self._selector.takes(document.values, identity):
                return
            problem = Problem.STAMP
            facts = read_facts(document.values)
            check_stamps(document.values, is_materialized=facts.is_materialized)
        except ValueError as error:
            self.problems.add(problem, str(error), row)
            return
        if not self._is_shapeable(document, facts, row):
            return
        route = self._router.route(facts)
        for problem, cause in route.problems:
            self.problems.add(problem, cause, row)
        if self.problems:
            return
        task = self.numbering.task_by_text(identity) if given is None else self.numbering.task_by_index(given)
        self._counts.add(facts, document.values, route.renamed, sum(each.repeats for each in route.destinations))
        for destination in route.destinations:
            yield from self._repeated(document, facts, row, task, destination, params)

    def summarize(self, rollouts_by_shard: tuple[int, ...]) -> PlanSummary:
        """What was planned.

        Raises:
            InputError, RoutingError, ConfigError: the plan is not valid; the message lists every problem.
        """
        for sentence in self._selector.missing:
            self.problems.add(Problem.ABSENT, sentence)
        self.problems.raise_if_any()
        counts = self._counts
        return PlanSummary(
            rows=counts.rows,
            tasks=self.numbering.tasks,
            rollouts=counts.rollouts,
            rollouts_by_server=dict(counts.by_server),
            rollouts_by_agent=dict(counts.by_agent),
            rollouts_by_shard=rollouts_by_shard,
            body_bytes=counts.body_bytes,
            warnings=tuple(self._warnings()),
            selection=self._selector.record,
        )

    def _params(self, document: RowDocument, row: SourceRow) -> Mapping[str, Json]:
        """The members that replace those of the row's `responses_create_params`."""
        prompt, values = self._shaping.prompt, document.values
        if prompt is None:
            return self._overrides
        own = values.get(keys.RESPONSES_CREATE_PARAMS)
        if isinstance(own, dict) and own.get(INPUT):
            self.problems.add(Problem.PROMPT, f"{keys.RESPONSES_CREATE_PARAMS}.{INPUT} is not empty", row)
            return {}
        try:
            return {INPUT: encode(prompt.messages(values)), **self._overrides}
        except ValueError as error:
            self.problems.add(Problem.PROMPT, str(error), row)
            return {}

    def _stamps_for(self, document: RowDocument) -> Mapping[str, Json | None]:
        """The members that are the same for every flat row, and those that no row keeps."""
        if keys.ATTEMPT_INDEX in document.values and not self._keeps_attempts:
            return {**self._stamps, keys.ATTEMPT_INDEX: None}
        return self._stamps

    def _is_shapeable(self, document: RowDocument, facts: RowFacts, row: SourceRow) -> bool:
        """True if the settings of the run can be applied to the row; else it is noted why not."""
        shaping = self._shaping
        if facts.is_materialized:
            refused = {
                "responses_create_params": bool(shaping.overrides),
                "skills": shaping.skills_ref is not None,
                "num_repeats_add_seed": shaping.num_repeats_add_seed,
                "prompt_config": shaping.prompt is not None,
            }
            for setting in (setting for setting, is_set in refused.items() if is_set):
                self.problems.add(Problem.MATERIALIZED, setting, row)
            return not any(refused.values())
        if shaping.prompt is None and not isinstance(document.values.get(keys.RESPONSES_CREATE_PARAMS), dict):
            has_key = keys.RESPONSES_CREATE_PARAMS in document.values
            self.problems.add(Problem.NO_PARAMS, "not an object" if has_key else "missing", row)
            return False
        return True

    def _repeated(
        self,
        document: RowDocument,
        facts: RowFacts,
        row: SourceRow,
        task: Task,
        destination: Destination,
        params: Mapping[str, Json],
    ) -> Iterator[Rollout]:
        try:
            seeded = self._shaping.num_repeats_add_seed
            template = RowTemplate(document, destination, params, self._stamps_for(document), seeded=seeded)
        except ValueError as error:
            self.problems.add(Problem.SEED, str(error), row)
            return
        episode = episode_bytes(document.line) if facts.is_materialized else None
        for _ in range(destination.repeats):
            self._check_wanted()
            number = self.numbering.next_rollout(task)
            line = template.line(task.number, number)
            self._counts.body_bytes += len(line) if episode is None else episode
            yield Rollout(line, task, number, destination)
        self._counts.arrived(destination)

    def _warnings(self) -> Iterator[str]:
        choice, counts = self._shaping.choice, self._counts
        if not counts.rows:
            yield "the input has no rows: nothing will run"
        elif not counts.rollouts:
            yield "no row of the input is selected: nothing will run"
        if choice.sample is not None and self._drawn is not None and self._drawn < choice.sample:
            yield f"sample: {choice.sample} tasks were asked for, the input has only {self._drawn}"
        if idle := self._selector.idle_exclusions:
            yield f"exclude_task_id: no row has an id like {', '.join(map(repr, idle))}"
        if unused := self._router.unused_repeats:
            yield f"num_repeats: no row has the agent or source {', '.join(map(repr, unused))}"
        if self.numbering.has_collisions:
            yield (
                f"some rows bring a {keys.TASK_INDEX} that another row without one was given, and count as one task "
                "with it: give the index to every row or to none"
            )
        yield from counts.warnings()


class _Counts:
    """What the summary says of the rollouts planned so far."""

    def __init__(self, *, is_resolved: bool) -> None:
        """`is_resolved`: the plan knows its deployment, so that a missing source is worth a word."""
        self._is_resolved = is_resolved
        self.rows = 0
        self.rollouts = 0
        self.body_bytes = 0
        self.by_server: Counter[str] = Counter()
        self.by_agent: Counter[str] = Counter()
        self._renamed: Counter[tuple[str, str]] = Counter()
        self._without_source = 0
        self._rollout_ids = DigestIndex()
        self._with_rollout_id = 0

    def add(self, facts: RowFacts, row: Mapping[str, Any], renamed: tuple[str, str] | None, rollouts: int) -> None:
        """Count a row that is planned."""
        if renamed is not None:
            self._renamed[renamed] += 1
        if self._is_resolved and facts.agent is not None and facts.source is None:
            self._without_source += 1
        if (rollout_id := row.get(keys.ROLLOUT_ID)) is not None:
            self._rollout_ids.number(text_digest(rollout_id.encode()))
            self._with_rollout_id += rollouts

    def arrived(self, destination: Destination) -> None:
        """Count the rollouts of a destination."""
        self.rollouts += destination.repeats
        if destination.server is not None:
            self.by_server[destination.server.name] += destination.repeats
        if destination.runs_on is not None:
            self.by_agent[destination.runs_on] += destination.repeats

    def warnings(self) -> Iterator[str]:
        """What a user should know about rows that are planned nevertheless."""
        if self._renamed:
            pairs = ", ".join(f"{old} -> {new} ({count})" for (old, new), count in sorted(self._renamed.items()))
            yield f"agent_map replaces the agent of {self._renamed.total()} rows: {pairs}"
        if self._with_rollout_id > len(self._rollout_ids):
            yield (
                f"{self._with_rollout_id} rollouts share {len(self._rollout_ids)} values of {keys.ROLLOUT_ID}: "
                "model calls of rollouts with the same one are captured together; leave it out to have it derived"
            )
        if self._without_source:
            yield (
                f"{self._without_source} rows name an agent but no {keys.TASK_SOURCE}, which NeMo Gym deprecates: "
                "add the resources server that declares them"
            )


def _identity(row: SourceRow, given: int | None) -> bytes:
    return text_identity(row) if given is None else index_identity(given)

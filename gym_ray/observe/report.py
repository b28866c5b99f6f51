"""What a finished run has to say: the equation, the failures, the means with what they are over, and the files."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from gym_ray import keys
from gym_ray.errors import GymRayError, IncompleteRunError
from gym_ray.observe.printable import printable
from gym_ray.observe.scores import Score
from gym_ray.observe.tally import Progress

COMPLETE, FAULT, INCOMPLETE, AGGREGATION_FAILED = 0, 1, 3, 4
"""Exit codes: everything has its result; it will not get one; some of it can be run again; a server did not
aggregate."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """The end of a run. `metrics` are the entries of `<stem>_aggregate_metrics.json`."""

    run_id: str
    progress: Progress
    metrics: tuple[dict[str, Any], ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    scores: tuple[Score, ...] = ()
    """What gym_ray itself computes from the rewards."""
    notes: tuple[str, ...] = ()
    """What else a person should know: what a budget has kept from starting, and how sharp it was."""
    rejection: GymRayError | None = None
    """Why a strict run has no score."""
    min_coverage: float | None = None
    """The share of results from which on an incomplete run is good enough."""

    resume_command: str | None = None

    @property
    def unaggregated(self) -> tuple[str, ...]:
        """The labels of the groups that a server did not aggregate."""
        return tuple(entry[keys.AGENT_REF][keys.NAME] for entry in self.metrics if keys.AGGREGATION_ERROR in entry)

    @property
    def is_complete(self) -> bool:
        """True if every planned rollout has a result or a failure that no further attempt would change."""
        progress = self.progress
        return progress.results + progress.terminal_failures == progress.planned

    @property
    def is_covered(self) -> bool:
        """True if the share of results reaches the bar that was set."""
        planned, results = self.progress.planned, self.progress.results
        return self.min_coverage is not None and results >= self.min_coverage * planned

    @property
    def exit_code(self) -> int:
        """0 complete or covered, 3 incomplete but resumable, 4 finished but not aggregated everywhere, 1 stuck."""
        if self.rejection is not None:
            return INCOMPLETE if isinstance(self.rejection, IncompleteRunError) else FAULT
        if not self.is_complete and not self.is_covered:
            return INCOMPLETE
        return AGGREGATION_FAILED if self.unaggregated else COMPLETE

    @property
    def aggregation(self) -> dict[str, Any] | None:
        """How many servers aggregated, and which did not; None if none was asked."""
        if not self.metrics:
            return None
        missing = self.unaggregated
        return {"aggregated": len(self.metrics) - len(missing), "unaggregated": list(missing)}

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        progress = self.progress
        return {
            "run_id": self.run_id,
            "complete": self.is_complete,
            "exit_code": self.exit_code,
            "coverage": {part: getattr(progress, part) for part in ("planned", *progress.parts)},
            "failures_by_class": progress.failures_by_class,
            "terminal_failures": progress.terminal_failures,
            "masked": progress.masked,
            "retries": progress.retries,
            "later_attempts": progress.later_attempts,
            "earlier": progress.earlier,
            "notes": list(self.notes),
            "rejection": None if self.rejection is None else str(self.rejection),
            "mean_reward": progress.mean_reward,
            "mean_reward_over": progress.rewarded,
            "mean_reward_failures_as_zero": progress.mean_reward_failures_as_zero,
            "latency_ms": progress.latency_ms,
            "wall_s": progress.elapsed_s,
            "rollouts_per_s": progress.mean_rate_per_s,
            "servers": {name: asdict(part) for name, part in progress.servers.items()},
            "metrics": [
                {key: entry[key] for key in (keys.AGENT_REF, keys.ENVIRONMENT_SERVER, keys.KEY_METRICS)}
                | {key: entry[key] for key in (keys.AGGREGATION_ERROR,) if key in entry}
                for entry in self.metrics
            ],
            "scores": [score.to_dict() for score in self.scores],
            "files": self.files,
            "resume_command": self.resume_command,
        }

    def lines(self) -> Iterator[str]:
        """The report as lines of plain text; what came from servers or data is made printable."""
        progress = self.progress
        verdict = "complete" if self.is_complete else "INCOMPLETE"
        rate = f", {progress.mean_rate_per_s:.1f} rollouts/s" if progress.results + progress.failures else ""
        yield f"run {self.run_id}: {verdict} after {seconds(progress.elapsed_s)}{rate}"
        yield f"  {progress.equation}"
        if self.rejection is not None:
            yield f"  NO SCORE: {printable(str(self.rejection), 1000)}"
        yield from self._attempt_lines()
        yield from (f"  {printable(note, 500)}" for note in self.notes)
        yield from self._reward_lines()
        yield from (f"  {line}" for score in self.scores for line in score_lines(score))
        for entry in self.metrics:
            yield from metric_lines(entry)
        for name, part in progress.servers.items():
            if part.planned and not part.results:
                yield f"  {printable(name)}: nothing to aggregate, none of {part.planned} rollouts has a result"
        for name, path in self.files.items():
            yield f"  {name}: {path}"
        if not self.is_complete:
            again = progress.planned - progress.results - progress.terminal_failures
            command = self.resume_command or "the same command with --resume"
            yield f"  {again} rollouts have no result and no final failure; what runs them: {printable(command, 1000)}"

    def _attempt_lines(self) -> Iterator[str]:
        """What failed, what stands from before, what was tried again."""
        progress = self.progress
        if progress.earlier:
            yield f"  {progress.earlier} of them stand from before this invocation"
        for name, count in progress.failures_by_class.items():
            yield f"  failed: {count} {printable(name)}"
        if progress.terminal_failures:
            yield f"  {progress.terminal_failures} of the failures are final: terminal, or the last attempt allowed"
        if progress.retries:
            yield f"  {progress.retries} requests were sent again"
        if progress.later_attempts:
            yield f"  {progress.later_attempts} rollouts ended in an attempt after their first"

    def _reward_lines(self) -> Iterator[str]:
        """How long results took, and both means with what they are over."""
        progress = self.progress
        if progress.latency_ms:
            spread = "  ".join(f"{name} {seconds(value / 1000)}" for name, value in progress.latency_ms.items())
            yield f"  latency of results: {spread}"
        if progress.mean_reward is not None:
            over = f"over {progress.rewarded} results" + (
                f", {progress.masked} masked left out" if progress.masked else ""
            )
            yield f"  mean reward {progress.mean_reward:.4f} {over}"
            with_zeros = progress.mean_reward_failures_as_zero
            if progress.failures and with_zeros is not None:
                yield f"  mean reward {with_zeros:.4f} with {progress.failures} failures as zero"


def seconds(value: float) -> str:
    """A duration as a person writes it."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def score_lines(score: Score) -> Iterator[str]:
    """The mean of one agent on one server with its error, and pass@k with the tasks that are too small for it."""
    label = f"{score.agent} on {score.server}" if score.agent else score.server
    interval = score.interval_95
    error = f" (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval is not None else ""
    yield f"{printable(label)}: mean {score.mean:.4f}{error} of {score.scored} results of {score.tasks} tasks"
    passes = []
    for each in score.pass_at:
        if each.value is not None:
            few = f" ({each.undefined} tasks have fewer)" if each.undefined else ""
            passes.append(f"pass@{each.k} {each.value:.4f}{few}")
    yield f"  {', '.join(passes)}"


def metric_lines(entry: dict[str, Any]) -> Iterator[str]:
    """One environment server's key metrics, or why there are none."""
    label, server = entry[keys.AGENT_REF][keys.NAME], entry[keys.ENVIRONMENT_SERVER]
    yield f"  {printable(label)} on {printable(server)}"
    if (error := entry.get(keys.AGGREGATION_ERROR)) is not None:
        yield f"    not aggregated: {printable(error['type'])}: {printable(error['message'])}"
    metrics = {printable(name): value for name, value in entry[keys.KEY_METRICS].items()}
    width = max(map(len, metrics), default=0)
    for name, value in metrics.items():
        shown = f"{value:.4f}" if isinstance(value, float) else printable(str(value))
        yield f"    {name:<{width}}  {shown}"

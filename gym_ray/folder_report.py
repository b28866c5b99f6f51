"""What a run folder has to say about its run, from its files alone: `gym-ray report`."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from gym_ray.actors.outputs import read_index, read_metrics
from gym_ray.errors import RunFolderError
from gym_ray.observe.latency import LatencyHistogram
from gym_ray.observe.printable import printable
from gym_ray.observe.quality import Quality, finding_lines
from gym_ray.observe.report import metric_lines, score_lines, seconds
from gym_ray.observe.scores import Score, Scores
from gym_ray.observe.signatures import Signature, Signatures
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.paths import RunPaths
from gym_ray.recording.attempts import Ended, read_attempts
from gym_ray.recording.found import FoundRun, find_run
from gym_ray.recording.history import History
from gym_ray.recording.plan_files import PlanFiles
from gym_ray.recording.run_files import record_files
from gym_ray.recording.verification import Verification, verify_run
from gym_ray.recording.winners import RecordIndex

MAX_SLOWEST = 5
MAX_SIGNATURES = 10


@dataclass(frozen=True, slots=True)
class SlowRollout:
    """One of the rollouts that took longest."""

    rollout: str
    attempt: int
    server: str
    latency_s: float


@dataclass(slots=True)
class FolderReport:
    """A run, read from its folder."""

    checked: Verification
    scores: tuple[Score, ...] = ()
    reward_sum: float = 0.0
    rewarded: int = 0
    masked: int = 0
    signatures: list[Signature] = field(default_factory=list)
    """Of the failures that decide their rollouts."""
    failed_attempts: int = 0
    """Sidecar rows in all, those of rollouts that have a result by now included."""
    latency_ms: dict[str, float] = field(default_factory=dict)
    server_latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    slowest: list[SlowRollout] = field(default_factory=list)
    resends: int = 0
    later_attempts: int = 0
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    resume_command: str | None = None

    @property
    def mean_reward(self) -> float | None:
        """Over the results that carry a reward and are not masked."""
        return self.reward_sum / self.rewarded if self.rewarded else None

    @property
    def mean_reward_failures_as_zero(self) -> float | None:
        """The same with every failure counted as a reward of zero."""
        over = self.rewarded + self.checked.failures + self.checked.final_failures
        return self.reward_sum / over if over else None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            **{name: value for name, value in asdict(self).items() if name not in ("checked", "scores")},
            "run": self.checked.to_dict(),
            "scores": [score.to_dict() for score in self.scores],
            "mean_reward": self.mean_reward,
            "mean_reward_failures_as_zero": self.mean_reward_failures_as_zero,
        }

    def lines(self) -> Iterator[str]:
        """The report as lines of plain text; what came from servers or data is made printable."""
        yield from (printable(line, 2000) for line in self.checked.lines())
        yield from self._reward_lines()
        yield from (f"  {line}" for score in self.scores for line in score_lines(score))
        yield from (line for entry in self.metrics for line in metric_lines(entry))
        yield from self._failure_lines()
        yield from self._time_lines()
        yield from (f"  {printable(line, 500)}" for line in finding_lines(self.findings))
        if not self.checked.is_complete and self.resume_command is not None:
            yield f"  to go on: {printable(self.resume_command, 1000)}"

    def _reward_lines(self) -> Iterator[str]:
        mean, with_zeros = self.mean_reward, self.mean_reward_failures_as_zero
        if mean is not None and with_zeros is not None:
            masked = f", {self.masked} masked left out" if self.masked else ""
            yield f"  mean reward {mean:.4f} over {self.rewarded} results{masked}"
            failures = self.checked.failures + self.checked.final_failures
            yield f"  mean reward {with_zeros:.4f} over {self.rewarded + failures}, {failures} failures as zero"

    def _failure_lines(self) -> Iterator[str]:
        for group in self.signatures[:MAX_SIGNATURES]:
            yield f"  {group.count} failed: {printable(group.text, 300)} ({', '.join(group.examples)})"
        if len(self.signatures) > MAX_SIGNATURES:
            yield f"  and {len(self.signatures) - MAX_SIGNATURES} kinds of failures more"
        if self.failed_attempts:
            yield f"  {self.failed_attempts} attempts failed in all"
        if self.resends:
            yield f"  {self.resends} requests were sent again"
        if self.later_attempts:
            yield f"  {self.later_attempts} attempts came after a first one"

    def _time_lines(self) -> Iterator[str]:
        if self.latency_ms:
            yield f"  latency of results: {_spread(self.latency_ms)}"
        if len(self.server_latency_ms) > 1:
            for server, spread in self.server_latency_ms.items():
                yield f"    {printable(server)}: {_spread(spread)}"
        for slow in self.slowest:
            attempt = f" attempt {slow.attempt}" if slow.attempt else ""
            yield f"  slow: {slow.rollout}{attempt} on {printable(slow.server)} took {seconds(slow.latency_s)}"


def report_folder(paths: RunPaths) -> FolderReport:
    """Read a run folder; a few passes over its files, a few hundred bytes for each rollout.

    Raises:
        RunFolderError: there is no run with this output, or only records.
        InputError: a record file is damaged.
    """
    found = find_run(paths)
    if found is None or not found.has_plan:
        raise RunFolderError(f"{paths.directory}: there is no run named {paths.stem!r} with its plan")
    report = FolderReport(verify_run(found.paths))
    plan = PlanFiles.open(found.paths, found.shards, lambda _: 0)
    try:
        index = read_index(found.paths)
        servers = _servers(plan, index)
        _read_records(found, plan, index, servers, report)
        _read_times(found.paths, plan, servers, report)
    finally:
        plan.close()
    if found.paths.aggregate_metrics.exists():
        report.metrics = read_metrics(found.paths)
    if found.paths.resolved_config.exists():
        report.resume_command = f"gym-ray run --config {found.paths.resolved_config} --resume"
    return report


def _servers(plan: PlanFiles, index: RecordIndex) -> dict[tuple[int, int], str]:
    """The environment server of every planned rollout: that of its row, or that on the records of its agent."""
    fronting = {entry.origin.agent: entry.origin.server for entry in index if entry.origin.server is not None}
    names: dict[tuple[int, int], str] = {}
    for number in range(len(plan)):
        agent = plan.agent(number)
        names[plan.key(number)] = plan.server_stamp(number) or fronting.get(agent) or agent or ""
    return names


def _read_records(
    found: FoundRun,
    plan: PlanFiles,
    index: RecordIndex,
    servers: dict[tuple[int, int], str],
    report: FolderReport,
) -> None:
    history = History.read(map(plan.key, range(len(plan))), record_files(found.paths))
    scores, quality, signatures = Scores(), Quality(), Signatures()
    failed: Counter[str] = Counter()
    for number in range(len(plan)):
        key = plan.key(number)
        failed[servers[key]] += history.has_failure(number)
        reward = history.reward(number)
        if not history.has_result(number) or reward is None:
            continue
        if history.is_masked(number):
            report.masked += 1
            continue
        report.reward_sum += reward
        report.rewarded += 1
        scores.add(servers[key], plan.agent(number), key[0], reward)
    for key, line in index.keyed_lines():
        quality.add(key, line)
    for entry in index:
        if not entry.is_result:
            signatures.add(f"{entry.task}-{entry.rollout}", json.loads(index.read_line(entry)))
    report.scores = scores.summary()
    report.signatures = signatures.ranked()
    report.failed_attempts = history.failed_attempts
    report.findings = quality.findings(failed)


def _read_times(paths: RunPaths, plan: PlanFiles, servers: dict[tuple[int, int], str], report: FolderReport) -> None:
    overall, by_server = LatencyHistogram(), dict[str, LatencyHistogram]()
    slowest: list[tuple[float, Ended]] = []
    for event in read_attempts(paths.attempts):
        if not isinstance(event, Ended):
            continue
        report.resends += max(event.sends - 1, 0)
        report.later_attempts += event.attempt > 0
        if event.kind != OutcomeKind.RESULT:
            continue
        overall.add(event.latency_ms)
        server = servers.get((event.task, event.rollout), "")
        by_server.setdefault(server, LatencyHistogram()).add(event.latency_ms)
        slowest = sorted([*slowest, (event.latency_ms, event)], key=lambda item: -item[0])[:MAX_SLOWEST]
    report.latency_ms = _percentiles(overall)
    report.server_latency_ms = {server: _percentiles(histogram) for server, histogram in sorted(by_server.items())}
    report.slowest = [
        SlowRollout(
            f"{event.task}-{event.rollout}", event.attempt, servers.get((event.task, event.rollout), ""), latency / 1000
        )
        for latency, event in slowest
    ]


def _percentiles(histogram: LatencyHistogram) -> dict[str, float]:
    if not histogram.count:
        return {}
    found = {f"p{percent}": histogram.percentile(percent) for percent in (50, 90, 99)}
    return {name: value for name, value in found.items() if value is not None} | {"max": histogram.max_ms}


def _spread(latency_ms: dict[str, float]) -> str:
    return "  ".join(f"{name} {seconds(value / 1000)}" for name, value in latency_ms.items())

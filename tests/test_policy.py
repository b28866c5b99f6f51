"""Zeros, strict runs and coverage bars, over whole runs and over aggregation alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner, aggregate_run
from gym_ray.errors import IncompleteRunError
from gym_ray.example import ExampleDeployment, example_in_thread, example_rows
from gym_ray.observe.report import RunReport
from gym_ray.recording.run_names import run_at
from gym_ray.recording.verification import verify_run

SERVER = "arithmetic_environment_server"


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread() as deployment:
        yield deployment


class Run:
    """A run of 4 tasks with 2 repeats, from which records may be taken."""

    def __init__(self, folder: Path, served: ExampleDeployment) -> None:
        self.folder, self._served = folder / "out", served
        self._rows = folder / "rows.jsonl"
        lines = example_rows("arithmetic").read_text().splitlines(keepends=True)[:4]
        self._rows.write_text("".join(json.dumps({**json.loads(line), "level": 7}) + "\n" for line in lines))

    def config(self, **settings: Any) -> RolloutCollectionConfig:
        return RolloutCollectionConfig(
            input_jsonl_fpath=str(self._rows), output_jsonl_fpath=str(self.folder / "r.jsonl"), num_repeats=2,
            executor="local", shards=1, head=self._served.head_address, **settings,
        )  # fmt: skip

    async def collect(self, **settings: Any) -> RunReport:
        async with RolloutRunner(self.config(**settings)) as runner:
            return await runner.collect()

    def fail(self, count: int, **fields: Any) -> None:
        """Turn the last results into failures."""
        results, sidecar = self.folder / "r-0.jsonl", self.folder / "r-0_failures.jsonl"
        lines = results.read_text().splitlines(keepends=True)
        results.write_text("".join(lines[:-count]))
        kept = ("_ng_task_index", "_ng_rollout_index", "agent_ref", "_ng_environment_server")
        with sidecar.open("a") as stream:
            for line in lines[-count:]:
                row = json.loads(line)
                stream.write(json.dumps({key: row[key] for key in kept if key in row} | fields) + "\n")
        for name in ("r_run_status.json", "r_attempts.csv"):
            (self.folder / name).unlink()

    def drop(self, count: int) -> None:
        results = self.folder / "r-0.jsonl"
        results.write_text("".join(results.read_text().splitlines(keepends=True)[:-count]))
        for name in ("r_run_status.json", "r_attempts.csv"):
            (self.folder / name).unlink()

    def mean(self) -> float:
        (entry,) = json.loads((self.folder / "r_aggregate_metrics.json").read_text())
        return float(entry["key_metrics"]["mean/reward"])

    def rewards(self) -> float:
        return sum(json.loads(line)["reward"] for line in (self.folder / "r-0.jsonl").read_text().splitlines())

    def coverage(self) -> dict[str, Any]:
        return json.loads((self.folder / "r_coverage.json").read_text())


@pytest.fixture
def run(tmp_path: Path, served: ExampleDeployment) -> Run:
    return Run(tmp_path, served)


async def test_failures_of_named_classes_and_gaps_count_as_zeros_when_asked(run: Run) -> None:
    await run.collect()
    run.fail(2, _ng_failure_class="agent_timeout", _ng_failure_terminal=True)
    await aggregate_run(run.config())
    assert run.mean() == pytest.approx(run.rewards() / 6)
    await aggregate_run(run.config(count_failure_classes_as_zero=["agent_timeout"]))
    assert run.mean() == pytest.approx(run.rewards() / 8)
    report = await run.collect(resume_from_cache=True, count_failure_classes_as_zero=["agent_timeout"])
    assert run.mean() == pytest.approx(run.rewards() / 8)
    assert "2 rollouts without a result count as zeros" in "\n".join(report.lines())
    assert (run.coverage()["scored"], run.coverage()["imputed"], run.coverage()["missing"]) == (8, 2, 0)


async def test_gaps_count_as_zeros_when_asked(run: Run) -> None:
    await run.collect()
    run.drop(3)
    await aggregate_run(run.config(count_missing_rollouts_as_zero=True))
    assert run.mean() == pytest.approx(run.rewards() / 8)
    await aggregate_run(run.config())
    assert run.mean() == pytest.approx(run.rewards() / 5)


async def test_a_final_zero_counts_whatever_the_policy_and_is_not_run_again(run: Run) -> None:
    await run.collect()
    run.fail(1, _ng_failure_class="model_gave_up", _ng_failure_counts_as_zero=True)
    report = await run.collect(resume_from_cache=True, require_complete=True)
    assert report.rejection is None
    assert report.is_complete
    assert run.mean() == pytest.approx(run.rewards() / 8)


async def test_an_unfinished_strict_run_publishes_no_score(run: Run, served: ExampleDeployment) -> None:
    await run.collect()
    run.fail(2, _ng_failure_class="agent_run_error")
    aggregations = served.servers[SERVER].stats()["aggregations"]
    report = await run.collect(resume_from_cache=True, only=["missing"], require_complete=True)
    assert served.servers[SERVER].stats()["aggregations"] == aggregations
    assert not (run.folder / "r_aggregate_metrics.json").exists(), "nor does an earlier score stay"
    assert (run.folder / "r_aggregate_metrics.json.superseded").exists()
    assert (report.exit_code, report.scores, report.metrics) == (1, (), ())
    assert "NO SCORE" in "\n".join(report.lines())
    done = await run.collect(resume_from_cache=True, require_complete=True)
    assert (done.exit_code, done.rejection) == (0, None)
    assert verify_run(run_at(str(run.folder))).problems == []


async def test_a_strict_run_that_moved_on_can_be_continued(run: Run) -> None:
    report = await run.collect(require_complete=True, token_budget=0)
    assert report.exit_code == 1, "nothing ran, so running it again would not help"
    report = await run.collect(resume_from_cache=True, require_complete=True, token_budget=1, num_samples_in_parallel=1)
    assert isinstance(report.rejection, IncompleteRunError)
    assert report.exit_code == 3


async def test_a_bar_for_coverage_makes_most_of_a_run_enough(run: Run) -> None:
    await run.collect()
    run.fail(2, _ng_failure_class="agent_run_error")
    enough = await run.collect(resume_from_cache=True, only=["missing"], min_coverage=0.75)
    assert (enough.is_complete, enough.exit_code) == (False, 0)
    more = await run.collect(resume_from_cache=True, only=["missing"], min_coverage=0.76)
    assert more.exit_code == 3

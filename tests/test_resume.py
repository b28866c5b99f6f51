"""A run is continued: what was settled is not run again, whatever the number of shards and however it ended."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import ConfigError, InputError, ResumeRefusedError, RunFolderError
from gym_ray.example import ExampleDeployment, LedgerOptions, example_in_thread, example_rows
from gym_ray.observe.report import RunReport
from gym_ray.paths import RunPaths
from gym_ray.recording.found import find_run
from gym_ray.recording.run_lock import RunLock
from gym_ray.recording.standing import counted_status
from gym_ray.recording.status import AgentStatus, RunState, read_status

TASKS, REPEATS = 6, 2


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(ledger=LedgerOptions(capacity=10_000)) as deployment:
        yield deployment


class Place:
    """One output folder, and what its runs made the server execute."""

    def __init__(self, folder: Path, served: ExampleDeployment) -> None:
        self.folder = folder / "out"
        self._served = served
        self._rows = folder / "rows.jsonl"
        lines = example_rows("arithmetic").read_text().splitlines()[:TASKS]
        self._rows.write_text("\n".join(lines) + "\n")
        self._seen = 0

    def settings(self, **settings: Any) -> RolloutCollectionConfig:
        given: dict[str, Any] = {
            "executor": "local",
            "num_repeats": REPEATS,
            "shards": 2,
            "head": self._served.head_address,
            "input_jsonl_fpath": str(self._rows),
            "output_jsonl_fpath": str(self.folder / "r.jsonl"),
        }
        return RolloutCollectionConfig(**{**given, **settings})

    async def run(self, **settings: Any) -> RunReport:
        async with RolloutRunner(self.settings(**settings)) as runner:
            return await runner.collect()

    async def resume(self, **settings: Any) -> RunReport:
        return await self.run(resume_from_cache=True, **settings)

    def executions(self) -> list[tuple[int, int, int]]:
        """(task, rollout, attempt) since the last call."""
        every: Any = self._served.servers["arithmetic_environment_server"].stats()["executions"]
        new, self._seen = every[self._seen :], len(every)
        return [(int(task), rollout, attempt) for task, rollout, attempt in new]

    def results(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("r-*[0-9].jsonl"))
        return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]

    def keys(self) -> Counter[tuple[int, int]]:
        return Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.results())

    def drop(self, name: str, lines: int) -> list[dict[str, Any]]:
        """Take the last lines off a file, with what the run has made of them; as if it had been killed before."""
        path = self.folder / name
        content = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(content[:-lines]))
        for other in ("r.jsonl", "r_aggregate_metrics.json", "r_run_status.json", "r_attempts.csv"):
            (self.folder / other).unlink()
        return [json.loads(line) for line in content[-lines:]]


@pytest.fixture
def place(tmp_path: Path, served: ExampleDeployment) -> Place:
    place = Place(tmp_path, served)
    place.executions()
    return place


PLANNED = Counter((task, rollout) for task in range(TASKS) for rollout in range(REPEATS))


@pytest.mark.parametrize("shards", [1, 2, 5])
async def test_only_what_has_no_result_is_run_with_any_number_of_shards(place: Place, shards: int) -> None:
    await place.run()
    whole = (place.folder / "r.jsonl").read_bytes()
    lost = place.drop("r-1.jsonl", 2)
    place.executions()
    report = await place.resume(shards=shards)
    assert sorted(place.executions()) == sorted((row["_ng_task_index"], row["_ng_rollout_index"], 0) for row in lost)
    assert report.is_complete
    assert (report.progress.earlier, report.progress.results) == (10, 12)
    assert place.keys() == PLANNED
    assert (place.folder / "r.jsonl").read_bytes() == whole, "and nobody can tell from the results"


async def test_an_attempt_that_was_handed_out_keeps_its_number(place: Place) -> None:
    await place.run()
    log = (place.folder / "r_attempts.csv").read_bytes()
    lost = place.drop("r-0.jsonl", 1)
    (place.folder / "r_attempts.csv").write_bytes(log)
    place.executions()
    await place.resume()
    assert place.executions() == [(row["_ng_task_index"], row["_ng_rollout_index"], 1) for row in lost]
    assert [row["_ng_attempt_index"] for row in place.results() if row.get("_ng_attempt_index")] == [1]


async def test_a_finished_run_is_left_as_it_is(place: Place, served: ExampleDeployment) -> None:
    first = await place.run()
    before = {path.name: path.read_bytes() for path in place.folder.iterdir() if path.suffix in (".jsonl", ".csv")}
    aggregated = served.servers["arithmetic_environment_server"].stats()["aggregations"]
    place.executions()
    again = await place.resume()
    assert place.executions() == []
    assert served.servers["arithmetic_environment_server"].stats()["aggregations"] == aggregated
    assert (again.run_id, again.metrics, again.is_complete) == (first.run_id, first.metrics, True)
    assert before == {
        path.name: path.read_bytes() for path in place.folder.iterdir() if path.suffix in (".jsonl", ".csv")
    }


async def test_a_run_that_lost_only_its_summary_is_merged_and_aggregated(place: Place) -> None:
    first = await place.run()
    (place.folder / "r.jsonl").unlink()
    (place.folder / "r_aggregate_metrics.json").unlink()
    place.executions()
    again = await place.resume()
    assert place.executions() == []
    assert again.metrics == first.metrics
    assert len((place.folder / "r.jsonl").read_bytes().splitlines()) == 12


async def test_failures_are_tried_again_until_they_are_final(place: Place, served: ExampleDeployment) -> None:
    await place.run()
    rows = [
        {"_ng_failure_class": "agent_run_error"},
        {"_ng_failure_class": "agent_run_error", "_ng_failure_terminal": True},
        {"_ng_failure_class": "cancelled"},
    ]
    lost = place.drop("r-0.jsonl", 3)
    with (place.folder / "r-0_failures.jsonl").open("a") as sidecar:
        for stamps, row in zip(lost, rows, strict=True):
            own = {key: stamps[key] for key in ("_ng_task_index", "_ng_rollout_index")}
            sidecar.write(json.dumps({**own, **row}) + "\n")
    place.executions()
    report = await place.resume()
    again = [(row["_ng_task_index"], row["_ng_rollout_index"], 1) for row in (lost[0], lost[2])]
    assert sorted(place.executions()) == sorted(again)
    assert (report.progress.results, report.progress.failures, report.progress.terminal_failures) == (11, 1, 1)
    assert report.is_complete
    only = await place.resume(only=["failed:agent_*"])
    assert place.executions() == [(lost[1]["_ng_task_index"], lost[1]["_ng_rollout_index"], 1)]
    assert (only.progress.results, only.progress.failures) == (12, 0)


async def test_a_selection_leaves_the_rest_owed(place: Place) -> None:
    await place.run()
    lost = place.drop("r-0.jsonl", 2)
    with (place.folder / "r-0_failures.jsonl").open("a") as sidecar:
        own = {key: lost[0][key] for key in ("_ng_task_index", "_ng_rollout_index")}
        sidecar.write(json.dumps({**own, "_ng_failure_class": "agent_run_error"}) + "\n")
    place.executions()
    nothing = await place.resume(only=["failed:judge_*"])
    assert place.executions() == []
    assert (nothing.progress.owed, nothing.progress.failures, nothing.exit_code) == (1, 1, 3)
    missing = await place.resume(only=["missing"])
    assert place.executions() == [(lost[1]["_ng_task_index"], lost[1]["_ng_rollout_index"], 0)]
    assert (missing.progress.owed, missing.progress.failures) == (0, 1)


async def test_more_repeats_are_added_and_earlier_records_stand(place: Place) -> None:
    await place.run()
    before = place.results()
    place.executions()
    with pytest.raises(ResumeRefusedError, match=r"num_repeats.*gym-ray extend"):
        await place.resume(num_repeats=3)
    assert place.executions() == []
    report = await place.resume(num_repeats=3, extend=True)
    assert sorted(place.executions()) == [(task, 2, 0) for task in range(TASKS)]
    assert report.progress.results == 18
    assert report.is_complete
    assert all(row in place.results() for row in before)
    again = await place.resume(num_repeats=3)
    assert place.executions() == []
    assert again.is_complete
    for shard in range(2):
        rows = (place.folder / f"r-{shard}_materialized_inputs.jsonl").read_text().splitlines()
        tasks = {json.loads(row)["_ng_task_index"] for row in rows}
        recorded = (place.folder / f"r-{shard}.jsonl").read_text().splitlines()
        assert {json.loads(row)["_ng_task_index"] for row in recorded} == tasks, "a task stays in its shard"
    with pytest.raises(ResumeRefusedError, match="6 rollouts would be missing"):
        await place.resume(num_repeats=2, extend=True)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"limit": 3}, r"settings differ \(limit\); 6 rollouts would be missing"),
        ({"responses_create_params": {"temperature": 0.5}}, "responses_create_params differ"),
    ],
)
async def test_another_plan_is_refused_by_the_names_of_what_differs(
    place: Place, settings: dict[str, Any], named: str
) -> None:
    await place.run()
    before = {path.name: path.read_bytes() for path in place.folder.iterdir() if path.is_file()}
    place.executions()
    with pytest.raises(ResumeRefusedError, match=named):
        await place.resume(**settings)
    assert place.executions() == []
    assert before == {path.name: path.read_bytes() for path in place.folder.iterdir() if path.is_file()}


async def test_what_does_not_matter_may_differ(place: Place) -> None:
    await place.run()
    place.executions()
    report = await place.resume(
        num_samples_in_parallel=3, interleave_repeats=True, rollout_timeout_s=60.0, retry_requests=False, limit=TASKS
    )
    assert report.is_complete
    assert place.executions() == []


async def test_a_deployment_that_is_set_up_otherwise_is_refused_by_key(place: Place, tmp_path: Path) -> None:
    def deployment(port: int, model: str, key: str) -> str:
        file = tmp_path / "deployment.yaml"
        reference = {"type": "responses_api_models", "name": "policy"}
        env = {"agent_server": {"type": "responses_api_agents", "name": "arithmetic_agent"}, "host": "127.0.0.1"}
        agent = {"model_server": reference, "host": "127.0.0.1", "port": 1}
        config = {
            "env": {"environment_servers": {"legacy_agent": {**env, "port": port}}},
            "arithmetic_agent": {"responses_api_agents": {"simple_agent": agent}},
            "policy": {"responses_api_models": {"m": {"model": model, "api_key": key, "base_url": f"http://h:{port}"}}},
            "unused": {"responses_api_models": {"m": {"model": key}}},
        }
        file.write_text(json.dumps(config))
        return str(file)

    dead = {"retry_budget_s": 0.01, "head": None, "disable_aggregation": True}
    await place.run(deployment=deployment(1, "small", "k1"), **dead)
    await place.resume(deployment=deployment(2, "small", "k2"), **dead)
    with pytest.raises(ResumeRefusedError, match=r"policy\.responses_api_models\.m\.model:"):
        await place.resume(deployment=deployment(2, "large", "k2"), **dead)
    manifest = (place.folder / "r-0_manifest.json").read_text()
    assert "small" not in manifest
    assert "k1" not in manifest


async def test_a_torn_tail_is_repaired_and_damage_inside_is_named(place: Place) -> None:
    await place.run()
    lost = place.drop("r-0.jsonl", 1)
    path = place.folder / "r-0.jsonl"
    path.write_bytes(path.read_bytes() + b'{"_ng_task_index": 3, "cut')
    place.executions()
    report = await place.resume()
    assert report.is_complete
    assert [(task, rollout) for task, rollout, _ in place.executions()] == [
        (row["_ng_task_index"], row["_ng_rollout_index"]) for row in lost
    ]
    assert (place.folder / "r-0.jsonl.torn-1").read_bytes().startswith(b'{"_ng_task_index": 3')
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:30] + b"\n", *lines[2:]]))
    damaged = path.read_bytes()
    with pytest.raises(InputError, match=r"r-0\.jsonl:2: "):
        await place.resume()
    assert path.read_bytes() == damaged


async def test_records_without_a_plan_get_one(place: Place) -> None:
    await place.run()
    place.drop("r-1.jsonl", 1)
    for path in place.folder.iterdir():
        if "materialized" in path.name or "manifest" in path.name:
            path.unlink()
    place.executions()
    report = await place.resume()
    assert len(place.executions()) == 1
    assert report.is_complete
    assert len(list(place.folder.glob("*_materialized_inputs.jsonl"))) == 2


async def test_records_of_another_plan_are_refused(place: Place) -> None:
    await place.run()
    for path in place.folder.iterdir():
        if "materialized" in path.name or "manifest" in path.name:
            path.unlink()
    with pytest.raises(RunFolderError, match="6 records of rollouts that the plan does not have"):
        await place.resume(limit=3)


async def test_a_run_of_one_file_is_continued_in_its_file(place: Place) -> None:
    await place.run(shards=1)
    lost = place.drop("r-0.jsonl", 2)
    single = place.folder.parent / "single"
    single.mkdir()
    for name in ("r-0.jsonl", "r-0_failures.jsonl", "r-0_materialized_inputs.jsonl"):
        shutil.copy(place.folder / name, single / name.replace("r-0", "r"))
    place.executions()
    report = await place.resume(output_jsonl_fpath=str(single / "r.jsonl"))
    assert len(place.executions()) == len(lost)
    assert report.is_complete
    assert len((single / "r.jsonl").read_bytes().splitlines()) == 12
    assert not list(single.glob("r-*"))
    place.executions()
    assert (await place.resume(output_jsonl_fpath=str(single / "r.jsonl"))).is_complete
    assert place.executions() == []


async def test_a_shard_is_continued_by_itself(place: Place) -> None:
    """As the protocol says it: its materialized inputs are the input, its results the output."""
    await place.run()
    lost = place.drop("r-1.jsonl", 2)
    place.executions()
    report = await place.resume(
        input_jsonl_fpath=str(place.folder / "r-1_materialized_inputs.jsonl"),
        output_jsonl_fpath=str(place.folder / "r-1.jsonl"),
        num_repeats=1,
    )
    assert sorted(place.executions()) == sorted((row["_ng_task_index"], row["_ng_rollout_index"], 0) for row in lost)
    assert report.is_complete
    assert place.keys() == PLANNED


async def test_a_plan_that_was_killed_in_the_middle_of_its_birth_is_made_again(place: Place) -> None:
    await place.run(shards=3)
    for path in place.folder.iterdir():
        if path.name not in ("r-1_materialized_inputs.jsonl", "r-2_materialized_inputs.jsonl", "r-1_manifest.json"):
            path.unlink()
    with pytest.raises(RunFolderError, match="--fresh"):
        await place.run()
    report = await place.resume()
    assert report.is_complete
    assert place.keys() == PLANNED
    assert len(list(place.folder.glob("r.archive-*/*"))) == 3, "nothing is deleted"


async def test_nothing_to_continue_begins_a_run(place: Place) -> None:
    report = await place.resume()
    assert report.is_complete
    assert place.keys() == PLANNED


async def test_contradictions_are_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        place.settings(fresh=True, resume_from_cache=True)
    with pytest.raises(ValueError, match="--resume"):
        place.settings(only=["missing"])
    with pytest.raises(ValueError, match="expected missing, failed or failed:CLASS"):
        place.settings(only=["all"], resume_from_cache=True)
    with pytest.raises(ConfigError, match="holds no run"):
        await place.resume(extend=True)
    with pytest.raises(ConfigError, match="name the run to continue"):
        await place.resume(output_jsonl_fpath=None)


async def test_a_second_run_is_refused_with_who_holds_the_folder(place: Place) -> None:
    await place.run()
    lock = RunLock(RunPaths.of_output(place.folder / "r.jsonl"), "other")
    try:
        with pytest.raises(RunFolderError, match=f"run other on .*, process {os.getpid()}, since 20"):
            await place.resume()
    finally:
        lock.release()


async def test_the_longest_start_first(place: Place) -> None:
    await place.run()
    lost = place.drop("r-0.jsonl", 3)
    with (place.folder / "r-0_failures.jsonl").open("a") as sidecar:
        for seconds, row in zip((2, 9, 5), lost, strict=True):
            own = {key: row[key] for key in ("_ng_task_index", "_ng_rollout_index")}
            own |= {"_ng_failure_class": "agent_timeout", "elapsed_seconds": seconds}
            sidecar.write(json.dumps(own) + "\n")
    place.executions()
    await place.resume(dispatch_longest_first=True, num_samples_in_parallel=1)
    order = [lost[position] for position in (1, 2, 0)]
    assert place.executions() == [(row["_ng_task_index"], row["_ng_rollout_index"], 1) for row in order]


async def test_the_status_counts_by_agent_also_over_a_continuation_and_from_files_alone(place: Place) -> None:
    whole = {"arithmetic_agent": AgentStatus(PLANNED.total(), PLANNED.total(), 0)}
    paths = RunPaths(place.folder, "r")
    await place.run()
    place.drop("r-0.jsonl", 2)
    found = find_run(paths)
    assert found is not None
    assert counted_status(found, RunState.INCOMPLETE).by_agent["arithmetic_agent"].completed == PLANNED.total() - 2
    await place.resume()
    said = read_status(paths)
    assert said is not None
    assert said.by_agent == counted_status(found, RunState.COMPLETE).by_agent == whole

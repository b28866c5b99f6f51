"""Records as Parquet: a run, its continuation and its readers do not care what they are written as."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.example import ExampleDeployment, example_in_thread, example_rows
from gym_ray.exporting import export_run
from gym_ray.observe.report import RunReport
from gym_ray.paths import RunPaths
from gym_ray.recording.verification import verify_run
from tests.cli.program import gym_ray

PLANNED = 24


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread() as deployment:
        yield deployment


def config(folder: Path, served: ExampleDeployment, **settings: Any) -> RolloutCollectionConfig:
    given: dict[str, Any] = {
        "input_jsonl_fpath": str(example_rows("arithmetic")), "limit": 12, "num_repeats": 2, "executor": "local",
        "head": served.head_address, "output_jsonl_fpath": str(folder / "r.jsonl"), "part_bytes": 5000,
    }  # fmt: skip
    return RolloutCollectionConfig(**{**given, **settings})


async def collect(folder: Path, served: ExampleDeployment, **settings: Any) -> RunReport:
    async with RolloutRunner(config(folder, served, **settings)) as runner:
        return await runner.collect()


def paths(folder: Path) -> RunPaths:
    return RunPaths.of_output(folder / "r.jsonl")


async def test_every_format_holds_the_same_records(served: ExampleDeployment, tmp_path: Path) -> None:
    exports = {}
    for name in ("jsonl", "parquet", "both"):
        report = await collect(tmp_path / name, served, record_format=name)
        assert report.is_complete
        checked = verify_run(paths(tmp_path / name))
        assert (checked.problems, checked.results, checked.duplicates) == ([], PLANNED, 0)
        export_run(paths(tmp_path / name), tmp_path / f"{name}.jsonl")
        exports[name] = (tmp_path / f"{name}.jsonl").read_bytes()
    assert exports["parquet"] == exports["both"] == exports["jsonl"] == (tmp_path / "jsonl" / "r.jsonl").read_bytes()
    assert not (tmp_path / "parquet" / "r.jsonl").exists(), "merging is left to those who ask for it"
    assert all(path.stat().st_size == 0 for path in (tmp_path / "parquet").glob("r-?.jsonl"))


async def test_parts_load_as_one_table_with_what_the_driver_knows(served: ExampleDeployment, tmp_path: Path) -> None:
    await collect(tmp_path, served, record_format="parquet")
    table = ds.dataset(sorted(tmp_path.glob("r-*_part-*.parquet"))).to_table()
    assert len(list(tmp_path.glob("r-0_part-*.parquet"))) > 1
    rows = table.to_pylist()
    assert Counter((row["task_index"], row["rollout_index"]) for row in rows) == Counter(
        (task, repeat) for task in range(12) for repeat in range(2)
    )
    for row in rows:
        record = json.loads(row["record"])
        assert row["reward"] == record["reward"]
        assert row["total_tokens"] == record["response"]["usage"]["total_tokens"]
        assert row["latency_ms"] > 0
        assert row["ended_at"].year >= 2024
        assert (row["is_result"], row["sends"], row["environment_server"]) == (True, 1, "arithmetic_environment_server")


async def test_a_run_in_parts_is_continued_also_in_another_format(served: ExampleDeployment, tmp_path: Path) -> None:
    await collect(tmp_path, served, record_format="parquet", token_budget=900, num_samples_in_parallel=4)
    before = verify_run(paths(tmp_path)).results
    assert 0 < before < PLANNED
    partly = await collect(
        tmp_path, served, record_format="jsonl", resume_from_cache=True, token_budget=900, num_samples_in_parallel=4
    )
    assert partly.progress.earlier == before
    report = await collect(tmp_path, served, record_format="parquet", resume_from_cache=True)
    assert report.is_complete
    checked = verify_run(paths(tmp_path))
    assert (checked.problems, checked.results, checked.duplicates) == ([], PLANNED, 0)
    tables = [pq.read_table(part) for part in tmp_path.glob("r-*_part-*.parquet")]
    assert sum(len(table) for table in tables) == PLANNED


async def test_a_kill_between_sealing_and_emptying_leaves_no_record_twice(
    served: ExampleDeployment, tmp_path: Path
) -> None:
    await collect(tmp_path, served, record_format="both", part_bytes=1 << 20)
    assert verify_run(paths(tmp_path)).duplicates == 0
    for name in ("r.jsonl", "r_aggregate_metrics.json"):
        (tmp_path / name).unlink()
    report = await collect(tmp_path, served, record_format="parquet", resume_from_cache=True)
    assert (report.progress.earlier, report.is_complete) == (PLANNED, True)
    assert sum(len(pq.read_table(part)) for part in tmp_path.glob("r-*_part-*.parquet")) == PLANNED
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("r-?.jsonl"))


async def test_a_damaged_part_is_named(served: ExampleDeployment, tmp_path: Path) -> None:
    await collect(tmp_path, served, record_format="parquet")
    part = sorted(tmp_path.glob("r-0_part-*.parquet"))[0]
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    (problem,) = verify_run(paths(tmp_path)).problems
    assert part.name in problem
    ended = gym_ray("report", tmp_path)
    assert ended.code == 2
    assert part.name in ended.err
    assert "Traceback" not in ended.err


async def test_exports_are_the_same_for_the_same_work(served: ExampleDeployment, tmp_path: Path) -> None:
    for name, shards in (("a", 1), ("b", 3)):
        await collect(tmp_path / name, served, shards=shards, record_format="parquet")
        for suffix in ("jsonl", "parquet", "csv"):
            ended = gym_ray("export", tmp_path / name, "--to", tmp_path / f"{name}.{suffix}")
            assert (ended.code, ended.out) == (0, f"{PLANNED} records\n"), ended.err
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    times = ("latency_ms", "ended_at")
    tables = [pq.read_table(tmp_path / f"{name}.parquet").drop_columns(list(times)) for name in "ab"]
    assert tables[0].equals(tables[1])
    sheets = []
    for name in "ab":
        with (tmp_path / f"{name}.csv").open(newline="") as stream:
            sheets.append([{k: v for k, v in row.items() if k not in times} for row in csv.DictReader(stream)])
    assert sheets[0] == sheets[1]
    assert [row["task_index"] for row in sheets[0]] == [str(task) for task in range(12) for _ in range(2)]


async def test_failures_are_exported_when_asked_and_formulas_are_text(
    served: ExampleDeployment, tmp_path: Path
) -> None:
    await collect(tmp_path, served, shards=1)
    sidecar = tmp_path / "r-0_failures.jsonl"
    results = tmp_path / "r-0.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1])
    results.write_text("".join(lines[:-1]))
    keys = {key: last[key] for key in ("_ng_task_index", "_ng_rollout_index")}
    sidecar.write_text(json.dumps({**keys, "_ng_failure_class": "=HYPERLINK(1)"}) + "\n")
    target = tmp_path / "all.csv"
    assert export_run(paths(tmp_path), target) == PLANNED - 1
    assert export_run(paths(tmp_path), target, with_failures=True) == PLANNED
    with target.open(newline="") as stream:
        (failure,) = [row for row in csv.DictReader(stream) if row["is_result"] == "false"]
    assert failure["failure_class"] == "'=HYPERLINK(1)"


def test_an_export_goes_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "r-0_materialized_inputs.jsonl").touch()
    (tmp_path / "r-0.jsonl").touch()
    with pytest.raises(ConfigError, match=r"\.jsonl, \.parquet, \.csv"):
        export_run(paths(tmp_path), tmp_path / "x.xlsx")
    with pytest.raises(ConfigError, match="choose another name"):
        export_run(paths(tmp_path), tmp_path / "r-0.jsonl")
    with pytest.raises(RunFolderError, match="no run named"):
        export_run(paths(tmp_path / "none"), tmp_path / "x.csv")

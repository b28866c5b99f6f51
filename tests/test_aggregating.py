"""Aggregation alone, over a run and over shards of several, gives what the run itself gave."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner, aggregate_run
from gym_ray.aggregating import shard_files
from gym_ray.errors import AggregationError, ConfigError
from gym_ray.example import ExampleDeployment, example_in_thread, example_rows
from tests.cli.program import gym_ray


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread() as deployment:
        yield deployment


def config(served: ExampleDeployment, output: Path, **settings: Any) -> RolloutCollectionConfig:
    given = {"head": served.head_address, "executor": "local", "num_repeats": 3, "limit": 10}
    return RolloutCollectionConfig(output_jsonl_fpath=str(output), **{**given, **settings})


async def collect(served: ExampleDeployment, output: Path, *names: str, **settings: Any) -> list[dict[str, Any]]:
    inputs = [str(example_rows(name)) for name in names or ("arithmetic",)]
    async with RolloutRunner(config(served, output, input_jsonl_fpath=inputs, **settings)) as runner:
        await runner.collect()
    return metrics(output)


def metrics(output: Path) -> list[dict[str, Any]]:
    return json.loads(output.with_name(f"{output.stem}_aggregate_metrics.json").read_text())


async def test_metrics_do_not_depend_on_shards_or_interruptions(served: ExampleDeployment, tmp_path: Path) -> None:
    whole = await collect(served, tmp_path / "one" / "r.jsonl", shards=1)
    assert await collect(served, tmp_path / "five" / "r.jsonl", shards=5) == whole
    for _ in range(4):
        pieces = await collect(
            served, tmp_path / "pieces" / "r.jsonl", shards=2, resume_from_cache=True, token_budget=1200,
            num_samples_in_parallel=2,
        )  # fmt: skip
    assert pieces == whole
    assert await collect(served, tmp_path / "parts" / "r.jsonl", record_format="parquet", part_bytes=4096) == whole
    again = await aggregate_run(config(served, tmp_path / "parts" / "r.jsonl"))
    assert again == whole


async def test_shards_of_several_runs_are_aggregated_together(served: ExampleDeployment, tmp_path: Path) -> None:
    first = await collect(served, tmp_path / "a" / "x.jsonl", "arithmetic")
    second = await collect(served, tmp_path / "b" / "y.jsonl", "calculator_tools", record_format="parquet")
    globs = f"{tmp_path}/a/x-*.jsonl, {tmp_path}/b/y-*.jsonl"
    both = await aggregate_run(config(served, tmp_path / "both.jsonl", input_glob=globs, merge_shards=True))
    assert both == sorted(first + second, key=lambda entry: str(entry["agent_ref"]["name"]))
    merged = [json.loads(line) for line in (tmp_path / "both.jsonl").read_text().splitlines()]
    assert len(merged) == 60, "equal indices of different servers are different rollouts"
    ended = gym_ray("aggregate", "-i", globs, "-o", tmp_path / "c.jsonl", "--head", served.head_address, "--json")
    assert (ended.code, json.loads(ended.out)) == (0, both)


async def test_each_shard_has_its_own_gaps(served: ExampleDeployment, tmp_path: Path) -> None:
    await collect(served, tmp_path / "x.jsonl", shards=2)
    shard = tmp_path / "x-0.jsonl"
    lines = shard.read_text().splitlines(keepends=True)
    shard.write_text("".join(lines[:-2]))
    kept = "".join((tmp_path / f"x-{name}.jsonl").read_text() for name in "01").splitlines()
    total = sum(json.loads(line)["reward"] for line in kept)
    globs = f"{tmp_path}/x-?.jsonl"
    settings: dict[str, Any] = {"input_glob": globs, "merge_shards": False}
    (entry,) = await aggregate_run(config(served, tmp_path / "out" / "z.jsonl", **settings))
    assert entry["key_metrics"]["mean/reward"] == pytest.approx(total / 28)
    (entry,) = await aggregate_run(
        config(served, tmp_path / "out" / "z.jsonl", count_missing_rollouts_as_zero=True, **settings)
    )
    assert entry["key_metrics"]["mean/reward"] == pytest.approx(total / 30)
    assert not (tmp_path / "out" / "z.jsonl").exists()


async def test_errors_are_raised_after_the_file_is_written_unless_asked_otherwise(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    with example_in_thread() as served:
        await collect(served, output)
        settings = config(served, output, deployment=None, aggregate_timeout_s=3.0)
    merged = {
        "arithmetic_environment_server": {"environment_servers": {"e": {
            "host": "127.0.0.1", "port": 1, "agent_server": {"name": "arithmetic_agent"}}}},
        "arithmetic_agent": {"responses_api_agents": {"s": {"host": "127.0.0.1", "port": 1}}},
    }  # fmt: skip
    (tmp_path / "d.yaml").write_text(json.dumps(merged))
    dead = settings.model_copy(update={"head": None, "deployment": str(tmp_path / "d.yaml")})
    with pytest.raises(AggregationError, match="arithmetic_agent"):
        await aggregate_run(dead)
    assert "aggregation_error" in metrics(output)[0]
    (entry,) = await aggregate_run(dead, raise_on_error=False)
    assert entry["key_metrics"] == {}


def test_globs_that_name_nothing_are_refused(tmp_path: Path) -> None:
    for name in ("a-0.jsonl", "a-0_failures.jsonl", "a-0_materialized_inputs.jsonl", "a-1.jsonl"):
        (tmp_path / name).touch()
    assert [path.name for path in shard_files(f"{tmp_path}/a-*.jsonl,{tmp_path}/a-1.jsonl")] == [
        "a-0.jsonl",
        "a-1.jsonl",
    ]
    for pattern in (f"{tmp_path}/none*", f"{tmp_path}/a-0_failures.jsonl", " , "):
        with pytest.raises(ConfigError, match="input_glob"):
            shard_files(pattern)

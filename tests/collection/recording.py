"""What `run_examples` promises about enriched results and recorded shards, whoever dispatches."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.example import ExampleDeployment, LedgerOptions, example_in_thread, profile_of_texts
from gym_ray.helper import RolloutCollectionHelper
from gym_ray.outcomes.failure_record import RolloutFailureRecord
from gym_ray.paths import RunPaths
from gym_ray.recording.standing import Standing, standing_of
from gym_ray.recording.verification import verify_run
from gym_ray.run_errors import RunResponseError
from tests.collection.contract import ARITHMETIC, executed, flat_rows, numbered


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(row: dict[str, Any]) -> tuple[int, int]:
    return row["_ng_task_index"], row["_ng_rollout_index"]


class RecordedExamplesContract:
    """Subclasses give `helper`."""

    @pytest.fixture
    def served(self) -> Iterator[ExampleDeployment]:
        with example_in_thread(ledger=LedgerOptions(capacity=1000)) as deployment:
            yield deployment

    @pytest.fixture
    def broken(self) -> Iterator[ExampleDeployment]:
        with example_in_thread(profile_of_texts("0", "0", "500=100%")) as deployment:
            yield deployment

    @pytest.fixture
    async def helper(self) -> AsyncIterator[RolloutCollectionHelper]:
        raise NotImplementedError
        yield

    async def test_a_shard_holds_every_rollout_and_verifies(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
    ) -> None:
        rows = numbered(helper, 4, 2)
        before = json.dumps(rows)
        got = [
            pair
            async for pair in helper.run_examples(
                rows, served.head_address, record_output_dir=tmp_path, record_shard="step-7"
            )
        ]
        assert json.dumps(rows) == before
        stem = tmp_path / "rollouts-step-7"
        results = lines(stem.with_name(f"{stem.name}.jsonl"))
        assert sorted(map(key, results)) == sorted(map(key, rows))
        by_key = {key(result): result for result in results}
        for row, result in got:
            assert result == by_key[key(result)]
            run_id = row["_ng_run_id"]
            assert row["_ng_rollout_id"] == result["_ng_rollout_id"] == f"{run_id}-{key(row)[0]}-{key(row)[1]}"
            assert result["_ng_environment_server"] == ARITHMETIC
        assert len({row["_ng_run_id"] for row, _ in got}) == 1
        checked = verify_run(RunPaths(tmp_path, "rollouts-step-7"))
        assert checked.problems == []
        assert checked.is_complete
        assert standing_of(RunPaths(tmp_path, "rollouts-step-7")).standing is Standing.COMPLETE

    async def test_a_shard_that_was_closed_early_says_so_and_can_be_continued(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
    ) -> None:
        rows = numbered(helper, 8)
        completions = helper.run_examples(
            rows, served.head_address, record_output_dir=tmp_path, record_shard=0, max_resident_tasks=2
        )
        async for _ in completions:
            break
        await completions.aclose_and_drain()
        standing = standing_of(RunPaths(tmp_path, "rollouts-0"))
        assert standing.standing is Standing.INCOMPLETE
        assert standing.status is not None
        recorded = len(lines(tmp_path / "rollouts-0.jsonl"))
        assert standing.status.completed == recorded < 8
        before = executed(served)
        settings = RolloutCollectionConfig(
            input_jsonl_fpath=str(tmp_path / "rollouts-0_materialized_inputs.jsonl"),
            output_jsonl_fpath=str(tmp_path / "rollouts-0.jsonl"),
            resume_from_cache=True,
            head=served.head_address,
            executor="local",
        )
        async with RolloutRunner(settings) as runner:
            report = await runner.collect()
        assert report.is_complete
        assert executed(served) - before == 8 - recorded
        assert Counter(map(key, lines(tmp_path / "rollouts-0.jsonl"))) == Counter(map(key, rows))
        with pytest.raises(ConfigError, match="num_repeats"):
            async with RolloutRunner(settings.model_copy(update={"num_repeats": 2})) as runner:
                await runner.collect()

    async def test_a_rollout_is_recorded_once(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
    ) -> None:
        shard: dict[str, Any] = {"record_output_dir": tmp_path, "record_shard": "a"}
        rows = numbered(helper, 4)
        first = [row async for row, _ in helper.run_examples(rows[:2], served.head_address, **shard)]
        with pytest.raises(RunFolderError, match="task 0 rollout 0, task 1 rollout 0 already"):
            helper.run_examples(rows, served.head_address, **shard)
        with pytest.raises(RunFolderError, match="other rows for task 1"):
            helper.run_examples([{**rows[1], "extra": 1}], served.head_address, **shard)
        with pytest.raises(ConfigError, match=r"rows\[1\].*twice"):
            helper.run_examples([rows[2], rows[2]], served.head_address, **shard)
        second = [row async for row, _ in helper.run_examples(rows[2:], served.head_address, **shard)]
        assert {row["_ng_run_id"] for row in first} == {row["_ng_run_id"] for row in second}
        assert verify_run(RunPaths(tmp_path, "rollouts-a")).is_complete

    async def test_routed_failures_are_typed_and_stay_owed_under_the_next_attempt(
        self, helper: RolloutCollectionHelper, broken: ExampleDeployment, tmp_path: Path
    ) -> None:
        rows = numbered(helper, 2)
        for attempt in range(2):
            async for row, outcome in helper.run_examples(
                rows, broken.head_address, None, True, record_output_dir=tmp_path, record_shard="f"
            ):
                assert isinstance(outcome, RolloutFailureRecord)
                assert outcome.episode_id.rollout_id == row["_ng_rollout_id"]
                assert (outcome.episode_id.attempt, outcome.run_id) == (attempt, row["_ng_run_id"])
        sidecar = lines(tmp_path / "rollouts-f_failures.jsonl")
        assert [row.get("_ng_attempt_index", 0) for row in sidecar] == [0, 0, 1, 1]
        assert all(row["_ng_failure_record"]["source"] == "collector" for row in sidecar)
        checked = verify_run(RunPaths(tmp_path, "rollouts-f"))
        assert (checked.failures, checked.problems) == (2, [])

    async def test_a_failure_that_is_raised_leaves_evidence_and_no_attempt(
        self, helper: RolloutCollectionHelper, broken: ExampleDeployment, tmp_path: Path
    ) -> None:
        completions = helper.run_examples(
            numbered(helper, 1), broken.head_address, record_output_dir=tmp_path, record_shard="r"
        )
        with pytest.raises(RunResponseError):
            await next(completions)
        await completions.aclose()
        (row,) = lines(tmp_path / "rollouts-r_failures.jsonl")
        assert row["_ng_unrouted_run_error"] is row["_ng_omitted_rollout"] is True
        checked = verify_run(RunPaths(tmp_path, "rollouts-r"))
        assert (checked.owed, checked.failures, checked.problems) == (1, 0, [])

    @pytest.mark.parametrize("asked", [True, False])
    async def test_what_never_started_leaves_a_row_only_if_asked(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path, asked: bool
    ) -> None:
        completions = helper.run_examples(
            numbered(helper, 3), served.head_address, record_output_dir=tmp_path, record_shard="d",
            record_omitted_rollouts=asked, dispatch_budget_s=0.0,
        )  # fmt: skip
        got = [result async for _, result in completions]
        assert all(result["_ng_dispatch_drained"] for result in got)
        await completions.aclose()
        sidecar = lines(tmp_path / "rollouts-d_failures.jsonl")
        assert len(sidecar) == (3 if asked else 0)
        for row in sidecar:
            assert row["_ng_omitted_rollout"] is row["_ng_dispatch_drained"] is True
            assert row["_ng_failure_class"] == "cancelled"
        checked = verify_run(RunPaths(tmp_path, "rollouts-d"))
        assert (checked.owed, checked.problems) == (3, [])
        assert executed(served) == 0

    async def test_the_attempt_of_a_row_is_kept(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
    ) -> None:
        (row,) = numbered(helper, 1)
        asked = {**row, "_ng_attempt_index": 2}
        [_ async for _ in helper.run_examples([asked], served.head_address)]
        shard: dict[str, Any] = {"record_output_dir": tmp_path, "record_shard": 0}
        [(_, result)] = [pair async for pair in helper.run_examples([asked], served.head_address, **shard)]
        assert result["_ng_attempt_index"] == 2
        assert "_ng_attempt_index" not in lines(tmp_path / "rollouts-0_materialized_inputs.jsonl")[0]
        executions: Any = served.servers[ARITHMETIC].stats()["executions"]
        assert [attempt for _, _, attempt in executions] == [2, 2]

    async def test_enriched_results_carry_their_identity_and_rows_without_one_stay_plain(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment
    ) -> None:
        rows = [*numbered(helper, 1), flat_rows(2)[1]]
        got = [pair async for pair in helper.run_examples(rows, served.head_address, enrich_results=True)]
        by_id = {row.get("_ng_rollout_id") is not None: (row, result) for row, result in got}
        row, result = by_id[True]
        assert result["_ng_rollout_id"] == row["_ng_rollout_id"] == f"{row['_ng_run_id']}-0-0"
        _, plain = by_id[False]
        assert not any(name.startswith("_ng_") for name in plain)

    async def test_arguments_that_make_no_sense_are_refused(
        self, helper: RolloutCollectionHelper, served: ExampleDeployment, tmp_path: Path
    ) -> None:
        def call(rows: list[dict[str, Any]] | None = None, **arguments: Any) -> None:
            helper.run_examples(numbered(helper, 1) if rows is None else rows, served.head_address, **arguments)

        with pytest.raises(ConfigError, match="record_shard is missing"):
            call(record_output_dir=tmp_path)
        with pytest.raises(ConfigError, match="record_output_dir is missing"):
            call(record_shard=0)
        with pytest.raises(ConfigError, match="needs record_output_dir"):
            call(record_omitted_rollouts=True)
        with pytest.raises(ConfigError, match="nothing would be left"):
            call(enrich_results=True, include_model_call_payloads=False, delete_model_call_capture=True)
        with pytest.raises(ConfigError, match=r"rows\[0\].*preprocess_examples"):
            call(flat_rows(1), record_output_dir=tmp_path, record_shard=0)
        for label in ("a/b", "x_failures", "", ".hidden"):
            with pytest.raises(ConfigError, match="record_shard"):
                call(record_output_dir=tmp_path, record_shard=label)
        assert list(tmp_path.iterdir()) == []

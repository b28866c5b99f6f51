"""`gym-ray report`: the story of a run from its folder alone agrees with what the run said of itself."""

import json
from pathlib import Path

import pytest

from gym_ray import RolloutCollectionConfig, RolloutRunner
from gym_ray.errors import ConfigError, RunFolderError
from gym_ray.example import example_in_thread, example_rows, profile_of_texts
from gym_ray.folder_report import report_folder
from gym_ray.paths import RunPaths
from tests.cli.program import gym_ray


async def test_the_folder_tells_what_the_run_told(tmp_path: Path) -> None:
    output = tmp_path / "out" / "r.jsonl"
    with example_in_thread(profile_of_texts("1ms..20ms", "0", "500=10%")) as served:
        config = RolloutCollectionConfig(
            input_jsonl_fpath=[str(example_rows(name)) for name in ("arithmetic", "calculator_tools")],
            output_jsonl_fpath=str(output), limit=300, num_repeats=2, executor="local", head=served.head_address,
        )  # fmt: skip
        async with RolloutRunner(config) as runner:
            told = await runner.collect()
    report = report_folder(RunPaths.of_output(output))
    progress = told.progress
    assert progress.failures > 10
    assert (report.checked.results, report.checked.failures) == (progress.results, progress.failures)
    assert report.mean_reward == pytest.approx(progress.mean_reward)
    assert report.mean_reward_failures_as_zero == pytest.approx(progress.mean_reward_failures_as_zero)
    assert [(each.mean, each.standard_error, each.pass_at) for each in report.scores] == [
        (each.mean, each.standard_error, each.pass_at) for each in told.scores
    ]
    assert report.metrics == list(told.metrics)
    assert report.latency_ms == pytest.approx(progress.latency_ms, rel=0.1)
    (group,) = report.signatures
    assert group.text.startswith("agent_run_error")
    assert group.count == progress.failures == report.failed_attempts
    assert json.loads((tmp_path / "out" / "r_quality.json").read_text()) == report.findings
    assert report.resume_command == told.resume_command
    text = "\n".join(report.lines())
    assert "slow: " in text
    assert "to go on: gym-ray run --config" in text

    ended = gym_ray("report", output.parent, "--json")
    assert (ended.code, ended.report["run"]["results"]) == (0, progress.results)
    continued = gym_ray(
        "run", "--config", str(output.parent / "r_resolved_config.yaml"), "--resume", "--head", "127.0.0.1:1"
    )
    assert continued.code == 2, "the settings are complete but for a deployment that has gone"
    assert "127.0.0.1:1" in continued.err


def test_where_there_is_no_run_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run named 'none'"):
        report_folder(RunPaths.of_output(tmp_path / "none.jsonl"))
    assert gym_ray("report", tmp_path).code == 2
    assert issubclass(ConfigError, ValueError)

"""`gym-ray plan` and `gym-ray config`: what would run, and with which settings; nothing is sent or written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gym_ray.config import RolloutCollectionConfig
from gym_ray.example import ExampleDeployment, example_in_thread, example_rows
from tests.cli.program import gym_ray

FLAT = "arithmetic_environment_server"


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread() as deployment:
        yield deployment


def requests(served: ExampleDeployment) -> int:
    return sum(server.stats()["requests"] for server in served.servers.values())


def test_a_plan_says_what_would_run_and_sends_nothing(served: ExampleDeployment, tmp_path: Path) -> None:
    ended = gym_ray(
        "plan", "-i", example_rows("arithmetic"), "-i", example_rows("calculator_tools"), "--head", served.head_address,
        "--num-repeats", "3", "--shards", "4", "--concurrency", "10", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    shown = ended.report
    assert shown["plan"]["rollouts"] == 480 * 3 == sum(shown["plan"]["rollouts_by_server"].values())
    assert sum(shown["plan"]["rollouts_by_shard"]) == 480 * 3
    assert shown["cap_by_shard"] == [3, 3, 2, 2]
    assert set(shown["first_bodies"]) == {FLAT, "calculator_tools_environment_server"}
    assert set(shown["first_bodies"]["calculator_tools_environment_server"]) == {"episode_id", "task"}
    assert requests(served) == 0
    assert not list(tmp_path.iterdir())


def test_a_dry_run_is_the_plan_of_the_same_command_line(served: ExampleDeployment, tmp_path: Path) -> None:
    args = [
        "-i",
        example_rows("arithmetic"),
        "-o",
        tmp_path / "out/r.jsonl",
        "--head",
        served.head_address,
        "--limit",
        "7",
    ]
    dry, plan = gym_ray("run", *args, "--dry-run"), gym_ray("plan", *args)
    assert (dry.code, dry.out) == (0, plan.out)
    assert "7 rollouts of 7 tasks" in dry.out
    assert "nothing was sent" in dry.out
    assert not (tmp_path / "out").exists()
    assert requests(served) == 0


def test_credentials_in_rows_are_masked(served: ExampleDeployment, tmp_path: Path) -> None:
    row = json.loads(example_rows("arithmetic").read_text().splitlines()[0])
    row["judge"] = {"api_key": "sk-0123456789abcdef0123456789", "model": "m"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row) + "\n")
    for form in ((), ("--json",)):
        ended = gym_ray("plan", "-i", rows, "--head", served.head_address, *form)
        assert ended.code == 0
        assert "0123456789abcdef" not in ended.out + ended.err


def test_an_invalid_plan_lists_every_problem_and_ends_with_2(served: ExampleDeployment, tmp_path: Path) -> None:
    good = example_rows("arithmetic").read_text().splitlines()[0]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join([good, "{", "[1]", good.replace("arithmetic_agent", "nobody"), "{}"]) + "\n")
    ended = gym_ray("plan", "-i", rows, "--head", served.head_address)
    assert ended.code == 2
    for place in (":2", ":3", ":4", ":5"):
        assert f"rows.jsonl{place}" in ended.err
    assert "nobody" in ended.err
    assert "arithmetic_agent" in ended.err


def test_fresh_moves_nothing_when_the_plan_is_not_valid(served: ExampleDeployment, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out"
    rows.write_text(example_rows("arithmetic").read_text().splitlines()[0] + "\n")
    args = ["-i", rows, "-o", out / "r.jsonl", "--head", served.head_address, "--executor", "local"]
    assert gym_ray("run", *args).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    rows.write_text("{}\n")
    assert gym_ray("run", *args, "--fresh").code == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_the_settings_say_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("num_repeats: 4\nlimit: 9\n")
    ended = gym_ray("config", "--config", file, "limit=3", "++responses_create_params.api_key=secret-value", "--json")
    assert ended.code == 0, ended.err
    settings = {each["setting"]: each for each in json.loads(ended.out)}
    assert (settings["num_repeats"]["value"], settings["num_repeats"]["origin"]) == (4, str(file))
    assert settings["limit"]["value"] == 3
    assert "limit=" in settings["limit"]["origin"]
    assert settings["shards"]["origin"] == "default"
    assert "secret-value" not in ended.out


def test_the_schema_is_that_of_the_settings() -> None:
    ended = gym_ray("config", "--schema")
    assert json.loads(ended.out) == json.loads(json.dumps(RolloutCollectionConfig.model_json_schema()))

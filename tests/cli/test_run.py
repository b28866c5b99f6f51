"""`gym-ray run` without Ray, in a process of its own, against servers that really serve."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gym_ray.example import (
    ExampleDeployment,
    LatencyRange,
    LedgerOptions,
    Profile,
    example_in_thread,
    example_rows,
    profile_of_texts,
)
from tests.cli.program import gym_ray

FLAT, EPISODES = "arithmetic_environment_server", "calculator_tools_environment_server"


@pytest.fixture(scope="module")
def served() -> Iterator[ExampleDeployment]:
    with example_in_thread(Profile(), ledger=LedgerOptions(capacity=100_000)) as deployment:
        yield deployment


def both(tmp_path: Path, tasks: int = 20) -> Path:
    """Flat and materialized rows in one file."""
    rows = tmp_path / "rows.jsonl"
    lines = [example_rows(name).read_bytes().splitlines()[:tasks] for name in ("arithmetic", "calculator_tools")]
    rows.write_bytes(b"".join(line + b"\n" for pair in zip(*lines, strict=True) for line in pair))
    return rows


def records(folder: Path, pattern: str) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.read_text().splitlines()]


def key(record: dict[str, object]) -> tuple[object, object]:
    return record["_ng_task_index"], record["_ng_rollout_index"]


def wait_until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_flat_and_materialized_rows_run_in_one_batch(served: ExampleDeployment, tmp_path: Path) -> None:
    before = {name: served.servers[name].stats()["executed"] for name in (FLAT, EPISODES)}
    out = tmp_path / "out"
    ended = gym_ray(
        "run", "-i", both(tmp_path), "-o", out / "rollouts.jsonl", "--head", served.head_address,
        "--executor", "local", "--num-repeats", "3", "--shards", "3", "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.report["coverage"] == {
        "planned": 120, "results": 120, "failures": 0, "drained": 0, "omitted": 0, "owed": 0,
    }  # fmt: skip
    planned = records(out, "rollouts-*_materialized_inputs.jsonl")
    assert Counter(map(key, planned)) == Counter((task, repeat) for task in range(40) for repeat in range(3))
    results = [r for shard in range(3) for r in records(out, f"rollouts-{shard}.jsonl")]
    assert Counter(map(key, results)) == Counter(map(key, planned))
    for name in (FLAT, EPISODES):
        stamped = [record for record in results if record["_ng_environment_server"] == name]
        assert len(stamped) == served.servers[name].stats()["executed"] - before[name] == 60


def test_the_merged_file_is_every_result_sorted(served: ExampleDeployment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = gym_ray(
        "run", "-i", both(tmp_path), "-o", out / "r.jsonl", "--head", served.head_address,
        "--executor", "local", "--num-repeats", "2",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    merged = records(out, "r.jsonl")
    assert list(map(key, merged)) == [(task, repeat) for task in range(40) for repeat in range(2)]
    shards = b"".join(sorted((out / f"r-{n}.jsonl").read_bytes() for n in range(2)))
    assert sorted((out / "r.jsonl").read_bytes().splitlines()) == sorted(shards.splitlines())


def test_every_server_aggregates_its_own_and_the_same_numbers_come_out_again(
    served: ExampleDeployment, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    deployment = ("--head", served.head_address)
    ended = gym_ray(
        "run", "-i", both(tmp_path), "-o", out / "r.jsonl", *deployment, "--executor", "local", "--num-repeats", "2"
    )
    assert ended.code == 0, ended.err
    first = json.loads((out / "r_aggregate_metrics.json").read_text())
    assert [entry["_ng_environment_server"] for entry in first] == [FLAT, EPISODES]
    for entry in first:
        rewards = [
            r["reward"]
            for r in records(out, "r.jsonl")
            if r["_ng_environment_server"] == entry["_ng_environment_server"]
        ]
        assert entry["key_metrics"]["mean/reward"] == pytest.approx(sum(rewards) / len(rewards))  # type: ignore[arg-type]
    for named in (("-o", out / "r.jsonl", *deployment), (out,), ("+aggregate_timeout_s=30", out / "r.jsonl")):
        (out / "r_aggregate_metrics.json").unlink()
        again = gym_ray("aggregate", *named)
        assert again.code == 0, again.err
        assert json.loads((out / "r_aggregate_metrics.json").read_text()) == first
    for wrong in ((out, "-o", out / "r.jsonl"), (out, tmp_path)):
        assert gym_ray("aggregate", *wrong).code == 2


def test_faults_become_sidecar_rows_and_the_exit_code_says_resumable(tmp_path: Path) -> None:
    profile = profile_of_texts("0", "0", "500=10%,503=5%,badjson=5%", seed=3)
    out = tmp_path / "out"
    with example_in_thread(profile) as served:
        ended = gym_ray(
            "run", "-i", both(tmp_path, 60), "-o", out / "r.jsonl", "--head", served.head_address,
            "--executor", "local", "--json", "+retry_budget_s=0.01",
        )  # fmt: skip
    assert ended.code == 3, ended.err
    coverage = ended.report["coverage"]
    failures = records(out, "r-*_failures.jsonl")
    assert coverage["results"] + coverage["failures"] == coverage["planned"] == 120
    assert len(failures) == coverage["failures"] > 0
    assert {f["_ng_failure_class"] for f in failures} == {"agent_run_error", "agent_request_failed"}
    assert not {*map(key, failures)} & {*map(key, records(out, "r.jsonl"))}


def test_a_server_that_dies_does_not_hold_up_the_run(tmp_path: Path) -> None:
    """The environment servers are killed while rollouts are in flight; the run ends by itself."""
    out = tmp_path / "out"
    serve = [sys.executable, "-m", "gym_ray", "serve-example", "--port", "0", "--latency", "300ms..400ms"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        head = served.stdout.readline().split("//")[1].strip()
        run = [sys.executable, "-m", "gym_ray", "run", "-i", both(tmp_path), "-o", out / "r.jsonl", "--head", head]
        flags = ["--executor", "local", "--concurrency", "8", "--json", "+retry_budget_s=0.2", "+server_patience_s=1"]
        with subprocess.Popen([*run, *flags], stdout=subprocess.PIPE, text=True) as running:
            wait_until(lambda: records(out, "r-0.jsonl"))
            served.kill()
            stdout, _ = running.communicate(timeout=60)
    report = json.loads(stdout)
    assert running.returncode == 3
    assert report["coverage"]["owed"] == 0
    assert report["coverage"]["failures"] > 0
    assert all("aggregation_error" in entry for entry in report["metrics"])
    assert len(records(out, "r-*_failures.jsonl")) == report["coverage"]["failures"]


def test_an_unknown_agent_is_refused_before_anything_is_sent(served: ExampleDeployment, tmp_path: Path) -> None:
    before = served.servers[FLAT].stats()["requests"]
    rows = tmp_path / "rows.jsonl"
    good = example_rows("arithmetic").read_text().splitlines()[:3]
    rows.write_text("\n".join([*good, good[0].replace('"arithmetic_agent"', '"arithmetik_agent"')]) + "\n")
    ended = gym_ray(
        "run", "-i", rows, "-o", tmp_path / "out/r.jsonl", "--head", served.head_address, "--executor", "local"
    )
    assert ended.code == 2
    assert "arithmetik_agent" in ended.err
    assert "arithmetic_agent" in ended.err
    assert "rows.jsonl:4" in ended.err
    assert served.servers[FLAT].stats()["requests"] == before
    assert not list((tmp_path / "out").glob("*"))


def test_an_earlier_run_is_never_overwritten(served: ExampleDeployment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("run", "-i", both(tmp_path, 2), "-o", out / "r.jsonl", "--head", served.head_address, "--executor", "local")
    assert gym_ray(*args).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    refused = gym_ray(*args)
    assert refused.code == 2
    assert "--fresh" in refused.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert gym_ray(*args, "--fresh").code == 0
    (archive,) = (path for path in out.iterdir() if path.is_dir())
    # Lock files stay where they are: whoever still holds one must meet the next writer there
    records_before = {name: content for name, content in before.items() if not name.endswith(("lock", ".holder"))}
    assert {path.name: path.read_bytes() for path in archive.iterdir()} == records_before


def test_an_unreachable_head_is_named(tmp_path: Path) -> None:
    ended = gym_ray(
        "run", "-i", both(tmp_path), "-o", tmp_path / "o/r.jsonl", "--head", "127.0.0.1:9", "--executor", "local"
    )
    assert ended.code == 2
    assert "127.0.0.1:9" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--concurrency", "0"], "num_samples_in_parallel"),
        (["+num_repeatz=3"], "num_repeats"),
        (["--num-repeat", "3"], "--num-repeats"),
        (["+fan_out={a: []}"], "fan_out"),
        (["stray"], "stray"),
        (["--latency", "1s"], "--example"),
        (["--example", "--head", "127.0.0.1:1"], "--head"),
        (["--example", "--latency", "soon"], "50ms..2s"),
        (["--example", "--fail", "often"], "often"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(args: list[str], named: str, tmp_path: Path) -> None:
    ended = gym_ray("run", "-i", both(tmp_path), "-o", tmp_path / "o/r.jsonl", *args)
    assert ended.code == 2
    assert named in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("args", [(), ("-o", "out/r.jsonl"), ("-i", "rows.jsonl")])
def test_a_run_needs_rows_and_a_place_for_records(args: tuple[str, ...], tmp_path: Path) -> None:
    ended = gym_ray("run", *args, cwd=tmp_path)
    assert ended.code == 2
    assert "--output" in ended.err or "--input" in ended.err


def test_the_example_runs_with_no_set_up_and_says_where_its_records_are(tmp_path: Path) -> None:
    ended = gym_ray("run", "--example", "--executor", "local", "--limit", "20", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (merged,) = tmp_path.glob("gym-ray-example/*/rollouts.jsonl")
    assert len(merged.read_bytes().splitlines()) == 20
    assert str(merged) in ended.out
    assert "-> gym-ray-example/" in ended.err


def test_other_settings_of_the_example_are_the_users(tmp_path: Path) -> None:
    ended = gym_ray(
        "run", "--example", "--executor", "local", "+limit=3", "+output_jsonl_fpath=mine/r.jsonl", "--display", "none",
        cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert len((tmp_path / "mine/r.jsonl").read_bytes().splitlines()) == 3
    assert ended.err == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_own_code_and_leaves_whole_records(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = [sys.executable, "-m", "gym_ray", "run", "-i", both(tmp_path, 200), "-o", out / "r.jsonl"]
    with example_in_thread(Profile(latency=LatencyRange(0.05, 0.1))) as served:
        flags = ["--head", served.head_address, "--executor", "local", "--concurrency", "4"]
        with subprocess.Popen([*run, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            wait_until(lambda: records(out, "r-0.jsonl"))
            running.send_signal(number)
            stdout, stderr = running.communicate(timeout=30)
        assert running.returncode == code
        assert "INCOMPLETE" in stdout
        assert "rollouts in flight may end" in stderr
        assert "Traceback" not in stderr
        wait_until(lambda: not any(server.stats()["in_flight"] for server in served.servers.values()))
    assert 0 < len(records(out, "r-[01].jsonl")) < 400


@pytest.mark.parametrize(("second", "code"), [(signal.SIGINT, 130), (None, 143)])
def test_what_does_not_end_in_time_is_cancelled(second: signal.Signals | None, code: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = [sys.executable, "-m", "gym_ray", "run", "-i", both(tmp_path, 50), "-o", out / "r.jsonl", "+grace_s=0.3"]
    with example_in_thread(Profile(latency=LatencyRange(60.0, 60.0))) as served:
        flags = ["--head", served.head_address, "--executor", "local", "--concurrency", "4"]
        with subprocess.Popen([*run, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            wait_until(lambda: sum(server.stats()["in_flight"] for server in served.servers.values()) == 4)
            running.send_signal(signal.SIGINT if second is not None else signal.SIGTERM)
            assert running.stderr is not None
            wait_until(lambda: "rollouts in flight may end" in running.stderr.readline())
            if second is not None:
                running.send_signal(second)
            stdout, stderr = running.communicate(timeout=30)
        assert running.returncode == code
        assert stdout == ""
        assert str(out) in stderr
        assert "Traceback" not in stderr
        wait_until(lambda: not any(server.stats()["in_flight"] for server in served.servers.values()))
    ended = gym_ray("verify", out)
    assert ended.code == 3, ended.out


@pytest.mark.parametrize("args", [("--version",), ("--help",), ("run", "--help"), ("aggregate", "--help")])
def test_version_and_help_are_cheap(args: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gym_ray", *args], capture_output=True, text=True, check=True
    )
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not imported & {"ray", "pyarrow", "aiohttp", "omegaconf", "uvloop"}


def test_help_states_the_exit_codes_and_the_defaults() -> None:
    shown = gym_ray("run", "--help").out
    assert "3    incomplete" in shown
    assert "default 256" in shown


def test_a_time_limit_is_told_with_the_load_of_the_servers(tmp_path: Path) -> None:
    with example_in_thread(Profile(latency=LatencyRange(0.05, 30.0))) as deployment:
        ended = gym_ray(
            "run", "-i", example_rows("arithmetic"), "--limit", "6", "--head", deployment.head_address,
            "-o", tmp_path / "out" / "r.jsonl", "--executor", "local", "+rollout_timeout_s=0.5",
        )  # fmt: skip
    assert ended.code == 3
    assert "time limit of a rollout: 0.5 s;" in ended.out
    assert "servers, 1 samples: waiting" in ended.out
    assert "limit of 0.5 s for each rollout" in ended.err


def test_a_run_that_cannot_begin_leaves_an_empty_place(served: ExampleDeployment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("run", "-i", both(tmp_path, 2), "-o", out / "r.jsonl", "--head", served.head_address, "--executor", "local")
    refused = gym_ray(*args, "--concurrency", "99999999")
    assert refused.code == 2
    assert "open files" in refused.err
    assert not [path for path in out.iterdir() if not path.name.startswith(".")]
    assert gym_ray(*args).code == 0


def test_the_command_that_continues_works_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    both(tmp_path / "work", 4)
    monkeypatch.chdir(tmp_path / "work")
    # Half of the rollouts fail in a way that another attempt may mend
    args = ("run", "--example", "--executor", "local", "-i", "rows.jsonl", "-o", "out/r.jsonl", "--fail", "500=50%")
    ended = gym_ray(*args, "--json")
    assert ended.code == 3
    command = json.loads(ended.out)["resume_command"].split()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = gym_ray(*command[1:], "--executor", "local", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["coverage"]["results"] == 8
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_plan_that_takes_long_is_given_up_at_the_first_signal(served: ExampleDeployment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = (
        sys.executable, "-m", "gym_ray", "run", "-i", both(tmp_path, 2), "-o", out / "r.jsonl",
        "--head", served.head_address, "--executor", "local", "--num-repeats", "99999999",
    )  # fmt: skip
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: any(path.stat().st_size for path in out.glob(".*.tmp")))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert not list(out.iterdir())


def test_a_run_is_extended_with_the_settings_beside_it(served: ExampleDeployment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("-o", out / "r.jsonl", "--executor", "local")
    assert gym_ray("run", "-i", both(tmp_path, 2), "--head", served.head_address, *args).code == 0
    ended = gym_ray("extend", *args, "--num-repeats", "3", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["coverage"]["results"] == 12

"""The numbers are those of the processes, and the sides really do the work."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks.processes import Measured, Sample, Seen, measure, short_title
from benchmarks.replies import reply_body
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.server import read_request
from benchmarks.sides import commands
from benchmarks.table import median
from benchmarks.trial import record_files, run_trial

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


def python(program: str, folder: Path) -> Measured:
    return measure([sys.executable, "-c", program], folder, os.environ, 30.0)


def test_cpu_of_children_counts_whoever_collects_them(tmp_path: Path) -> None:
    burning = repr(BURN.format(seconds=0.2))
    start = f"import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {burning}])\n"
    for end in ("child.wait()\n", "import os; os._exit(0)\n"):  # collected by its parent; left behind
        measured = python(start + BURN.format(seconds=0.1) + end, tmp_path)
        assert measured.code == 0
        assert 0.27 <= measured.cpu_s < 0.6  # the kernel counts in hundredths, for each process


def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="not ended after"):
        measure([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, os.environ, 0.3)


def test_cpu_at_an_instant_lies_between_its_samples() -> None:
    measured = Measured(0, "", 10.0, 20.0, 8.0, (Sample(12.0, 2.0, 0, {}), Sample(14.0, 6.0, 0, {})), ())
    assert [measured.cpu_until(at) for at in (10.0, 11.0, 12.0, 13.0, 17.0, 20.0, 30.0)] == [0, 1, 2, 4, 7, 8, 8]


def test_cpu_by_title_sums_over_actors_of_one_kind_whatever_they_are_doing() -> None:
    actors = Seen(1, None, "ray::ShardActor"), Seen(2, None, "ray::ShardActor.step")
    samples = Sample(12.0, 0.0, 0, {0: 1.0, 1: 2.0}), Sample(14.0, 0.0, 0, {0: 2.0, 1: 5.0})
    measured = Measured(0, "", 10.0, 20.0, 8.0, samples, actors)
    assert measured.cpu_by_title(10.0, 20.0) == {"ray::ShardActor": 4.0}
    assert measured.cpu_by_title(13.0, 13.5) == {"ray::ShardActor": 1.0}


@pytest.mark.parametrize("size", [1000, 2000, 5000, 200_000])
def test_replies_have_the_size_that_was_asked_for(size: int) -> None:
    assert len(reply_body(size, 1.0)) == size


def test_requests_are_read_whole_however_they_are_framed() -> None:
    sized = bytearray(b"POST /run HTTP/1.1\r\nContent-Length: 5\r\n\r\nhel")
    assert read_request(sized) == (len(sized) + 2, None)
    assert read_request(sized + b"lo") == (len(sized) + 2, (b"/run", b"hello"))
    chunked = bytearray(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n")
    assert read_request(chunked) == (None, None)
    assert read_request(chunked + b"0\r\n\r\n") == (None, (b"/a", b"hello"))
    assert read_request(bytearray(b"GET / HT")) == (None, None)


def test_titles_are_those_of_programs_and_actors() -> None:
    assert short_title("ray::ShardActor.step") == "ray::ShardActor"
    assert short_title("/opt/ray/raylet --port 1") == "raylet"


@pytest.mark.parametrize("side", ["gym_ray local", "plain"])
def test_a_side_does_the_work_and_is_measured(side: str) -> None:
    scenario = Scenario("tiny", 200, 1_000, 16, 2, (0.01, 0.02))
    trial = median([run_trial(side, commands(None)[side], scenario)])
    assert trial.peak_in_flight == 16
    assert trial.cpu_us_whole >= trial.cpu_us_running >= trial.cpu_us_collection > 0
    assert trial.ideal_s == pytest.approx(200 * 0.015 / 16 + 0.02, rel=0.05)
    assert trial.collection_s >= 0.1
    assert trial.server_cpu_us > 0
    assert trial.peak_rss_mb >= trial.dispatching_rss_mb > trial.dispatching_private_mb > 0


def test_a_side_that_fails_is_an_error_with_its_last_words() -> None:
    def failing(*_: object) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no idea')"]

    with pytest.raises(RuntimeError, match=r"(?s)ended with 1; runs at the server: 0, not 10.*no idea"):
        run_trial("failing", failing, Scenario("tiny", 10, 1_000, 4, 1))


REPEATING = """
import sys, urllib.request
from pathlib import Path
head, output = sys.argv[1], Path(sys.argv[2])
for number in range(10):
    body = b'{"_ng_task_index": %d, "_ng_rollout_index": 0}' % number
    urllib.request.urlopen(urllib.request.Request(f"http://{head}/run", body, method="POST")).read()
output.parent.mkdir()
output.write_text('{"_ng_task_index": 1, "_ng_rollout_index": 0}\\n' * 10)
"""


def test_a_side_that_records_one_rollout_ten_times_is_refused() -> None:
    def repeating(_scenario: Scenario, head: str, _rows: Path, output: Path) -> list[str]:
        return [sys.executable, "-c", REPEATING, head, str(output)]

    with pytest.raises(RuntimeError, match="distinct records: 1, not 10"):
        run_trial("repeating", repeating, Scenario("tiny", 10, 1_000, 4, 1))


def test_records_are_in_the_files_of_shards_where_there_are_any(tmp_path: Path) -> None:
    output = tmp_path / "out-1.jsonl"
    assert record_files(output) == []
    output.touch()
    assert record_files(output) == [output]
    for name in ("out-1-0.jsonl", "out-1-11.jsonl", "out-1-0_failures.jsonl", "out-1-0_materialized_inputs.jsonl"):
        (tmp_path / name).touch()
    assert [path.name for path in record_files(output)] == ["out-1-0.jsonl", "out-1-11.jsonl"]


def test_a_scaled_scenario_still_fills_the_cap() -> None:
    (wide,) = SCENARIOS["wide"]
    assert wide.scaled(0.01).rollouts == wide.rollouts
    assert SCENARIOS["small"][0].scaled(0.1).rollouts == 2000

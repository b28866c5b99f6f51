"""Results reach stdout alone, whatever libraries print; messages do not act on the terminal."""

import subprocess
import sys

import pytest

from gym_ray.cli.output import tell

PROGRAM = """
import os, subprocess
from gym_ray.cli.output import results_stream
with results_stream() as out:
    print("from a library")
    os.write(1, b"from C\\n")
    subprocess.run(["echo", "from a child"], check=True)
    out.write('{"result": 1}' * REPEATS + "\\n")
print("afterwards")
"""


def test_only_results_reach_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("REPEATS", "1")], capture_output=True, text=True, check=True
    )
    assert done.stdout == '{"result": 1}\nafterwards\n'
    assert {"from a library", "from C", "from a child"} <= set(done.stderr.splitlines())


@pytest.mark.parametrize("repeats", [1, 100_000])
def test_a_reader_that_has_gone_is_no_error(repeats: int) -> None:
    program = PROGRAM.replace("REPEATS", str(repeats)).replace('print("afterwards")', "")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        _, err = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "BrokenPipe" not in err


def test_a_message_does_not_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("first\nsecond \x1b[2J\u202e")
    assert capsys.readouterr().err == "gym-ray: first\ngym-ray: second \\x1b[2J\\u202e\n"

"""A Slurm that has this machine alone: enough of it to run `cluster/slurm.sbatch` as it stands, with its requeues.

`srun` and `scontrol` are programs on PATH; this class is `sbatch` and the scheduler. It starts the script, again after
each requeue, with the variables that Slurm sets, and signals the batch shell alone, as `--signal=B:` has it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE.parents[1] / "cluster" / "slurm.sbatch"


def wait_until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@dataclass
class SlurmJob:
    """One job, from its submission over its requeues to its end."""

    directory: Path
    """For its log and what its programs were called with; short for Ray, whose sockets are elsewhere."""
    arguments: list[str]
    """Of the script."""
    path: str
    """PATH of the job after `srun` and `scontrol`."""
    job_id: int
    minutes: float = 60.0
    nodes: str = "n1,n2"
    variables: dict[str, str] = field(default_factory=dict)
    restarts: int = 0

    @property
    def calls(self) -> list[str]:
        """What was called, one line each."""
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def log(self) -> str:
        return (self.directory / "job.log").read_text()

    @property
    def requeues(self) -> int:
        return self.calls.count(f"scontrol requeue {self.job_id}")

    def start(self) -> "subprocess.Popen[bytes]":
        """The batch shell, started once; the log is appended to, as `--open-mode=append` has it."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "SLURM_"))}
        environment |= {
            "PATH": f"{HERE / 'slurm_bin'}:{self.path}",
            "PYTHON": sys.executable,
            "SLURM_CALLS": str(self.directory / "calls"),
            "SLURM_JOB_ID": str(self.job_id),
            "SLURM_JOB_NODELIST": self.nodes,
            "SLURM_JOB_END_TIME": str(int(time.time() + 60 * self.minutes)),
            "SLURM_RESTART_COUNT": str(self.restarts),
            **self.variables,
        }
        with (self.directory / "job.log").open("ab") as log:
            return subprocess.Popen(
                ["bash", str(SCRIPT), *self.arguments],
                env=environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def run(self, *, signal_when: Callable[[], object] | None = None, number: int = signal.SIGUSR1) -> int:
        """The exit code of one start; the batch shell gets the signal as soon as the condition holds."""
        shell = self.start()
        if signal_when is not None:
            wait_until(lambda: signal_when() or shell.poll() is not None)
            shell.send_signal(number)
        return shell.wait(timeout=90)

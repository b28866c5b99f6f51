"""`gym-ray run --detach`: the same command again, in a process that outlives its terminal."""

import subprocess
import sys
import time
from collections.abc import Sequence

from gym_ray.cli.output import tell
from gym_ray.errors import RunFolderError
from gym_ray.observe.printable import printable
from gym_ray.paths import RunPaths
from gym_ray.recording.run_lock import holder_of

LOOK_EVERY_S = 0.1
TAIL_LINES = 30


def run_detached(arguments: Sequence[str], output: str) -> int:
    """Start `gym-ray ARGUMENTS` apart from this terminal and return once it writes records, or has ended.

    Everything that can be wrong with the command ends it before that, and is shown here.

    Raises:
        RunFolderError: another run writes to this folder.
    """
    paths = RunPaths.of_output(output)
    if (holder := holder_of(paths)) is not None:
        raise RunFolderError(f"{paths.directory}: another run writes here: {holder}: wait for it, or stop it")
    paths.directory.mkdir(parents=True, exist_ok=True)
    with paths.log.open("ab") as log:
        began = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "gym_ray", *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        while process.poll() is None and holder_of(paths) is None:
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        tell("the run goes on")
    if process.returncode is not None:
        with paths.log.open("rb") as log:
            log.seek(began)
            lines = log.read().decode("utf-8", "replace").splitlines()
        sys.stderr.write("".join(f"{printable(line, 2000)}\n" for line in lines[-TAIL_LINES:]))
        return process.returncode
    run = paths.merged
    tell(f"process {process.pid} runs it; what it says goes to {paths.log}")
    tell(f"watch it with `gym-ray attach {run}`, end it with `gym-ray stop {run}`")
    return 0

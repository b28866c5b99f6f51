"""Runs `gym-ray` as a user does: another process, its streams and its exit code."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self.out)


def gym_ray(*args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ended:
    command = [sys.executable, "-m", "gym_ray", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd, env=env, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)

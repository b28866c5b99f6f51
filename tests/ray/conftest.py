"""One Ray for the session, with a temporary directory, a token and ports of its own, and nothing left of it after."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local cluster, connected; lean, because two cores share it with the tests."""
    home = Path(tempfile.mkdtemp(prefix="gr-"))  # short: Ray puts sockets below it, whose paths end at 107 bytes
    token = home / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(token),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        RAY_TMPDIR=str(home),
    )
    os.environ.pop("RAY_ADDRESS", None)
    import ray

    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=128 << 20,
        _temp_dir=str(home),
    )
    yield
    ray.shutdown()
    gone, alive = psutil.wait_procs(_processes_of(home), timeout=10)
    for process in alive:
        process.kill()
    shutil.rmtree(home, ignore_errors=True)
    assert not alive, f"Ray left {alive} behind; {len(gone)} ended"


def _processes_of(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(home) in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found

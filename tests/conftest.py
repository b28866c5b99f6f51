"""What a test may touch: Ray only below `tests/ray`, and nothing that another test left behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

for name in ("RAY_ADDRESS", "NEMO_GYM_CONFIG_DICT", "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "NEMO_GYM_EXTRA_ROOTS"):
    os.environ.pop(name, None)


# Under nohup this one is ignored, which programs that are started here would inherit and rightly obey
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _no_ray_outside_its_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`ray.init` fails in a unit test: a cluster costs five CPU seconds, and whoever needs one is misplaced."""
    if "ray" not in Path(request.node.path).relative_to(Path(__file__).parent).parts[:1]:
        # An address at which nothing listens: also a library that connects by itself is told no
        monkeypatch.setenv("RAY_ADDRESS", "ray-is-not-for-unit-tests:1")
    yield

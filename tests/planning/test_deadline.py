"""Until when rollouts may start."""

from datetime import UTC, datetime

import pytest

from gym_ray.errors import ConfigError
from gym_ray.planning.settings import seconds_to

NOW = datetime(2026, 1, 5, 10, 0, 0, tzinfo=UTC)


def test_a_deadline_is_a_time_or_the_end_of_the_job() -> None:
    assert seconds_to("2026-01-05T10:10:00+00:00", 30.0, {}, NOW) == 570.0
    assert seconds_to("2026-01-05T09:00:00Z", 30.0, {}, NOW) == 0.0
    end = str(int(NOW.timestamp()) + 100)
    assert seconds_to("slurm", 30.0, {"SLURM_JOB_END_TIME": end}, NOW) == 70.0


@pytest.mark.parametrize("deadline", ["tomorrow", "", "10:00:99"])
def test_what_is_no_time_is_refused(deadline: str) -> None:
    with pytest.raises(ConfigError, match="ISO time or slurm"):
        seconds_to(deadline, 0.0, {}, NOW)
    with pytest.raises(ConfigError, match="SLURM_JOB_END_TIME"):
        seconds_to("slurm", 0.0, {}, NOW)

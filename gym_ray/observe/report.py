"""What a finished run has to say."""

from dataclasses import dataclass, field
from typing import Any

from gym_ray.observe.tally import Progress


@dataclass(frozen=True, slots=True)
class RunReport:
    """The end of a run."""

    run_id: str
    progress: Progress
    metrics: tuple[dict[str, Any], ...] = ()
    files: dict[str, str] = field(default_factory=dict)

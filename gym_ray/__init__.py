"""Distributed rollouts on Ray for NeMo Gym environment servers.

Importing this package loads neither ray nor pyarrow; each public name loads what it needs when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gym_ray.version import __version__

if TYPE_CHECKING:
    from gym_ray.aggregating import aggregate_run
    from gym_ray.aggregation.policy import completion_rejection
    from gym_ray.api import RolloutRunner, run
    from gym_ray.config import RolloutCollectionConfig
    from gym_ray.dispatch.latency import DispatchLatencyTracker
    from gym_ray.errors import GymRayError
    from gym_ray.helper import RolloutCollectionHelper
    from gym_ray.observe.report import RunReport
    from gym_ray.outcomes.failure_record import RolloutFailureRecord
    from gym_ray.planning.examples import preprocess_examples, resolve_task_sources

_HOMES = {
    "DispatchLatencyTracker": "gym_ray.dispatch.latency",
    "GymRayError": "gym_ray.errors",
    "RolloutCollectionConfig": "gym_ray.config",
    "RolloutCollectionHelper": "gym_ray.helper",
    "RolloutFailureRecord": "gym_ray.outcomes.failure_record",
    "RolloutRunner": "gym_ray.api",
    "RunReport": "gym_ray.observe.report",
    "aggregate_run": "gym_ray.aggregating",
    "completion_rejection": "gym_ray.aggregation.policy",
    "preprocess_examples": "gym_ray.planning.examples",
    "resolve_task_sources": "gym_ray.planning.examples",
    "run": "gym_ray.api",
}

__all__ = [
    "DispatchLatencyTracker",
    "GymRayError",
    "RolloutCollectionConfig",
    "RolloutCollectionHelper",
    "RolloutFailureRecord",
    "RolloutRunner",
    "RunReport",
    "__version__",
    "aggregate_run",
    "completion_rejection",
    "preprocess_examples",
    "resolve_task_sources",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

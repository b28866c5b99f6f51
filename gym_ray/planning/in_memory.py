"""Plans that stay in memory, for callers that want no files."""

from collections.abc import Iterable
from itertools import islice

from gym_ray.deployment.merged import Deployment
from gym_ray.planning.planner import Planner, PlanSummary
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.source_row import SourceRow


def plan_rows(rows: Iterable[SourceRow], shaping: Shaping, deployment: Deployment) -> tuple[list[bytes], PlanSummary]:
    """The materialized lines in plan order, and what is in them; one shard owns them all.

    Raises:
        InputError, RoutingError, ConfigError: the plan is not valid; every problem is listed.
    """
    planner = Planner(shaping, deployment)
    lines = [rollout.line for row in islice(rows, shaping.limit or None) for rollout in planner.plan(row)]
    return lines, planner.summarize((len(lines),))

"""Plans that stay in memory, for callers that want no files."""

from collections.abc import Iterable
from itertools import islice

from gym_ray.deployment.lookup import Deployment
from gym_ray.planning.ordering import round_by_round, taking_turns
from gym_ray.planning.planner import Planner, PlanSummary, Rollout
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.source_row import SourceRow


def plan_rows(rows: Iterable[SourceRow], shaping: Shaping, deployment: Deployment) -> tuple[list[bytes], PlanSummary]:
    """The materialized lines in start order, and what is in them; one shard owns them all.

    With a sample, `rows` are read twice; those of an iterator are kept in memory for that.

    Raises:
        InputError, RoutingError, ConfigError: the plan is not valid; every problem is listed.
    """
    collector = PlanCollector(shaping, deployment)
    collector.extend(islice(collector.drawn_from(rows), shaping.limit or None))
    return collector.finish()


class PlanCollector:
    """As `plan_rows`, for rows that arrive."""

    def __init__(self, shaping: Shaping, deployment: Deployment) -> None:
        self._shaping = shaping
        self._planner = Planner(shaping, deployment)
        self._rollouts: list[Rollout] = []

    def drawn_from(self, rows: Iterable[SourceRow]) -> Iterable[SourceRow]:
        """Draw the sample that the shaping asks for, if any; returns the rows, to be planned next."""
        return self._planner.drawn_from(rows)

    def give_up(self) -> None:
        """Have `drawn_from` and `extend` in another thread stop, soon."""
        self._planner.give_up()

    def extend(self, rows: Iterable[SourceRow]) -> None:
        """Plan further rows. The limit of the shaping is the caller's business."""
        for row in rows:
            self._rollouts.extend(self._planner.plan(row))

    def finish(self) -> tuple[list[bytes], PlanSummary]:
        """The plan, or the error that says what is wrong with it; see `plan_rows`."""
        rollouts = self._rollouts
        summary = self._planner.summarize((len(rollouts),))
        return [rollouts[position].line for position in _start_order(rollouts, self._shaping)], summary


def _start_order(rollouts: list[Rollout], shaping: Shaping) -> Iterable[int]:
    """The positions of rollouts in the order in which they start."""
    order: Iterable[int] = range(len(rollouts))
    if shaping.interleave_repeats:
        order = round_by_round([rollout.number for rollout in rollouts])
    if shaping.interleave_by_agent:
        names: dict[str, int] = {}
        by_position = [names.setdefault(rollout.destination.dispatch_name, len(names)) for rollout in rollouts]
        order = taking_turns(order, by_position)
    return order

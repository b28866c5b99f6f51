"""Rows that are dispatched as they are given: resolved and checked against the deployment, not repeated or numbered.

What `run_examples` and `run_outcomes` do with their rows (source: protocol §5.6, §6.1). Nothing is sent unless every
row is valid; the rows of the caller are not changed.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gym_ray import keys
from gym_ray.deployment.lookup import Deployment
from gym_ray.planning.facts import check_stamps, read_facts
from gym_ray.planning.problems import Problem, Problems
from gym_ray.planning.routing import Router
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.memory import rows_of
from gym_ray.rows.splicing import encode


class GivenRow(NamedTuple):
    """A copy of one row with its routing stamps, and the same as a line."""

    row: dict[str, Any]
    line: bytes


def given_rows(
    examples: Iterable[Mapping[str, Any]],
    deployment: Deployment,
    *,
    environment_server_name: str | None = None,
    stamps: Mapping[str, Any] | None = None,
) -> list[GivenRow]:
    """The rows in the order given.

    Args:
        environment_server_name: bind every row to this environment server.
        stamps: further top-level members that every copy gets.

    Raises:
        InputError, RoutingError: rows are wrong; every problem is listed with its position.
    """
    router, problems = Router(Shaping(), deployment), Problems()
    given: list[GivenRow] = []
    for source in rows_of(examples):
        row: dict[str, Any] = json.loads(source.line)
        if environment_server_name is not None:
            row[keys.ENVIRONMENT_SERVER] = environment_server_name
        try:
            facts = read_facts(row)
            check_stamps(row, is_materialized=facts.is_materialized)
        except ValueError as error:
            problems.add(Problem.STAMP, str(error), source)
            continue
        route = router.route(facts)
        for problem, cause in route.problems:
            problems.add(problem, cause, source)
        for destination in route.destinations:
            if destination.is_new_agent:
                row[keys.AGENT_REF] = {keys.NAME: destination.agent}
            if destination.stamp is not None:
                row[keys.ENVIRONMENT_SERVER] = destination.stamp
        row.update(stamps or {})
        given.append(GivenRow(row, encode(row)))
    problems.raise_if_any()
    return given

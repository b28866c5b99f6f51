"""Every problem of a plan is told at once: protocol §5.11."""

import pickle

import pytest

from gym_ray.errors import ConfigError, GymRayError, InputError, RoutingError
from gym_ray.planning.in_memory import plan_rows
from gym_ray.planning.problems import MAX_CAUSES, MAX_RANGES, Problem, Problems
from gym_ray.planning.shaping import Shaping
from gym_ray.rows.source_row import SourceRow
from tests.planning.planned import deployment, lines_of


def line(number: int, name: str = "rows.jsonl") -> SourceRow:
    return SourceRow(b"{}", name, number, number - 1)


def told(problems: Problems) -> str:
    with pytest.raises(GymRayError) as caught:
        problems.raise_if_any()
    return str(caught.value)


def test_all_kinds_of_problems_of_all_rows_are_told_together_in_a_fixed_order() -> None:
    text = (
        b'{"responses_create_params":{},"agent_ref":{"name":"nobody"}}\n'
        b"\n"
        b'{"responses_create_params":{}}\n'
        b'{"agent_ref":{"name":"a"}}\n'
        b'{"responses_create_params":{},"agent_ref":{"name":"nobody"}}\n'
        b"[1]\n"
    )
    with pytest.raises(InputError) as caught:
        plan_rows(lines_of(text), Shaping(), deployment())
    assert str(caught.value).split("\n") == [
        "2 rows cannot be read:",
        "  rows.jsonl:2: expected a JSON object, found a blank line: remove it",
        "  rows.jsonl:6: expected a JSON object, found a list",
        "1 row has no responses_create_params, which every flat row needs:",
        "  missing: rows.jsonl:4",
        "1 row names neither an agent nor a task_source, and agent_map has no _default (--agent sets it):",
        "  rows without a route (the deployment offers the agents a, b, solo): rows.jsonl:3",
        "2 rows name an agent that the deployment does not offer:",
        "  agent 'nobody' is not in the deployment: there are 'a', 'b', 'solo': rows.jsonl:1, rows.jsonl:5 (2 rows)",
        "nothing was sent",
    ]


def test_neighbouring_rows_are_one_range() -> None:
    problems = Problems()
    for number in (3, 4, 5, 9, 10, 12):
        problems.add(Problem.AGENT, "why", line(number))
    problems.add(Problem.AGENT, "why", line(13, "other.jsonl"))
    assert "why: rows.jsonl:3-5, rows.jsonl:9-10, rows.jsonl:12, other.jsonl:13 (7 rows)" in told(problems)


def test_rows_in_memory_have_ranges_too() -> None:
    problems = Problems()
    for number in (1, 2, 3):
        problems.add(Problem.AGENT, "why", SourceRow(b"", "rows", number, number, is_line=False))
    assert "why: rows[1]-[3] (3 rows)" in told(problems)


def test_long_lists_are_cut_and_counted() -> None:
    problems = Problems()
    for number in range(0, 1000, 2):
        problems.add(Problem.AGENT, "why", line(number))
    text = told(problems)
    assert text.count("rows.jsonl:") == MAX_RANGES
    assert ", ... (500 rows)" in text


def test_many_causes_are_cut_and_counted() -> None:
    problems = Problems()
    for number in range(MAX_CAUSES + 7):
        problems.add(Problem.UNREADABLE, f"rows.jsonl:{number}: why")
    assert told(problems).split("\n")[-2] == "  ... and 7 more"


def test_the_error_is_of_the_class_of_the_first_kind() -> None:
    for kinds, error in (
        ([Problem.AGENT], RoutingError),
        ([Problem.AGENT, Problem.UNREADABLE], InputError),
        ([Problem.PAIRING, Problem.REPEATS], ConfigError),
    ):
        problems = Problems()
        for kind in kinds:
            problems.add(kind, "why", line(1))
        with pytest.raises(error) as caught:
            problems.raise_if_any()
        assert isinstance(caught.value, ValueError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_without_problems_nothing_is_raised() -> None:
    problems = Problems()
    assert not problems
    problems.raise_if_any()


@pytest.mark.parametrize("kind", list(Problem))
def test_every_kind_reads_as_a_sentence_for_one_row_and_for_several(kind: Problem) -> None:
    for rows in (1, 2):
        problems = Problems()
        for number in range(rows):
            problems.add(kind, "why", line(number))
        first = told(problems).split("\n")[0]
        assert first.startswith(f"{rows} {kind.noun}{'s' * (rows > 1)} ")
        assert first.endswith(":")

"""What rows say about their way and their identity: protocol §0.2, §2.2, §5.11 (18)."""

from typing import Any

import pytest

from gym_ray.errors import InputError
from gym_ray.planning.facts import RowFacts, read_facts
from tests.planning.planned import plan, row, summary, task

ROUTES = {"games:eval": "a_environment"}


def test_a_row_is_materialized_by_an_object_as_task_id_beside_a_task_input() -> None:
    assert read_facts({"task_id": {"taskset": "s", "task_id": "m"}, "task_input": None}) == RowFacts(
        None, None, "s", True, None
    )
    assert not read_facts({"task_id": {"taskset": "s"}}).is_materialized
    assert not read_facts({"task_id": "m", "task_input": {}}).is_materialized


@pytest.mark.parametrize("taskset", [None, "", 5, []])
def test_a_taskset_is_a_text_that_is_not_empty(taskset: Any) -> None:
    facts = read_facts({"task_id": {"taskset": taskset, "task_id": "m"}, "task_input": {}})
    assert facts.is_materialized
    assert facts.taskset is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agent_ref": "a"}, "agent_ref: expected an object with a name, found 'a'"),
        ({"agent_ref": {"name": 5}}, "agent_ref.name: expected a name, found 5"),
        ({"task_source": 5}, "task_source: expected a name, found 5"),
        ({"task_source": ["games"]}, "task_source: expected a name"),
        ({"_ng_environment_server": 1}, "_ng_environment_server: expected a name"),
        ({"_ng_attempt_index": -1}, "_ng_attempt_index: expected an integer from 0, found -1"),
        ({"_ng_attempt_index": True}, "_ng_attempt_index: expected an integer from 0, found True"),
        ({"_ng_attempt_index": "1"}, "_ng_attempt_index: expected an integer from 0"),
        ({"_ng_rollout_id": 7}, "_ng_rollout_id: expected letters, digits"),
        ({"_ng_rollout_id": "-x"}, "_ng_rollout_id: expected letters, digits"),
        ({"_ng_rollout_id": "a/b"}, "_ng_rollout_id: expected letters, digits"),
        ({"_ng_rollout_id": ""}, "_ng_rollout_id: expected letters, digits"),
    ],
)
def test_a_value_that_planning_cannot_use_is_refused_with_its_row(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        plan([row("a"), {**row("a"), **fields}])
    assert f"{message}" in str(caught.value)
    assert "rows[1]" in str(caught.value)


def test_the_ending_of_attempts_is_refused_on_materialized_rows_only() -> None:
    with pytest.raises(InputError, match=r"the ending -a<number> is reserved"):
        plan([task("games:eval", "m", _ng_rollout_id="x-a2")], environment_server_routes=ROUTES)
    assert plan([row("a", _ng_rollout_id="x-a2")])[0]["_ng_rollout_id"] == "x-a2"


def test_an_attempt_index_does_not_reach_the_plan() -> None:
    assert "_ng_attempt_index" not in plan([row("a", _ng_attempt_index=3)])[0]


def test_an_empty_name_is_none() -> None:
    (planned_row,) = plan([row("a", "", _ng_environment_server="")])
    assert planned_row["task_source"] == ""


def test_rollouts_that_share_an_explicit_id_are_a_warning() -> None:
    assert summary([row("a", "games", _ng_rollout_id="x"), row("a", "games", _ng_rollout_id="y")]).warnings == ()
    (warning,) = summary([row("a", "games", _ng_rollout_id="x")], num_repeats=3).warnings
    assert warning.startswith("3 rollouts share 1 values of _ng_rollout_id")


def test_rows_with_an_agent_and_no_source_are_a_warning_with_their_count() -> None:
    (warning,) = summary([row("a"), row("b", "games"), row("b")]).warnings
    assert warning.startswith("2 rows name an agent but no task_source")

"""Register tasks: the tools are executed, and the reward looks at the state that is left."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.calculator_rows import calculator_row
from gym_ray.example.calculator_tools import CalculatorTask, CalculatorToolsEnvironment, scripted_calls
from gym_ray.example.environment import HandledFailure
from gym_ray.example.model import Disposition
from gym_ray.example.registers import RegisterMachine

_PROMPT = {"input": "Follow the steps."}
_TASK: dict[str, Any] = {
    "registers": {"a": 2, "b": 5},
    "instructions": [
        {"tool": "multiply", "arguments": {"left": "a", "right": "b", "into": "a"}},
        {"tool": "subtract", "arguments": {"left": "a", "right": 3, "into": "b"}},
    ],
    "expected_registers": {"a": 10, "b": 7},
}


def _run(task: dict[str, Any], disposition: Disposition) -> dict[str, int]:
    checked = CalculatorTask.model_validate(task)
    machine = RegisterMachine(checked.registers)
    for call in scripted_calls(checked, disposition):
        machine.call(call.tool, call.arguments)
    return machine.registers


def test_a_call_changes_one_register() -> None:
    machine = RegisterMachine({"a": 2, "b": 5})
    assert machine.call("add", {"left": "a", "right": 40, "into": "b"}).text == "b = 42"
    assert machine.call("copy", {"source": "b", "into": "a"}).text == "a = 42"
    assert machine.call("read", {"register": "a"}).text == "a = 42"
    assert machine.registers == {"a": 42, "b": 42}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("divide", {"left": "a", "right": "b", "into": "a"}),
        ("add", {"left": "a", "right": "z", "into": "a"}),
        ("add", {"left": "a", "right": True, "into": "a"}),
        ("add", {"left": "a", "into": "a"}),
        ("add", {"left": "a", "right": "b", "into": "z"}),
        ("multiply", {"left": 10**10, "right": 10**10, "into": "a"}),
        ("copy", {"source": 3, "into": "a"}),
        ("read", {"register": ["a"]}),
    ],
)
def test_a_wrong_call_is_answered_and_changes_nothing(tool: str, arguments: dict[str, Any]) -> None:
    machine = RegisterMachine({"a": 2, "b": 5})
    reply = machine.call(tool, arguments)
    assert reply.is_error
    assert reply.text.startswith("error: ")
    assert machine.registers == {"a": 2, "b": 5}


@given(st.integers(0, 239), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_model_that_does_not_err_reaches_the_expected_state(number: int, place: float, style: float) -> None:
    task = calculator_row(number)["task_input"]["task_data"]
    assert _run(task, Disposition(False, 0.5, place, style)) == task["expected_registers"]


@pytest.mark.parametrize(
    ("manner", "left"),
    [(0.1, {"a": 10, "b": 5}), (0.5, {"a": 10, "b": 6}), (0.9, {"a": 10, "b": 5})],
    ids=["forgets the step", "misreads the step", "invents a register"],
)
def test_a_model_that_errs_leaves_another_state(manner: float, left: dict[str, int]) -> None:
    assert _run(_TASK, Disposition(True, manner, place=0.6, style=0.5)) == left


def test_the_reward_is_the_state_and_not_the_path() -> None:
    episode = CalculatorToolsEnvironment().open(_PROMPT, _TASK)
    results = [episode.play(AttemptIdentity(task, 0)) for task in range(60)]
    assert {result["reward"] for result in results} == {0.0, 1.0}
    for result in results:
        assert (result["reward"] == 1.0) == (result["final_registers"] == _TASK["expected_registers"])
        assert result["correct_registers"] == 2 - len(result["wrong_registers"])


def test_the_response_holds_each_call_with_its_output() -> None:
    result = CalculatorToolsEnvironment().open(_PROMPT, _TASK).play(AttemptIdentity(0, 0))
    *items, last = result["response"]["output"]
    calls, outputs = items[::2], items[1::2]
    assert [call["call_id"] for call in calls] == [output["call_id"] for output in outputs]
    assert len(calls) == result["tool_calls"]
    assert last["type"] == "message"


def test_an_agent_that_runs_out_of_calls_is_a_handled_failure() -> None:
    episode = CalculatorToolsEnvironment().open(_PROMPT, {**_TASK, "max_tool_calls": 1})
    with pytest.raises(HandledFailure, match="used all of its 1 tool calls") as failed:
        episode.play(AttemptIdentity(0, 0))
    assert (failed.value.terminal, failed.value.kind, failed.value.stage) == (False, "agent_timeout", "agent")


@pytest.mark.parametrize("change", [{"registers": {}}, {"instructions": []}, {"expected_registers": {"z": 1}}])
def test_a_task_that_cannot_be_checked_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CalculatorToolsEnvironment().open(_PROMPT, {**_TASK, **change})

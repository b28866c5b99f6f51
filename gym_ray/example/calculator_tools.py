"""The `calculator_tools` environment: materialized tasks in which an agent brings registers to a wanted state.

The agent's tool calls are executed one by one on a register machine, and the reward looks at the state that is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, model_validator

from gym_ray import keys
from gym_ray.example import model
from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.environment import EnvironmentFacts, HandledFailure, JsonObject
from gym_ray.example.registers import RegisterMachine

CALCULATOR_TOOLS = EnvironmentFacts(
    resources_server="calculator_tools",
    agent="calculator_tools_agent",
    server="calculator_tools_environment_server",
    implementation="single_agent_turn",
    domain="agent",
    taskset="calculator_tools:example",
)


class ToolCall(BaseModel):
    """One step of the instructions."""

    tool: str
    arguments: dict[str, str | int]


class CalculatorTask(BaseModel):
    """The fields of `task_input` beside the prompt."""

    registers: dict[str, int] = Field(min_length=1)
    instructions: list[ToolCall] = Field(min_length=1)
    """The steps of the prompt in a form that the scripted model reads; the check does not."""
    expected_registers: dict[str, int]
    max_tool_calls: int = Field(32, ge=1)

    @model_validator(mode="after")
    def _expect_known_registers(self) -> "CalculatorTask":
        if unknown := sorted(self.expected_registers.keys() - self.registers.keys()):
            raise ValueError(f"expected_registers names registers that do not exist: {', '.join(unknown)}")
        return self


@dataclass(frozen=True, slots=True)
class CalculatorEpisode:
    """One set of registers to work on."""

    prompt: JsonObject
    task: CalculatorTask

    def play(self, identity: AttemptIdentity) -> JsonObject:
        machine = RegisterMachine(self.task.registers)
        output: list[JsonObject] = []
        calls = failed_calls = 0
        for call in scripted_calls(self.task, model.disposition(identity, len(self.task.instructions))):
            if calls == self.task.max_tool_calls:
                raise HandledFailure(
                    f"the agent used all of its {calls} tool calls", terminal=False, kind="agent_timeout", stage="agent"
                )
            reply = machine.call(call.tool, call.arguments)
            output += [model.tool_call(call.tool, dict(call.arguments), calls), model.tool_output(reply.text, calls)]
            calls += 1
            failed_calls += reply.is_error
        output.append(model.message(f"Done after {calls} tool calls.", calls))
        wrong = _wrong_registers(machine.registers, self.task.expected_registers)
        return {
            keys.RESPONSES_CREATE_PARAMS: self.prompt,
            keys.RESPONSE: model.response(identity, self.prompt, output),
            keys.REWARD: 0.0 if wrong else 1.0,
            keys.MASK_SAMPLE: False,
            keys.FAILURE_KIND: None,
            keys.FAILURE_REASON: None,
            "final_registers": machine.registers,
            "wrong_registers": wrong,
            "correct_registers": len(self.task.expected_registers) - len(wrong),
            "tool_calls": calls,
            "failed_tool_calls": failed_calls,
        }


class CalculatorToolsEnvironment:
    """Opens register tasks."""

    facts = CALCULATOR_TOOLS

    def open(self, prompt: JsonObject, task: JsonObject) -> CalculatorEpisode:
        return CalculatorEpisode(prompt, CalculatorTask.model_validate(task))


def scripted_calls(task: CalculatorTask, disposition: model.Disposition) -> Iterator[ToolCall]:
    """The tool calls that the model makes; in some rollouts it errs at one of them."""
    wrong_step = int(disposition.place * len(task.instructions)) if disposition.errs else None
    if disposition.style < 0.2:  # a careful start: looks at a register first
        yield ToolCall(tool="read", arguments={"register": next(iter(task.registers))})
    for step, call in enumerate(task.instructions):
        if step != wrong_step:
            yield call
        elif disposition.manner < 0.3:
            continue  # forgets the step
        elif disposition.manner < 0.7:
            yield _misread(call)
        else:  # invents a register, hears about it and does not come back to the step
            yield ToolCall(tool=call.tool, arguments={**call.arguments, "into": "result"})


def _misread(call: ToolCall) -> ToolCall:
    """The call with one operand off by one, or with another operation."""
    arguments: dict[str, Any] = dict(call.arguments)
    for operand in ("right", "left"):
        if isinstance(value := arguments.get(operand), int):
            return ToolCall(tool=call.tool, arguments={**arguments, operand: value + 1})
    other = {"add": "subtract", "subtract": "add", "multiply": "add"}.get(call.tool)
    if other is not None:
        return ToolCall(tool=other, arguments=arguments)
    return ToolCall(tool="copy", arguments={"source": arguments["into"], "into": arguments["source"]})


def _wrong_registers(found: dict[str, int], expected: dict[str, int]) -> list[str]:
    return sorted(register for register, value in expected.items() if found[register] != value)

"""Register tasks for the `calculator_tools` environment: instructions, and the state that following them leaves."""

from gym_ray import keys
from gym_ray.example.calculator_tools import CALCULATOR_TOOLS
from gym_ray.example.draws import Dice
from gym_ray.example.environment import JsonObject
from gym_ray.example.registers import RegisterMachine

_REGISTERS = ("a", "b", "c", "d", "e")
_MAX_STEPS = 6
_MAX_MAGNITUDE = 100_000
"""Larger products make prompts that nobody checks by hand."""
_SYSTEM = "You have tools that work on named registers. Follow the steps in order, one tool call for each step."
_WORDING = {
    "add": "Add {right} to {left} and put the sum into {into}.",
    "subtract": "Subtract {right} from {left} and put the difference into {into}.",
    "multiply": "Multiply {left} by {right} and put the product into {into}.",
    "copy": "Copy {source} into {into}.",
}


def calculator_row(number: int) -> JsonObject:
    """The materialized row of this number; rows get harder and start over, from one step to six."""
    dice = Dice(f"calculator tools {number}")
    names = _REGISTERS[: 3 + number % 3]
    start = {name: dice.between(-20, 40) for name in names}
    machine = RegisterMachine(start)
    instructions = [_instruction(dice, machine) for _ in range(1 + number % _MAX_STEPS)]
    return {
        keys.TASK_ID: {keys.TASKSET: CALCULATOR_TOOLS.taskset, keys.TASK_ID: f"calculator-{number:04}"},
        keys.TASK_INPUT: {
            keys.RESPONSES_CREATE_PARAMS: {
                "input": [
                    {"role": "system", "content": _SYSTEM},
                    {"role": "user", "content": _prompt(start, instructions)},
                ],
                "tools": _TOOLS,
                "parallel_tool_calls": False,
                "temperature": 1.0,
            },
            "task_data": {
                "registers": start,
                "instructions": instructions,
                "expected_registers": machine.registers,
                "max_tool_calls": 2 * len(instructions) + 2,
            },
        },
    }


def _instruction(dice: Dice, machine: RegisterMachine) -> JsonObject:
    """A step that changes the machine's state; it has been executed."""
    names = tuple(machine.registers)
    while True:
        tool = dice.pick(tuple(_WORDING))
        into = dice.pick(names)
        arguments: JsonObject
        if tool == "copy":
            arguments = {"source": dice.pick(names), "into": into}
        else:
            right = dice.pick(names) if dice.between(0, 1) else dice.between(2, 12)
            arguments = {"left": dice.pick(names), "right": right, "into": into}
        trial = RegisterMachine(machine.registers)
        trial.call(tool, arguments)
        if trial.registers != machine.registers and abs(trial.registers[into]) <= _MAX_MAGNITUDE:
            machine.call(tool, arguments)
            return {"tool": tool, "arguments": arguments}


def _prompt(start: JsonObject, instructions: list[JsonObject]) -> str:
    state = ", ".join(f"{name} = {value}" for name, value in start.items())
    steps = [
        f"{step}. {_WORDING[call['tool']].format(**call['arguments'])}"
        for step, call in enumerate(instructions, start=1)
    ]
    return "\n".join([f"Registers: {state}.", *steps])


def _tool(name: str, description: str, **parameters: JsonObject) -> JsonObject:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": parameters, "required": list(parameters)},
    }


_REGISTER: JsonObject = {"type": "string"}
_OPERAND: JsonObject = {"type": ["string", "integer"]}

_TOOLS = [
    _tool("read", "Shows a register.", register=_REGISTER),
    _tool("copy", "Copies a register.", source=_REGISTER, into=_REGISTER),
    _tool("add", "into = left + right", left=_OPERAND, right=_OPERAND, into=_REGISTER),
    _tool("subtract", "into = left - right", left=_OPERAND, right=_OPERAND, into=_REGISTER),
    _tool("multiply", "into = left * right", left=_OPERAND, right=_OPERAND, into=_REGISTER),
]

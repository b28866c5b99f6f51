"""The register machine behind the calculator's tools: one call, one change of state or one complaint.

Invariant: a call that fails changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_MAX_VALUE = 10**15
"""Doubles hold every whole number up to here, so a client in any language reads the registers exactly."""

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda left, right: left + right,
    "subtract": lambda left, right: left - right,
    "multiply": lambda left, right: left * right,
}


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What a tool says to the agent."""

    is_error: bool
    text: str


class RegisterMachine:
    """Named registers with whole numbers, changed by tool calls."""

    def __init__(self, registers: Mapping[str, int]) -> None:
        self._registers = dict(registers)

    @property
    def registers(self) -> dict[str, int]:
        """A copy of the state."""
        return dict(self._registers)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Executes one tool call; a wrong call is answered, not raised."""
        try:
            into, value = self._evaluate(tool, arguments)
        except _WrongCall as wrong:
            return ToolReply(is_error=True, text=f"error: {wrong}")
        self._registers[into] = value
        return ToolReply(is_error=False, text=f"{into} = {value}")

    def _evaluate(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, int]:
        if tool == "read":
            register = self._register(arguments, "register")
            return register, self._registers[register]
        if tool == "copy":
            source, into = self._register(arguments, "source"), self._register(arguments, "into")
            return into, self._registers[source]
        if (operation := _OPERATIONS.get(tool)) is None:
            raise _WrongCall(f"there is no tool {tool!r}")
        value = operation(self._operand(arguments, "left"), self._operand(arguments, "right"))
        if abs(value) > _MAX_VALUE:
            raise _WrongCall(f"the result {value} is larger than a register holds")
        return self._register(arguments, "into"), value

    def _register(self, arguments: Mapping[str, Any], name: str) -> str:
        register = arguments.get(name)
        if not isinstance(register, str) or register not in self._registers:
            raise _WrongCall(f"{name}: expected one of {', '.join(self._registers)}, found {register!r}")
        return register

    def _operand(self, arguments: Mapping[str, Any], name: str) -> int:
        """A whole number, or the value of the register that is named."""
        operand = arguments.get(name)
        if isinstance(operand, int) and not isinstance(operand, bool):
            return operand
        return self._registers[self._register(arguments, name)]


class _WrongCall(Exception):
    pass

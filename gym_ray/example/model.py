"""The scripted model: what it says, as an OpenAI Responses object, and how often it errs.

Invariant: whether and how it errs depends on the rollout alone (task and rollout index): not on the attempt, the time,
the order or the profile. So rewards repeat from run to run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gym_ray import keys
from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.draws import uniforms
from gym_ray.example.environment import JsonObject
from gym_ray.identity import capture_key

MODEL_NAME = "scripted"
_CREATED_AT = 1_767_225_600
"""Fixed, so that replies repeat byte for byte."""
_CHARACTERS_PER_TOKEN = 4
"""The usual rule of thumb for English."""
_CHANCE_AFTER_STEPS = (0.98, 0.95, 0.85, 0.7, 0.5, 0.3)
"""How often it gets a task of 1, 2, ... steps right: easy tasks saturate, hard ones give pass@k something to show."""


@dataclass(frozen=True, slots=True)
class Disposition:
    """What the model is up to in one rollout. The last three are numbers in [0, 1) to choose with."""

    errs: bool
    manner: float
    place: float
    style: float


def disposition(identity: AttemptIdentity, steps: int) -> Disposition:
    """How the model will play a rollout of a task that takes `steps` steps."""
    luck, manner, place, style = uniforms("scripted model", identity.task, identity.rollout)
    chance = _CHANCE_AFTER_STEPS[min(max(steps, 1), len(_CHANCE_AFTER_STEPS)) - 1]
    return Disposition(errs=luck >= chance, manner=manner, place=place, style=style)


def message(text: str, item: int) -> JsonObject:
    """An output item with text of the assistant."""
    return {
        "id": f"msg_{item}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def tool_call(tool: str, arguments: JsonObject, item: int) -> JsonObject:
    """An output item with a call of a tool."""
    return {
        "id": f"fc_{item}",
        "type": "function_call",
        "call_id": f"call_{item}",
        "name": tool,
        "arguments": orjson.dumps(arguments).decode(),
        "status": "completed",
    }


def tool_output(text: str, item: int) -> JsonObject:
    """The output item that answers the tool call `item`."""
    return {"type": "function_call_output", "call_id": f"call_{item}", "output": text, "status": "completed"}


def response(identity: AttemptIdentity, prompt: JsonObject, output: Sequence[JsonObject]) -> JsonObject:
    """The whole response; usage counts every turn, each of which reads all that came before it."""
    own_id = f"{identity.task}-{identity.rollout}"
    return {
        "id": f"resp_{capture_key(own_id, identity.attempt)}",
        "object": keys.RESPONSE,
        "created_at": _CREATED_AT,
        "status": "completed",
        "error": None,
        keys.INCOMPLETE_DETAILS: None,
        "instructions": prompt.get("instructions"),
        "metadata": prompt.get("metadata"),
        "model": MODEL_NAME,
        "output": output,
        "parallel_tool_calls": prompt.get("parallel_tool_calls", True),
        "temperature": prompt.get("temperature"),
        "tool_choice": prompt.get("tool_choice", "auto"),
        "tools": prompt.get("tools", []),
        "top_p": prompt.get("top_p"),
        keys.USAGE: _usage(prompt["input"], output),
    }


def _usage(prompt_input: str | list[Any], output: Sequence[JsonObject]) -> JsonObject:
    context = _tokens(prompt_input)
    read = written = 0
    for item in output:
        size = _tokens(item)
        if item["type"] != "function_call_output":  # the model speaks: it read the context, and adds to it
            read += context
            written += size
        context += size
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def _tokens(content: Any) -> int:
    return 1 + len(orjson.dumps(content)) // _CHARACTERS_PER_TOKEN

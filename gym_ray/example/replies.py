"""Puts what happened to an attempt into the form that its request asks for.

Source: protocol §2.3 (flat rows), §2.4 (episodes).
"""

from gym_ray import keys
from gym_ray.example.environment import HandledFailure, JsonObject
from gym_ray.example.requests import RunRequest

_MAX_REASON = 2000
"""Source: protocol §2.4."""


def result_reply(request: RunRequest, result: JsonObject) -> JsonObject:
    """The body for a finished attempt."""
    if request.echo is None:
        return result
    return {**request.echo, keys.RESULT: result, keys.FAILURE: None}


def failure_reply(request: RunRequest, failure: HandledFailure) -> JsonObject:
    """The body for an attempt that the environment gives up."""
    reason = failure.reason[:_MAX_REASON]
    if request.echo is None:
        return {
            keys.RESPONSES_CREATE_PARAMS: request.prompt,
            keys.REWARD: 0.0,
            keys.MASK_SAMPLE: True,
            keys.FAILURE_KIND: failure.kind,
            keys.FAILURE_REASON: reason,
            keys.FAILURE_CLASS: keys.ENVIRONMENT_SERVER_FAILED,
            keys.FAILURE_TERMINAL: failure.terminal,
        }
    body: JsonObject = {keys.FAILURE_REASON: reason, keys.TERMINAL: failure.terminal}
    if failure.kind is not None:
        body[keys.FAILURE_KIND] = failure.kind
    if failure.stage is not None:
        body[keys.STAGE] = failure.stage
    return {**request.echo, keys.RESULT: None, keys.FAILURE: body}

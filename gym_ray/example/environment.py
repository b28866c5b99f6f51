"""What an environment is to the server around it."""

from dataclasses import dataclass
from typing import Any, Protocol

from gym_ray.example.attempt import AttemptIdentity

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """The names under which an environment appears in the merged config."""

    resources_server: str
    agent: str
    server: str
    """The environment server's instance name."""
    implementation: str
    """Its key under `environment_servers`, stamped on results as `_ng_result_type`."""
    domain: str
    taskset: str | None = None
    """The taskset of its materialized tasks, if it has any."""
    takes_rows: bool = False
    """True if a flat row is a valid request; episode requests always are."""


class HandledFailure(Exception):
    """An episode ended without a result and the environment says so itself (protocol §2.4)."""

    def __init__(self, reason: str, *, terminal: bool, kind: str | None = None, stage: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.terminal = terminal
        self.kind = kind
        self.stage = stage


class Episode(Protocol):
    """One task with its prompt, valid and ready to be played."""

    def play(self, identity: AttemptIdentity) -> JsonObject:
        """The result: response, reward and the environment's own fields. The same rollout always ends the same way.

        Raises:
            HandledFailure: the episode ended without a result.
        """
        ...


class Environment(Protocol):
    """Opens episodes of one kind of task."""

    @property
    def facts(self) -> EnvironmentFacts: ...

    def open(self, prompt: JsonObject, task: JsonObject) -> Episode:
        """An episode for `responses_create_params` and the task's own fields.

        Raises:
            pydantic.ValidationError: the task's fields do not fit.
        """
        ...

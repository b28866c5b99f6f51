"""Which attempt a request is, and what is destined for it.

Invariant: an attempt's latency and fault depend on its identity and the profile alone, so a run repeats.
"""

import re
from dataclasses import dataclass

from gym_ray.example.draws import uniforms
from gym_ray.example.profile import SLOW_FACTOR, Fault, Profile

_DERIVED_ID = re.compile(r"(?:.*-)?(\d{1,18})-(\d{1,18})")
"""`<task>-<rollout>`, perhaps behind the id of a run."""


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """One physical try of a rollout."""

    task: int | str
    """The task index; for an explicit rollout id of another form, that id."""
    rollout: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Fate:
    """What an attempt will meet."""

    latency_s: float
    fault: Fault | None


def identity_of_episode(rollout_id: str, attempt: int) -> AttemptIdentity:
    """The identity behind an `episode_id`; a run's id in front of it does not matter."""
    if (match := _DERIVED_ID.fullmatch(rollout_id)) is None:
        return AttemptIdentity(rollout_id, 0, attempt)
    return AttemptIdentity(int(match[1]), int(match[2]), attempt)


def fate_of(identity: AttemptIdentity, profile: Profile) -> Fate:
    """The latency and the fault that the profile holds for an attempt."""
    where, slow, wrong, _ = uniforms(profile.seed, identity.task, identity.rollout, identity.attempt)
    latency_s = profile.latency.low_s + where * (profile.latency.high_s - profile.latency.low_s)
    if slow < profile.tail_share:
        latency_s *= SLOW_FACTOR
    for fault, share in profile.faults:
        if wrong < share:
            return Fate(latency_s, fault)
        wrong -= share
    return Fate(latency_s, None)

"""One try of one rollout on one server, and the stamps that its record gets.

Source: protocol §8.6 step 2.
"""

from functools import lru_cache
from typing import NamedTuple

from gym_ray import keys
from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.identity import ABSENT, RowIdentity
from gym_ray.rows.splicing import encode_text


class Attempt(NamedTuple):
    """Who ran where, and in which run."""

    identity: RowIdentity
    number: int
    server: EnvironmentServer
    run_id: str

    def stamps(self, sends: int = 1) -> dict[str, bytes]:
        """The identity stamps as JSON texts on one line, in their order, and `sends` where it tells of a replay."""
        identity = self.identity
        stamps: dict[str, bytes] = {}
        if identity.task_index is not None:
            stamps[keys.TASK_INDEX] = b"%d" % identity.task_index
        if identity.rollout_index is not None:
            stamps[keys.ROLLOUT_INDEX] = b"%d" % identity.rollout_index
        if identity.agent_ref is not ABSENT:
            stamps[keys.AGENT_REF] = bytes(identity.agent_ref)
        if identity.task_source is not ABSENT:
            stamps[keys.TASK_SOURCE] = bytes(identity.task_source)
        if identity.skills_ref is not ABSENT:
            stamps[keys.SKILLS_REF] = bytes(identity.skills_ref)
        if self.number > 0:
            stamps[keys.ATTEMPT_INDEX] = b"%d" % self.number
        if identity.explicit_id is not None:
            stamps[keys.ROLLOUT_ID] = encode_text(identity.explicit_id)
        stamps[keys.ENVIRONMENT_SERVER] = _encode_name(self.server.name)
        stamps[keys.RESULT_TYPE] = _encode_name(self.server.result_type)
        if sends > 1:
            stamps[keys.SENDS] = b"%d" % sends
        return stamps


@lru_cache(maxsize=256)  # a deployment has a handful
def _encode_name(name: str) -> bytes:
    return encode_text(name)

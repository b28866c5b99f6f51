"""The driver's end of one shard: what it holds, what it has acknowledged, how fast it is."""

from typing import Protocol

from gym_ray.dispatch.exchange import StepAnswer, StepRequest

RATE_WINDOW = 0.3
"""Weight of the newest answer in the rate: a few answers, so that the reserve follows a change within a second."""


class ShardHandle(Protocol):
    """A shard somewhere else. A dead one raises `ShardDied` from every call."""

    async def step(self, request: StepRequest) -> StepAnswer: ...

    async def nudge(self) -> None: ...

    async def aclose(self) -> None: ...


class ShardDied(Exception):
    """The process of a shard is gone, or does not answer."""


class ShardLink:
    """One shard slot. `leases` maps (run, number) to its attempt and the time of the lease, until it ends."""

    def __init__(self, slot: int, handle: ShardHandle) -> None:
        self.slot = slot
        self.handle = handle
        self.restarts = 0
        self.reset(handle)

    def reset(self, handle: ShardHandle) -> None:
        """Take a new process into this slot; the caller has dealt with the leases of the old one."""
        self.handle = handle
        self.cap = 0
        self.ack = 0
        self.lease_seq = 0
        self.leases: dict[tuple[str, int], tuple[int, float]] = {}
        self.cancelled: list[str] = []
        self.drained: list[str] = []
        self.rate_per_s = 0.0
        self.is_open = False
        """True while a `step` is under way."""

    def measured(self, completions: int, seconds: float) -> None:
        """Take the pace of one answer into the rate."""
        if seconds > 0:
            self.rate_per_s += RATE_WINDOW * (completions / seconds - self.rate_per_s)

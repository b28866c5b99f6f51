"""The driver's end of one shard: what it holds, what it has acknowledged, how fast it is."""

from math import exp
from typing import NamedTuple, Protocol

from gym_ray.dispatch.exchange import StepAnswer, StepRequest

RATE_WINDOW_S = 1.0
"""The rate is that of about the last second: one burst is no rate, and the reserve follows a change soon enough."""


class ShardHandle(Protocol):
    """A shard somewhere else. A dead one raises `ShardDied` from every call."""

    @property
    def node(self) -> str | None:
        """The id of the cluster node that it runs on; None where there are no nodes."""

    async def step(self, request: StepRequest) -> StepAnswer: ...

    async def nudge(self) -> None: ...

    async def stacks(self) -> list[str]: ...

    async def kill(self) -> None: ...

    async def aclose(self) -> None: ...


class ShardDied(Exception):
    """The process of a shard is gone, or does not answer."""


class Leased(NamedTuple):
    """One lease of a shard."""

    attempt: int
    server: int
    at: float


class ShardLink:
    """One live shard; `leases` maps (run, number) to what it was leased as, until it ends."""

    def __init__(self, slot: int, handle: ShardHandle) -> None:
        self.slot = slot
        self.handle = handle
        self.cap = 0
        self.ceiling = 0
        """Attempts that it may still have in flight: above the cap for a while after the cap has fallen."""
        self.waiting = 0
        """Leases that waited in it for a slot when it last answered."""
        self.ack = 0
        self.lease_seq = 0
        self.leases: dict[tuple[str, int], Leased] = {}
        self.cancelled: list[str] = []
        self.drained: list[str] = []
        self.cancels: list[tuple[str, int]] = []
        self.rate_per_s = 0.0
        self._rated_at = 0.0
        self.is_open = False
        """True while a `step` is under way."""
        self.is_retiring = False
        """True once it gets no more leases and ends with its last one."""

    @property
    def most_in_flight(self) -> int:
        """An upper bound."""
        return min(len(self.leases), self.ceiling)

    def take_orders(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, int], ...]]:
        """What there is to cancel and to drain, once."""
        orders = tuple(self.cancelled), tuple(self.drained), tuple(self.cancels)
        self.cancelled, self.drained, self.cancels = [], [], []
        return orders

    def answered(self, answer: StepAnswer, now: float) -> None:
        """Take what an answer says about the shard itself."""
        self.ack, self.waiting = answer.seq, answer.waiting
        self.ceiling = max(self.cap, answer.in_flight)
        fade = exp((self._rated_at - now) / RATE_WINDOW_S)
        self.rate_per_s = self.rate_per_s * fade + len(answer.completions) / RATE_WINDOW_S
        self._rated_at = now

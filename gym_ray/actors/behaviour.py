"""How environment servers behave, collected between two answers of a shard; what it means is decided by the driver."""

from collections.abc import Callable
from dataclasses import dataclass

from gym_ray.dispatch.exchange import ServerSignal
from gym_ray.environment.retry import THROTTLING, Cause, Setback
from gym_ray.outcomes.reply import Answered, Reply

PROXY_STATUSES = frozenset({502, 504})
"""Answers of a proxy whose server is not there."""

_NOBODY = frozenset({Cause.UNREACHABLE, Cause.DROPPED, Cause.TIMEOUT})


@dataclass(slots=True)
class _Counts:
    answers: int = 0
    setbacks: int = 0
    refusals: int = 0
    retry_after_s: float = 0.0
    last: str = ""


class Behaviour:
    """Counts by server, a position in the list of servers."""

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}
        self._watches: dict[int, Callable[[Setback], None]] = {}

    def watch(self, server: int) -> Callable[[Setback], None]:
        """What is to be told of tries that go wrong; see `EnvironmentClient.post_run`."""
        if server not in self._watches:
            self._watches[server] = lambda setback: self._observe(self._of(server), setback)
        return self._watches[server]

    def ended(self, server: int, reply: Reply) -> None:
        """Note how a whole call ended; its setbacks are known already."""
        if not isinstance(reply, Answered) or reply.status in THROTTLING:
            return
        counts = self._of(server)
        if reply.status in PROXY_STATUSES:
            counts.setbacks += 1
            counts.last = f"HTTP {reply.status}"
        else:
            counts.answers += 1
            counts.setbacks = 0  # it makes up for whatever went wrong before it

    def drain(self) -> tuple[ServerSignal, ...]:
        """What is new since the last call."""
        signals = tuple(
            ServerSignal(server, each.answers, each.setbacks, each.refusals, each.retry_after_s, each.last)
            for server, each in self._counts.items()
        )
        self._counts.clear()
        return signals

    def _observe(self, counts: _Counts, setback: Setback) -> None:
        reply = setback.reply
        if setback.cause is Cause.THROTTLED:
            counts.refusals += 1
            counts.retry_after_s = max(counts.retry_after_s, setback.retry_after_s or 0.0)
            counts.last = f"HTTP {reply.status}"
        elif setback.cause in _NOBODY:
            counts.setbacks += 1
            counts.last = "no answer" if isinstance(reply, Answered) else f"{reply.exception_type}: {reply.message}"

    def _of(self, server: int) -> _Counts:
        if (counts := self._counts.get(server)) is None:
            counts = self._counts[server] = _Counts()
        return counts

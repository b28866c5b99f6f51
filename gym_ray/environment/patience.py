"""How long a connection may rest before another request is written to it: pure, learned from what the server does.

A server that closes a connection while a request already waits unread in its receive buffer cannot be told from one
that ran the request. So connections are not used at an age at which their server may close them:

- a rest that is longer than what other connections have survived is not relied on: the connection is given up, and
  counts as a survivor. Eight survivors are enough, so that this costs eight connections and not one for each request;
- once the server has closed a connection at rest, the limit is well below the shortest rest that it cut. That limit
  doubles every minute, so that a restart of the server, which closes connections of any age, is forgotten again.
"""

from heapq import heappush, heappushpop
from math import exp2

MAX_REST_S = 15.0
"""Half of what Gym servers allow (protocol §4.1), so that it is us who close."""
FIRST_REST_S = 0.01
"""No server closes sooner on purpose; those that close after every answer are found out by the first close."""
SURVIVORS = 8
"""One may have escaped by chance: a server whose time is only a little longer than its rest may be late by the lag."""
_SHARE, _MARGIN_S = 0.5, 1.0
"""Event loops lag by up to a second; where the server waits less than two, half of it has to do."""
_DOUBLING_S = 60.0


class Patience:
    """The limit for one server. `now` is monotonic seconds."""

    __slots__ = ("_cut_at", "_cut_s", "_survived")

    def __init__(self) -> None:
        self._cut_s = MAX_REST_S
        self._cut_at = 0.0
        self._survived: list[float] = []
        """A heap of the longest rests after which a connection was still there."""

    def limit_s(self, now: float) -> float:
        """The longest rest after which a connection is used again."""
        proven_s = max(self._survived[0], FIRST_REST_S) if len(self._survived) == SURVIVORS else FIRST_REST_S
        return min(proven_s, self._uncut_s(now), MAX_REST_S)

    def observe_close(self, rest_s: float, now: float) -> None:
        """The server closed a connection that had rested for `rest_s`."""
        limit_s = max(rest_s * _SHARE, rest_s - _MARGIN_S)
        if limit_s < self._uncut_s(now):
            self._cut_s, self._cut_at = limit_s, now

    def observe_survival(self, rest_s: float) -> None:
        """A connection was still there after `rest_s`."""
        if len(self._survived) < SURVIVORS:
            heappush(self._survived, rest_s)
        else:
            heappushpop(self._survived, rest_s)

    def _uncut_s(self, now: float) -> float:
        doublings = min((now - self._cut_at) / _DOUBLING_S, 64.0)
        return self._cut_s * exp2(doublings)

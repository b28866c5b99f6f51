"""How many leases one environment server may hold, learned from how it answers: a window and a circuit breaker.

Pure: time is an argument, in seconds of one monotonic clock. One gate speaks for all shards, so that what one of them
is told slows down all of them, and only towards that server.

    what happens                                   what follows
    429 or 503 (refused)                           the window halves, at most once a second; nothing more starts
                                                   before its Retry-After is over
    5 setbacks without an answer between them      open: nothing starts for 1 s, then one probe; a probe that fails
                                                   doubles the pause, up to 30 s
    an answer, or a probe that nothing has set     closed: the window grows by one with each answer, above half of
      back for 15 s                                where it was refused by a twentieth

A setback is a try that reached nobody: no connection, one that broke, a 502 or 504 of a proxy. A refusal comes from a
server that lives. Any other answer says that it works, whatever it says about the rollout.
"""

from math import exp, inf

OPENS_AFTER = 5
"""One dropped connection is chance; as many setbacks in a row, without one answer between them, are the server."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
PROBE_S = 15.0
"""Longer than a connect time-out: a probe without a setback by then is being worked on."""
CUT_EVERY_S = 1.0
"""Refusals of one moment are one message, however many rollouts get it."""
SMALLEST_WINDOW = 2.0
GROWTH = 0.05
PACE_S = 10.0
"""After so many seconds an end counts for a third."""
REFUSAL_PATIENCE = 10
"""A server that refuses is waited for this many times as long as one that is gone."""


class ServerGate:
    """The gate of one server; `cap` is what a user allows it."""

    def __init__(self, cap: float = inf) -> None:
        self._cap = cap
        self.held = 0
        """Leases of this server that shards hold."""
        self._ended, self._ended_at = 0.0, 0.0
        self._window = self._threshold = inf
        self._cut_at = self._paused_until = self._open_until = -inf
        self._setbacks = 0
        self._down_since = self._refused_since = inf
        self._pause_s = 0.0
        self._probed_at: float | None = None

    @property
    def is_open(self) -> bool:
        """True while the breaker holds rollouts back."""
        return self._setbacks >= OPENS_AFTER

    def is_given_up(self, now: float, patience_s: float) -> bool:
        """True if every try was set back for `patience_s`, or refused for ten times as long."""
        is_gone = self.is_open and now - self._down_since >= patience_s
        return is_gone or now - self._refused_since >= REFUSAL_PATIENCE * patience_s

    def room(self, now: float, *, heeds_breaker: bool = True) -> int:
        """Leases that the server may be given now; `heeds_breaker=False` for work that may as well fail."""
        if now < self._paused_until:
            return 0
        if self.is_open and heeds_breaker:
            return self._probe_room(now)
        return self._free()

    def take(self, count: int, now: float) -> None:
        """Note leases that a shard gets."""
        self.held += count
        if count and self.is_open and now >= self._open_until:
            self._probed_at = now

    def give(self, now: float) -> None:
        """Note that a lease has ended or come back."""
        self.held -= 1
        self._ended, self._ended_at = self.pace(now) + 1.0, now

    def pace(self, now: float) -> float:
        """Leases that have ended lately; older ones count less."""
        return self._ended * exp((self._ended_at - now) / PACE_S)

    def answered(self, count: int) -> None:
        """Note answers of a server that works."""
        if self.is_open:
            self._window = SMALLEST_WINDOW  # it has just come back; its window doubles with each round
        self._close()
        for _ in range(count):
            if self._window >= 2.0 * self.held:
                break  # it does not bind, so nothing is known of what lies beyond
            self._window += 1.0 if self._window < self._threshold else max(1.0 / self._window, GROWTH)

    def refused(self, now: float, retry_after_s: float = 0.0) -> None:
        """Note that the server turned something away, and how long it asked to be left alone."""
        self._paused_until = max(self._paused_until, now + retry_after_s)
        self._refused_since = min(self._refused_since, now)
        if now - self._cut_at >= max(CUT_EVERY_S, retry_after_s):
            self._cut_at = now
            self._window = self._threshold = max(min(self._window, self.held) / 2.0, SMALLEST_WINDOW)

    def set_back(self, count: int, now: float) -> None:
        """Note tries that reached nobody."""
        self._down_since = min(self._down_since, now)
        was_open = self.is_open
        self._setbacks += count
        if self.is_open and (not was_open or self._probed_at is not None):
            self._pause_s = min(max(2.0 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._open_until = now + self._pause_s
            self._probed_at = None

    def _free(self) -> int:
        return max(int(min(self._cap, self._window, 1 << 30)) - self.held, 0)

    def _probe_room(self, now: float) -> int:
        if now < self._open_until:
            return 0
        if self._probed_at is None:
            return 1
        if now - self._probed_at < PROBE_S:
            return 0
        self._close()  # nothing has set the probe back, so somebody works on it
        self._window = max(self.held + 1.0, SMALLEST_WINDOW)
        return self._free()

    def _close(self) -> None:
        self._setbacks = 0
        self._down_since = self._refused_since = inf
        self._pause_s = 0.0
        self._probed_at = None

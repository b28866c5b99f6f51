"""What a person should know, carried from the process where it was logged to the one with a terminal.

Ray keeps the logs of actors on their node. A warning of ours therefore rides the calls that are made anyway: shard to
driver, driver to caller, where it is logged again.
"""

import logging
import time
from collections import deque

MAX_WAITING = 100
"""Older notices go first: the newest say what is wrong now."""
QUIET_S = 30.0
"""The same text is not repeated within this time; several shards see the same dead server."""


class Notices(logging.Handler):
    """Collects the warnings of `gym_ray` loggers in an actor process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._said_at: dict[str, float] = {}

    @classmethod
    def install(cls) -> "Notices":
        """A collector for this process; what it collects is not logged here as well."""
        notices = cls()
        root = logging.getLogger("gym_ray")
        root.addHandler(notices)
        return notices

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message, unless it was said just now."""
        now = time.monotonic()
        text = record.getMessage()
        if now - self._said_at.get(text, -QUIET_S) >= QUIET_S:
            self._said_at = {said: at for said, at in self._said_at.items() if now - at < QUIET_S}
            self._said_at[text] = now
            self._waiting.append(text)

    def drain(self) -> tuple[str, ...]:
        """What was collected since the last call."""
        drained = tuple(self._waiting)
        self._waiting.clear()
        return drained

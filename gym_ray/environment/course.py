"""What one call has come to over all of its tries, and what it says in the end."""

from dataclasses import replace
from typing import NamedTuple

from gym_ray import keys
from gym_ray.environment.retry import Cause, Setback
from gym_ray.environment.witness import Witness
from gym_ray.outcomes.reply import Answered, Delivery, Reply, Unanswered
from gym_ray.outcomes.text import public


class Received(NamedTuple):
    """An answer that came whole, and the headers that say when to come back."""

    status: int
    body: bytes
    retry_after: str | None
    date: str | None


class Course:
    """What one call has come to so far; whoever makes a try writes down here how far it got."""

    __slots__ = ("sends", "status", "tries", "witness")

    def __init__(self) -> None:
        self.tries = 0
        self.sends = 0
        self.witness: Witness | None = None
        """Of the running try; None until it has a connection, so until then nothing can have been sent."""
        self.status: int | None = None
        """Of the running try, once the head of its answer has come."""

    def begin_try(self) -> None:
        """Nothing is known yet of the try that starts now."""
        self.tries += 1
        self.witness = self.status = None

    def time_out(self, url: str, message: str) -> Unanswered:
        """The reply of a call whose time is over; what was sent and not answered is possibly delivered."""
        sends = self.sends + (self.witness is not None)
        delivery = Delivery.POSSIBLY_DELIVERED if sends else Delivery.NOT_SENT
        kind = keys.TRANSPORT_TIMEOUT
        return Unanswered(delivery, kind, "TimeoutError", message, url, sends=sends, tries=self.tries)

    def conclude(self, setback: Setback, delivery: Delivery, reason: str, elapsed_s: float) -> Reply:
        """What is returned after the last try, with the facts of all of them."""
        reply = setback.reply
        if isinstance(reply, Answered):
            return reply
        if setback.cause is Cause.FINAL:
            why = ""
        elif self.tries == 1:
            why = f" (not tried again: {reason})"
        else:
            why = f" (gave up after {self.tries} tries in {elapsed_s:.1f} s: {reason})"
        message = public(reply.message + why)
        return replace(reply, delivery=delivery, message=message, sends=self.sends, tries=self.tries)

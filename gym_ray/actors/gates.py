"""The gates of all environment servers of a driver: what may be leased to each, and what people are told about it."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from gym_ray.deployment.servers import EnvironmentServer
from gym_ray.dispatch.exchange import ServerSignal
from gym_ray.dispatch.fairness import fair_leases
from gym_ray.dispatch.server_gate import OPENS_AFTER, ServerGate

logger = logging.getLogger("gym_ray.driver")


class ServerGates:
    """One gate for each server, by its position.

    `cap` is what all servers share; `caps` are the most rollouts that a user allows single ones, by name.
    """

    def __init__(self, servers: Sequence[EnvironmentServer], cap: int, caps: Mapping[str, int]) -> None:
        self._servers = servers
        self._cap = cap
        self._gates = [ServerGate(caps.get(server.name, inf)) for server in servers]
        self.has_held_back = False
        """True if something was not leased for the sake of its server; set back by whoever looks again."""

    def shares(
        self, slots: int, reserve: int, owed: Mapping[int, int], now: float, *, heeds_breaker: bool
    ) -> dict[int, int]:
        """How many leases each server gets of what is owed to it: `slots` that can start at once, `reserve` to wait."""
        room: dict[int, int] = {}
        for server, count in owed.items():
            room[server] = min(count, self._gates[server].room(now, heeds_breaker=heeds_breaker))
            self.has_held_back |= room[server] < min(count, slots + reserve)
        held = {server: gate.held for server, gate in enumerate(self._gates) if gate.held or server in room}
        pace = {server: self._gates[server].pace(now) for server in held} if len(held) > 1 else {}
        return fair_leases(self._cap, slots, reserve, held, room, pace)

    def take(self, server: int, now: float) -> None:
        """Note a lease."""
        self._gates[server].take(1, now)

    def give(self, server: int, now: float) -> None:
        """Note that a lease has ended or come back."""
        self._gates[server].give(now)

    def observe(self, signals: Iterable[ServerSignal], now: float) -> None:
        """Take what a shard has seen of the servers."""
        for signal in signals:
            gate, name = self._gates[signal.server], self._servers[signal.server].name
            was_open = gate.is_open
            if signal.answers:
                gate.answered(signal.answers)
            if signal.refusals:
                gate.refused(now, signal.retry_after_s)
            if signal.setbacks:
                gate.set_back(signal.setbacks, now)
            if gate.is_open and not was_open:
                logger.warning(
                    "environment server %s does not answer (%d setbacks in a row, the last: %s): its rollouts are held "
                    "back, one at a time is tried",
                    name,
                    OPENS_AFTER,
                    signal.last,
                )
            elif was_open and not gate.is_open:
                logger.warning("environment server %s answers again", name)

    def given_up(self, patience_s: float, now: float) -> list[int]:
        """Servers that have been gone for `patience_s`."""
        return [server for server, gate in enumerate(self._gates) if gate.is_given_up(now, patience_s)]

"""How much work a shard is given: its part of the cap, and a small reserve that covers one round trip.

Pure. The reserve is what keeps slots busy while completions travel up and leases down. It falls to zero near the end,
so that the last rollouts go to whoever is free instead of waiting behind slow ones.
"""

ROUND_TRIP_S = 0.1
"""Completions linger 30 ms, then are written and answered; three times that is the reserve for a busy driver."""
MAX_RESERVE = 2048
"""Waiting leases cost memory in the shard and are what a death loses; no measured rate needs more."""


def split_cap(cap: int, shards: int) -> list[int]:
    """The cap of each shard; they add up to `cap` and differ by at most one."""
    share, rest = divmod(cap, shards)
    return [share + (index < rest) for index in range(shards)]


def credit(
    *, cap: int, held: int, held_by_all: int, rate_per_s: float, owed: int, shards: int, has_reserve: bool = True
) -> int:
    """Leases to hand a shard now.

    Args:
        cap: attempts that the shard may have in flight.
        held: leases that it holds already, in flight or waiting.
        held_by_all: the same of all shards together.
        rate_per_s: rollouts that it ended per second lately.
        owed: rollouts of all runs that nobody holds.
        shards: shards that share them.
        has_reserve: False where a lease must start at once, because a budget decides at that moment whether it may.
    """
    if cap == 0:
        return 0
    reserve = min(max(cap // 4, round(rate_per_s * ROUND_TRIP_S), 1), MAX_RESERVE, owed // (2 * shards))
    reserve *= has_reserve
    # An equal part of all that is there, so that who asks first does not take the work of the others. Of what is owed
    # alone it would be a part of a part for each that asks later, and the rest would wait for the next completion.
    fair = max(-(-(owed + held_by_all) // shards) - held, 1)
    return max(0, min(cap + reserve - held, fair, owed))

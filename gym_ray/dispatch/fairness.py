"""Which environment server the next leases go to, so that a slow or hanging one cannot take the slots of the others.

Pure. Max-min fairness: whoever holds the fewest leases is served first, so that each server that can use it gets an
equal part of the cap, and what one does not need goes to the others. Leases beyond the cap, which wait in shards for a
slot, go to servers in the measure in which their rollouts end: one that hangs would turn such a reserve into slots.
"""

from collections.abc import Mapping
from math import ceil


def fair_leases(
    cap: int, slots: int, reserve: int, held: Mapping[int, int], room: Mapping[int, int], pace: Mapping[int, float]
) -> dict[int, int]:
    """How many new leases each server gets in a shard.

    Args:
        cap: rollouts that may be in flight, in all shards together.
        slots: leases that can start in this shard at once.
        reserve: leases that may wait there besides.
        held: leases that a server holds already, wherever they are.
        room: leases that it could take: what is owed to it, within its own limits. A server that is not in here gets
            none.
        pace: how often rollouts of it end, in any unit.
    """
    contenders = {server for server, count in held.items() if count} | room.keys()
    if len(contenders) == 1:
        return {server: count for server in room if (count := min(slots + reserve, room[server])) > 0}
    parts = fair_shares(cap, {}, {server: held.get(server, 0) + room.get(server, 0) for server in contenders})
    free = {server: min(count, parts.get(server, 0) - held.get(server, 0)) for server, count in room.items()}
    shares = fair_shares(slots, held, free)
    rest = sum(pace.values())
    for server in sorted(room, key=lambda each: pace.get(each, 0.0), reverse=True):
        own = pace.get(server, 0.0)
        extra = min(ceil(reserve * own / rest) if own else 0, room[server] - shares.get(server, 0))
        if extra > 0:
            shares[server] = shares.get(server, 0) + extra
            reserve -= extra
        rest -= own
    return shares


def fair_shares(limit: int, held: Mapping[int, int], room: Mapping[int, int]) -> dict[int, int]:
    """How many of `limit` new leases each server gets.

    Args:
        held: leases that a server holds already, wherever they are.
        room: leases that it could take: what is owed to it, within its own limits. A server that is not in here gets
            none.
    """
    if limit <= 0:
        return {}
    shares = dict.fromkeys((server for server, free in room.items() if free > 0), 0)
    if len(shares) == 1:
        return {server: min(limit, room[server]) for server in shares}
    open_servers = set(shares)
    while limit > 0 and open_servers:
        level = {server: held.get(server, 0) + shares[server] for server in open_servers}
        lowest = min(level.values())
        lowest_servers = sorted(server for server in open_servers if level[server] == lowest)
        rise = min(room[server] - shares[server] for server in lowest_servers)
        if above := [each for each in level.values() if each > lowest]:
            rise = min(rise, min(above) - lowest)
        rise = min(rise, limit // len(lowest_servers))
        for server in lowest_servers if rise else lowest_servers[:limit]:
            shares[server] += rise or 1
            limit -= rise or 1
        open_servers = {server for server in open_servers if shares[server] < room[server]}
    return {server: share for server, share in shares.items() if share}

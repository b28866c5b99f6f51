"""Which environment server the next leases go to, so that a slow or hanging one cannot take the slots of the others.

Pure. Max-min fairness: whoever holds the fewest leases is served first, so that each server that can use it gets an
equal part of the cap, and what one does not need goes to the others.
"""

from collections.abc import Mapping


def fair_shares(limit: int, held: Mapping[int, int], room: Mapping[int, int]) -> dict[int, int]:
    """How many of `limit` new leases each server gets.

    Args:
        held: leases that a server holds already, wherever they are.
        room: leases that it could take: what is owed to it, within its own limits. A server that is not in here gets
            none.
    """
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

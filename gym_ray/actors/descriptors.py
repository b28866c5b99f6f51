"""Room for one file descriptor for each connection."""

import resource

from gym_ray.errors import ConfigError

SPARE_DESCRIPTORS = 256
"""For Ray's sockets, record files, libraries and the second connection that a replay may open."""


def make_room(connections: int, wanted: int = 0) -> None:
    """Raise this process's soft limit of open files so that `connections` sockets fit, and `wanted` if they may.

    Raises:
        ConfigError: the hard limit is lower; the message says which cap would fit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_DESCRIPTORS
    hoped_for = max(connections, wanted) + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= hoped_for:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"num_samples_in_parallel: {connections} connections in one process need {needed} open files, but the hard "
            f"limit here is {hard}: lower --concurrency to {max(hard - SPARE_DESCRIPTORS, 1)} for each shard, "
            "use more --shards, or raise `ulimit -Hn`"
        )
    room = hoped_for if hard == resource.RLIM_INFINITY else min(hoped_for, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(room, soft), hard))

"""Binds an application to a port and takes it down again."""

import logging
import resource
from dataclasses import dataclass

from aiohttp import web

from gym_ray.errors import ConfigError
from gym_ray.example.merged_config import Address

_log = logging.getLogger("gym_ray.example")

_BACKLOG = 4096
"""A run opens all of its connections in one burst; the system's default of 128 would make clients wait and resend."""
_KEEPALIVE_S = 30.0
"""Longer than the 15 s of clients, so that they close first and never send into a closed connection (protocol §4.1)."""
_GRACE_S = 0.25
"""aiohttp waits this long twice, which makes the half second of protocol §2.8."""
_OPEN_FILES = 65_536
"""Twice the connections that one address has ports for; a limit of billions would slow programs that walk up to it."""
_LOOPBACK_OF_WILDCARD = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Listener:
    """An application that answers at an address until `aclose`."""

    runner: web.AppRunner
    address: Address

    async def aclose(self) -> None:
        """Stops listening, gives handlers half a second, then cancels them."""
        await self.runner.cleanup()


async def listen(application: web.Application, host: str, port: int) -> Listener:
    """Serves on a port; 0 takes a free one. The handler of a request ends when its client disconnects.

    Raises:
        ConfigError: the address cannot be bound.
    """
    runner = web.AppRunner(
        application,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=_KEEPALIVE_S,
        shutdown_timeout=_GRACE_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"cannot listen on {Address(host, port)} ({error.strerror}): choose another host or port"
        ) from error
    bound = runner.addresses[0][1]
    return Listener(runner, Address(_LOOPBACK_OF_WILDCARD.get(host, host), bound))


def raise_open_files_limit() -> None:
    """Lets this process hold as many connections as a run may open; each takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    _log.debug("open files: limit raised from %d to %d", soft, wanted)

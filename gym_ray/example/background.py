"""The example in a thread with its own event loop, for callers that block: the command line and tests."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread

from gym_ray import event_loop
from gym_ray.example.deployment import ExampleDeployment, example_deployment
from gym_ray.example.execution_ledger import NO_LEDGER, LedgerOptions
from gym_ray.example.profile import PLAIN, UNLIMITED, Limits, Profile

_START_WITHIN_S = 30.0
"""A start takes milliseconds; a machine that swaps may take seconds."""
_END_WITHIN_S = 15.0
"""Handlers get half a second; an aggregation that computes in a thread has to finish first."""


@contextmanager
def example_in_thread(
    profile: Profile = PLAIN,
    *,
    limits: Limits = UNLIMITED,
    ledger: LedgerOptions = NO_LEDGER,
    host: str = "127.0.0.1",
    head_port: int = 0,
) -> Iterator[ExampleDeployment]:
    """A started deployment for the time of the block. Only its facts and `stats()` are for the caller's thread.

    Raises:
        gym_ray.errors.ConfigError: the host or the head's port cannot be bound.
    """
    started: Future[tuple[ExampleDeployment, Callable[[], None]]] = Future()

    async def serve() -> None:
        asked_to_stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(asked_to_stop.set)

        async with example_deployment(
            profile, limits=limits, ledger=ledger, host=host, head_port=head_port
        ) as deployment:
            started.set_result((deployment, stop))
            await asked_to_stop.wait()

    def work() -> None:
        try:
            event_loop.run(serve())
        except BaseException as error:  # it is the caller's, whose thread waits for it
            if started.done():
                raise
            started.set_exception(error)

    thread = Thread(target=work, name="gym-ray-example", daemon=True)
    thread.start()
    deployment, stop = started.result(_START_WITHIN_S)
    try:
        yield deployment
    finally:
        stop()
        thread.join(_END_WITHIN_S)
        if thread.is_alive():
            raise RuntimeError(f"the example deployment did not end within {_END_WITHIN_S:g} s")

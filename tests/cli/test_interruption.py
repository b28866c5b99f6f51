"""The first signal drains, the second cancels and waits for the cleaning up; it has no say before or after."""

import asyncio
import os
import signal

import pytest

from gym_ray.cli.interruption import ON_A_CLOCK, STOPPING, Interruption, exit_code


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


class Told:
    """What an interruption has asked for."""

    def __init__(self, *, can_drain: bool = True, grace_s: float = 60.0) -> None:
        self.steps: list[str] = []
        self._can_drain = can_drain
        self.drained = asyncio.Event()
        self.interruption = Interruption(self._drain, lambda: self.steps.append("cancelled"), grace_s=grace_s)

    def _drain(self, number: signal.Signals) -> bool:
        self.steps.append(f"drain {number.name}")
        self.drained.set()
        return self._can_drain


@pytest.mark.parametrize("number", STOPPING)
async def test_the_first_signal_lets_the_work_end(number: signal.Signals) -> None:
    told = Told()

    async def work() -> str:
        send(number)
        await told.drained.wait()
        return "ended by itself"

    assert await told.interruption.run(work()) == "ended by itself"
    assert told.steps == [f"drain {number.name}"]
    assert told.interruption.received is number


@pytest.mark.parametrize("number", STOPPING)
async def test_the_second_cancels_and_waits_for_cleaning_up(number: signal.Signals) -> None:
    told = Told()

    async def work() -> str:
        send(signal.SIGINT)
        await told.drained.wait()
        send(number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            told.steps.append("cleaned up")
        return "never"

    assert await told.interruption.run(work()) is signal.SIGINT
    assert told.steps == ["drain SIGINT", "cancelled", "cleaned up"]


@pytest.mark.parametrize("number", sorted(ON_A_CLOCK))
async def test_who_does_not_wait_is_obeyed_after_the_grace(number: signal.Signals) -> None:
    told = Told(grace_s=0.0)

    async def work() -> None:
        send(number)
        await asyncio.Event().wait()

    assert await told.interruption.run(work()) is number
    assert told.steps == [f"drain {number.name}", "cancelled"]


async def test_where_nothing_can_be_drained_the_first_cancels() -> None:
    told = Told(can_drain=False)

    async def work() -> None:
        send(signal.SIGINT)
        await asyncio.Event().wait()

    assert await told.interruption.run(work()) is signal.SIGINT


async def test_what_the_work_returns_comes_back() -> None:
    async def work() -> str:
        return "done"

    assert await Told().interruption.run(work()) == "done"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_an_error_is_raised_unless_a_cancellation_caused_it() -> None:
    async def failing() -> None:
        raise OSError("broken")

    async def failing_while_draining() -> None:
        send(signal.SIGTERM)
        await told.drained.wait()
        raise OSError("broken")

    async def failing_when_cancelled() -> None:
        send(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the actors have gone") from None

    with pytest.raises(OSError, match="broken"):
        await Told().interruption.run(failing())
    told = Told()
    with pytest.raises(OSError, match="broken"):
        await told.interruption.run(failing_while_draining())
    assert await Told(can_drain=False).interruption.run(failing_when_cancelled()) is signal.SIGTERM


async def test_a_library_that_takes_the_signal_is_overruled() -> None:
    told = Told(can_drain=False)

    async def work() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        told.interruption.arm()
        send(signal.SIGTERM)
        await asyncio.Event().wait()

    assert await told.interruption.run(work()) is signal.SIGTERM


async def test_a_signal_after_the_cancellation_is_not_ours() -> None:
    told = Told(can_drain=False)

    async def work() -> None:
        send(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            told.interruption.arm()  # too late: we are stopping
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    assert await told.interruption.run(work()) is signal.SIGINT


def test_exit_codes_are_those_of_a_shell() -> None:
    assert [exit_code(number) for number in STOPPING[:2]] == [130, 143]

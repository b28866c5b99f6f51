"""The first signal cancels and waits for the cleaning up; it has no say before or after."""

import asyncio
import os
import signal

import pytest

from gym_ray.cli.interruption import STOPPING, Interruption, exit_code


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOPPING)
async def test_a_signal_cancels_waits_for_cleaning_up_and_is_returned(number: signal.Signals) -> None:
    steps: list[str] = []

    async def work() -> str:
        send(number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")
        return "never"

    assert await Interruption(lambda: steps.append("told")).run(work()) is number
    assert steps == ["told", "cleaned up"]


async def test_what_the_work_returns_comes_back() -> None:
    async def work() -> str:
        return "done"

    assert await Interruption(lambda: None).run(work()) == "done"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_an_error_is_raised_unless_a_signal_caused_it() -> None:
    async def failing() -> None:
        raise OSError("broken")

    async def failing_when_cancelled() -> None:
        send(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the actors have gone") from None

    with pytest.raises(OSError, match="broken"):
        await Interruption(lambda: None).run(failing())
    assert await Interruption(lambda: None).run(failing_when_cancelled()) is signal.SIGTERM


async def test_a_library_that_takes_the_signal_is_overruled() -> None:
    interruption = Interruption(lambda: None)

    async def work() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        interruption.arm()
        send(signal.SIGTERM)
        await asyncio.Event().wait()

    assert await interruption.run(work()) is signal.SIGTERM


async def test_a_second_signal_is_not_ours() -> None:
    async def work() -> None:
        send(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            interruption.arm()  # too late: we are stopping
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    interruption = Interruption(lambda: None)
    assert await interruption.run(work()) is signal.SIGINT


def test_exit_codes_are_those_of_a_shell() -> None:
    assert [exit_code(number) for number in STOPPING] == [130, 143]

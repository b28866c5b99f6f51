"""The gate: never more inside than allowed, first come first served, and nobody waits for ever."""

import asyncio

import pytest

from gym_ray.example.admission import AdmissionGate, NoPlaceError
from tests.virtual import run_virtual


async def _stay(gate: AdmissionGate, seconds: float, left: list[str], name: str) -> None:
    async with gate.place():
        await asyncio.sleep(seconds)
    left.append(name)


def test_the_others_wait_in_order_of_arrival() -> None:
    async def main() -> None:
        gate, left = AdmissionGate(1, 60.0), list[str]()
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(_stay(gate, 10, left, name))
            await asyncio.sleep(1)
            assert (gate.running, gate.waiting) == (1, 2)
        assert left == ["a", "b", "c"]
        assert (gate.running, gate.waiting, gate.peak_running) == (0, 0, 1)
        assert asyncio.get_running_loop().time() == pytest.approx(30)

    run_virtual(main())


def test_patience_ends() -> None:
    async def main() -> None:
        gate, left = AdmissionGate(2, 5.0), list[str]()
        async with asyncio.TaskGroup() as group:
            group.create_task(_stay(gate, 100, left, "a"))
            group.create_task(_stay(gate, 100, left, "b"))
            await asyncio.sleep(1)
            with pytest.raises(NoPlaceError, match="within 5 s"):
                await _stay(gate, 1, left, "c")
            assert asyncio.get_running_loop().time() == pytest.approx(6)
            assert (gate.running, gate.waiting) == (2, 0)

    run_virtual(main())


def test_who_goes_away_gives_the_place_back() -> None:
    async def main() -> None:
        gate, left = AdmissionGate(1, 60.0), list[str]()
        inside = asyncio.create_task(_stay(gate, 1000, left, "inside"))
        queued = asyncio.create_task(_stay(gate, 1000, left, "queued"))
        await asyncio.sleep(1)
        for gone in (queued, inside):
            gone.cancel()
        await asyncio.gather(inside, queued, return_exceptions=True)
        assert (gate.running, gate.waiting) == (0, 0)
        await _stay(gate, 1, left, "next")
        assert left == ["next"]

    run_virtual(main())


def test_without_a_limit_nobody_waits() -> None:
    async def main() -> None:
        gate, left = AdmissionGate(None, None), list[str]()
        await asyncio.gather(*(_stay(gate, 1, left, "x") for _ in range(1000)))
        assert gate.peak_running == 1000

    run_virtual(main())

"""A shard's loop on a virtual clock: caps, order, batches, repeats, cancellation."""

import asyncio
from collections.abc import Callable

from gym_ray.dispatch.admission import Lease
from gym_ray.dispatch.exchange import Blob, CompletionHeader, LeaseHeader, StepRequest, slices
from gym_ray.dispatch.loop import LINGER_S, MAX_BYTES, MAX_ITEMS, WAIT_S, ShardLoop
from tests.virtual import run_virtual


class Server:
    """Executes leases in `seconds`, and remembers what it saw."""

    def __init__(self, seconds: Callable[[int], float] = lambda _: 1.0, record: bytes = b"{}\n") -> None:
        self.seconds, self.record = seconds, record
        self.started: list[int] = []
        self.in_flight = self.peak = 0
        self.cancelled: list[int] = []

    async def execute(self, lease: Lease) -> tuple[CompletionHeader, bytes]:
        header = lease.header
        self.started.append(header.number)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.seconds(header.number))
        except asyncio.CancelledError:
            self.cancelled.append(header.number)
            raise
        finally:
            self.in_flight -= 1
        return (
            CompletionHeader(
                "r", header.number, header.attempt, 0, len(self.record), 0, 1.0, 1.0, False, None, False, None, 1
            ),
            self.record,
        )


def request(
    numbers: range | list[int] = range(0), *, ack: int = 0, cap: int = 4, seq: int = 1, **more: object
) -> StepRequest:
    headers = tuple(LeaseHeader("r", number, 0, 0, 2) for number in numbers)
    return StepRequest(ack, headers, Blob([b"{}"] * len(headers)), cap, lease_seq=seq, **more)  # type: ignore[arg-type]


def test_at_most_the_cap_is_in_flight_and_leases_start_in_order() -> None:
    async def main() -> None:
        server = Server()
        loop = ShardLoop(server.execute)
        seen, answer = [], await loop.step(request(range(10), cap=3))
        while len(seen) < 10:
            seen += [header.number for header in answer.completions]
            answer = await loop.step(request(ack=answer.seq, cap=3))
        assert server.peak == 3
        assert server.started == list(range(10))
        assert sorted(seen) == list(range(10))

    run_virtual(main())


def test_an_answer_is_repeated_until_it_is_acknowledged_and_its_leases_are_taken_once() -> None:
    async def main() -> None:
        server = Server(lambda _: 0.5)
        loop = ShardLoop(server.execute)
        first = await loop.step(request(range(2)))
        again = await loop.step(request(range(2)))
        assert first is again
        assert sorted(header.number for header in first.completions) == [0, 1]
        assert server.started == [0, 1]
        after = await loop.step(request(ack=first.seq))
        assert (after.seq, after.completions) == (first.seq + 1, ())

    run_virtual(main())


def test_completions_wait_for_company_but_not_long() -> None:
    async def main() -> None:
        server = Server(lambda number: 1.0 + number * LINGER_S / 4)
        loop = ShardLoop(server.execute)
        clock = asyncio.get_running_loop()
        answer = await loop.step(request(range(3), cap=3, more=False))
        while not answer.completions:
            answer = await loop.step(request(ack=answer.seq, cap=3, more=False))
        assert len(answer.completions) == 3
        assert clock.time() <= 1.0 + LINGER_S + 0.001

    run_virtual(main())


def test_a_starving_shard_answers_sooner() -> None:
    async def main() -> None:
        loop = ShardLoop(Server(lambda _: 0.5).execute)
        clock = asyncio.get_running_loop()
        answer = await loop.step(request(range(1), cap=3))
        assert [header.number for header in answer.completions] == [0]
        assert clock.time() < 0.5 + LINGER_S

    run_virtual(main())


def test_an_answer_without_items_is_the_sign_of_life() -> None:
    async def main() -> None:
        loop = ShardLoop(Server(lambda _: 60.0).execute)
        clock = asyncio.get_running_loop()
        answer = await loop.step(request(range(1)))
        assert (answer.completions, answer.in_flight) == ((), 1)
        assert clock.time() == WAIT_S
        await loop.aclose()

    run_virtual(main())


def test_a_batch_is_cut_by_items_and_by_bytes() -> None:
    async def main() -> None:
        many = ShardLoop(Server(lambda _: 0.1).execute)
        answer = await many.step(request(range(MAX_ITEMS + 5), cap=1000))
        assert len(answer.completions) == MAX_ITEMS
        rest = await many.step(request(ack=answer.seq, cap=1000))
        assert len(rest.completions) == 5

        big = ShardLoop(Server(lambda _: 0.1, record=b"x" * (MAX_BYTES // 2 + 1)).execute)
        answer = await big.step(request(range(3), cap=10))
        assert len(answer.completions) == 1
        assert len(next(iter(slices((h.size for h in answer.completions), answer.blob)))) == MAX_BYTES // 2 + 1

    run_virtual(main())


def test_a_cancelled_run_hands_back_what_never_started_and_what_was_cut_off() -> None:
    async def main() -> None:
        server = Server(lambda _: 60.0)
        loop = ShardLoop(server.execute)
        answer = await loop.step(request(range(5), cap=2))
        released: list[tuple[str, int, int, bool]] = []
        answer = await loop.step(request(ack=answer.seq, cap=2, cancelled_runs=("r",)))
        while len(released) < 5:
            released += answer.released
            answer = await loop.step(request(ack=answer.seq, cap=2))
        assert sorted(released) == [("r", 0, 0, True), ("r", 1, 0, True), *[("r", n, 0, False) for n in (2, 3, 4)]]
        assert sorted(server.cancelled) == [0, 1]

    run_virtual(main())


def test_a_nudge_answers_the_open_step() -> None:
    async def main() -> None:
        loop = ShardLoop(Server(lambda _: 60.0).execute)
        clock = asyncio.get_running_loop()
        clock.call_later(0.2, loop.nudge)
        await loop.step(request(range(1)))
        assert clock.time() == 0.2
        await loop.aclose()

    run_virtual(main())


def test_closing_ends_every_attempt_and_starts_no_other() -> None:
    async def main() -> None:
        server = Server(lambda _: 60.0)
        loop = ShardLoop(server.execute)
        await loop.step(request(range(6), cap=2))
        await loop.aclose()
        assert server.in_flight == 0
        assert server.started == [0, 1]

    run_virtual(main())

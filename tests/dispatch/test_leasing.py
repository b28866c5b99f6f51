"""The cap is split without a remainder, and the reserve goes to zero at the end."""

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.dispatch.leasing import MAX_RESERVE, credit, split_cap


@given(cap=st.integers(1, 10_000), shards=st.integers(1, 64))
def test_the_parts_of_the_cap_add_up(cap: int, shards: int) -> None:
    parts = split_cap(cap, shards)
    assert sum(parts) == cap
    assert max(parts) - min(parts) <= 1


def test_an_idle_shard_gets_its_cap_and_a_reserve() -> None:
    assert credit(cap=128, held=0, held_by_all=0, rate_per_s=0, owed=100_000, shards=2) == 128 + 32


def test_the_reserve_grows_with_the_rate() -> None:
    assert credit(cap=128, held=128, held_by_all=256, rate_per_s=5_000, owed=100_000, shards=2) == 500
    assert credit(cap=128, held=128, held_by_all=256, rate_per_s=1e9, owed=10_000_000, shards=2) == MAX_RESERVE


def test_near_the_end_nothing_is_held_in_reserve() -> None:
    assert credit(cap=100, held=100, held_by_all=200, rate_per_s=1_000, owed=3, shards=2) == 0


def test_the_first_to_ask_leaves_work_for_the_others() -> None:
    assert credit(cap=100, held=0, held_by_all=0, rate_per_s=0, owed=10, shards=5) == 2


def test_a_shard_without_a_part_of_the_cap_gets_nothing() -> None:
    assert credit(cap=0, held=0, held_by_all=0, rate_per_s=0, owed=10, shards=5) == 0


@given(
    cap=st.integers(1, 5_000),
    held=st.integers(0, 10_000),
    others=st.integers(0, 10_000),
    rate=st.floats(0, 1e6),
    owed=st.integers(0, 10**6),
    shards=st.integers(1, 64),
)
def test_credit_is_never_more_than_is_owed(
    cap: int, held: int, others: int, rate: float, owed: int, shards: int
) -> None:
    given = credit(cap=cap, held=held, held_by_all=held + others, rate_per_s=rate, owed=owed, shards=shards)
    assert 0 <= given <= owed


@given(cap=st.integers(1, 5_000), others=st.integers(0, 9999), owed=st.integers(1, 10**6), shards=st.integers(1, 64))
def test_an_empty_shard_is_never_left_idle_while_work_is_owed(cap: int, others: int, owed: int, shards: int) -> None:
    assert credit(cap=cap, held=0, held_by_all=others, rate_per_s=0, owed=owed, shards=shards) >= 1


@given(owed=st.integers(1, 10_000), shards=st.integers(1, 16))
def test_idle_shards_that_ask_in_turn_take_all_the_work_that_their_caps_allow(owed: int, shards: int) -> None:
    """None of it waits for a completion: that is what a training step would feel."""
    caps, held, left = split_cap(10_000, shards), [0] * shards, owed
    for shard in range(shards):
        given_now = credit(
            cap=caps[shard], held=0, held_by_all=sum(held), rate_per_s=0, owed=left, shards=shards, has_reserve=False
        )
        held[shard] += given_now
        left -= given_now
    assert left == 0
    assert max(held) - min(held) <= shards

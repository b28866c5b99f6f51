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
    assert credit(cap=128, held=0, rate_per_s=0, owed=100_000, shards=2) == 128 + 32


def test_the_reserve_grows_with_the_rate() -> None:
    assert credit(cap=128, held=128, rate_per_s=5_000, owed=100_000, shards=2) == 500
    assert credit(cap=128, held=128, rate_per_s=1e9, owed=10_000_000, shards=2) == MAX_RESERVE


def test_near_the_end_nothing_is_held_in_reserve() -> None:
    assert credit(cap=100, held=100, rate_per_s=1_000, owed=3, shards=2) == 0


def test_the_first_to_ask_leaves_work_for_the_others() -> None:
    assert credit(cap=100, held=0, rate_per_s=0, owed=10, shards=5) == 2


def test_a_shard_without_a_part_of_the_cap_gets_nothing() -> None:
    assert credit(cap=0, held=0, rate_per_s=0, owed=10, shards=5) == 0


@given(
    cap=st.integers(1, 5_000),
    held=st.integers(0, 10_000),
    rate=st.floats(0, 1e6),
    owed=st.integers(0, 10**6),
    shards=st.integers(1, 64),
)
def test_credit_is_never_more_than_is_owed(cap: int, held: int, rate: float, owed: int, shards: int) -> None:
    assert 0 <= credit(cap=cap, held=held, rate_per_s=rate, owed=owed, shards=shards) <= owed


@given(cap=st.integers(1, 5_000), owed=st.integers(1, 10**6), shards=st.integers(1, 64))
def test_an_empty_shard_is_never_left_idle_while_work_is_owed(cap: int, owed: int, shards: int) -> None:
    assert credit(cap=cap, held=0, rate_per_s=0, owed=owed, shards=shards) >= 1

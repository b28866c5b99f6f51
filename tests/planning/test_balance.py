from hypothesis import given
from hypothesis import strategies as st

from gym_ray.planning.balance import ShardBalance, balanced_owners

SIZES = st.lists(st.integers(1, 20), max_size=60)


def loads_of(owners: list[int], sizes: list[int], shards: int) -> list[int]:
    loads = [0] * shards
    for owner, size in zip(owners, sizes, strict=True):
        loads[owner] += size
    return loads


@given(sizes=SIZES, shards=st.integers(1, 7))
def test_loads_differ_by_at_most_one_task(sizes: list[int], shards: int) -> None:
    loads = loads_of(list(balanced_owners(sizes, shards)), sizes, shards)
    assert max(loads) - min(loads) <= max(sizes, default=0)


@given(sizes=SIZES, shards=st.integers(1, 7))
def test_each_task_goes_to_the_shard_with_the_fewest_rollouts_so_far(sizes: list[int], shards: int) -> None:
    loads, expected = [0] * shards, []
    for size in sizes:
        expected.append(loads.index(min(loads)))
        loads[expected[-1]] += size
    assert list(balanced_owners(sizes, shards)) == expected


@given(sizes=SIZES, shards=st.integers(1, 7))
def test_tasks_that_stream_by_get_the_same_owners_as_tasks_that_are_known(sizes: list[int], shards: int) -> None:
    balance = ShardBalance(shards)
    for slot, size in enumerate(sizes):
        for _ in range(size):
            balance.add(slot, 1)
    assert not balance.has_late_rows
    assert balance.owners == balanced_owners(sizes, shards)


def test_a_task_keeps_its_owner_when_it_grows_late() -> None:
    balance = ShardBalance(2)
    assert [balance.add(slot, 1) for slot in (0, 1, 0, 2, 0)] == [0, 1, 0, 1, 0]
    assert balance.has_late_rows

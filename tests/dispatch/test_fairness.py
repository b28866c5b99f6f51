"""Leases go first to the servers that hold the fewest."""

from hypothesis import given
from hypothesis import strategies as st

from gym_ray.dispatch.fairness import fair_leases, fair_shares


def test_one_server_gets_what_it_can_take() -> None:
    assert fair_shares(8, {0: 100}, {0: 5}) == {0: 5}
    assert fair_shares(3, {}, {0: 5}) == {0: 3}


def test_servers_that_hold_the_same_get_the_same() -> None:
    assert fair_shares(9, {}, {0: 100, 1: 100, 2: 100}) == {0: 3, 1: 3, 2: 3}


def test_a_server_that_holds_much_waits_until_the_others_have_as_much() -> None:
    assert fair_shares(4, {0: 10}, {0: 100, 1: 100}) == {1: 4}
    assert fair_shares(12, {0: 10}, {0: 100, 1: 100}) == {0: 1, 1: 11}


def test_what_one_does_not_need_goes_to_the_others() -> None:
    assert fair_shares(10, {}, {0: 2, 1: 100}) == {0: 2, 1: 8}


def test_a_server_without_room_gets_none() -> None:
    assert fair_shares(10, {}, {0: 0, 1: 3}) == {1: 3}
    assert fair_shares(10, {}, {}) == {}
    assert fair_shares(0, {}, {0: 3, 1: 3}) == {}


@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6),
)
def test_no_lease_could_go_to_a_server_that_holds_less(limit: int, servers: list[tuple[int, int]]) -> None:
    held = {server: count for server, (count, _) in enumerate(servers)}
    room = {server: count for server, (_, count) in enumerate(servers)}
    shares = fair_shares(limit, held, room)
    assert sum(shares.values()) == min(limit, sum(room.values()))
    assert all(0 < shares[server] <= room[server] for server in shares)
    after = {server: held[server] + shares.get(server, 0) for server in held}
    for taker in shares:
        for other in held:
            if shares.get(other, 0) < room[other]:
                assert after[taker] <= after[other] + 1


def test_a_reserve_goes_to_servers_whose_rollouts_end() -> None:
    held, owed = {0: 4, 1: 4}, {0: 100, 1: 100}
    assert fair_leases(8, 0, 4, held, owed, {0: 0.0, 1: 5.0}) == {1: 4}
    assert fair_leases(8, 0, 4, held, owed, {0: 5.0, 1: 5.0}) == {0: 2, 1: 2}
    assert fair_leases(8, 0, 1, held, owed, {0: 5.0, 1: 5.0}) == {0: 1}
    assert fair_leases(8, 0, 4, held, owed, {}) == {}


def test_slots_of_one_shard_are_not_spent_on_what_waits_in_another() -> None:
    first = fair_leases(4, 2, 1, {}, {0: 9, 1: 9}, {})
    assert sum(first.values()) == 2
    assert sum(fair_leases(4, 2, 1, first, {0: 9, 1: 9}, {}).values()) == 2


def test_a_server_takes_what_another_has_no_use_for() -> None:
    assert fair_leases(8, 8, 0, {}, {0: 100, 1: 2}, {}) == {0: 6, 1: 2}
    assert fair_leases(8, 4, 0, {1: 4}, {0: 100}, {0: 1.0}) == {0: 4}


def test_one_server_alone_gets_all_there_is() -> None:
    assert fair_leases(8, 2, 4, {0: 8}, {0: 100}, {}) == {0: 6}
    assert fair_leases(8, 2, 4, {0: 8}, {0: 0}, {}) == {}

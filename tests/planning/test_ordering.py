from hypothesis import given
from hypothesis import strategies as st

from gym_ray.planning.ordering import round_by_round, taking_turns
from tests.planning.planned import agents, indices, plan, row

SMALL = st.lists(st.integers(0, 4), max_size=40)


@given(rounds=SMALL)
def test_rounds_are_a_stable_sort(rounds: list[int]) -> None:
    assert list(round_by_round(rounds)) == sorted(range(len(rounds)), key=rounds.__getitem__)


@given(names=SMALL, data=st.data())
def test_turns_keep_each_names_order_and_lose_nothing(names: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(names))))
    turns = list(taking_turns(order, names))
    assert sorted(turns) == sorted(order)
    for name in set(names):
        assert [p for p in turns if names[p] == name] == [p for p in order if names[p] == name]


@given(names=SMALL)
def test_before_a_name_has_its_next_turn_every_other_with_something_left_has_had_one(names: list[int]) -> None:
    turns = [names[position] for position in taking_turns(range(len(names)), names)]
    firsts = list(dict.fromkeys(names))
    assert turns == [name for turn in range(len(names)) for name in firsts if names.count(name) > turn]


def test_repeats_are_interleaved_over_the_whole_batch() -> None:
    rows = [row("a", x=1), row("b", x=2), row("a", x=1)]
    assert indices(plan(rows, num_repeats=2, interleave_repeats=True)) == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (0, 2),
        (0, 3),
    ]


def test_agents_take_turns_in_the_order_of_their_first_row() -> None:
    rows = [row("b", x=1), row("b", x=2), row("b", x=3), row("a", x=4), row("solo", x=5), row("a", x=6)]
    planned_rows = plan(rows, interleave_by_agent=True)
    assert agents(planned_rows) == ["b", "a", "solo", "b", "a", "b"]
    assert [each["x"] for each in planned_rows] == [1, 4, 5, 2, 6, 3]


def test_agents_take_turns_within_the_rounds() -> None:
    rows = [row("a", x=1), row("a", x=2), row("b", x=3)]
    planned_rows = plan(rows, num_repeats=2, interleave_repeats=True, interleave_by_agent=True)
    assert list(zip(agents(planned_rows), indices(planned_rows), strict=True)) == [
        ("a", (0, 0)),
        ("b", (2, 0)),
        ("a", (1, 0)),
        ("b", (2, 1)),
        ("a", (0, 1)),
        ("a", (1, 1)),
    ]


def test_bound_rows_take_turns_by_their_server() -> None:
    rows = [
        {**row(), "x": x, "_ng_environment_server": name}
        for x, name in enumerate(["a_environment"] * 2 + ["b_environment"])
    ]
    assert [each["x"] for each in plan(rows, interleave_by_agent=True)] == [0, 2, 1]

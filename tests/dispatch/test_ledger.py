"""Every rollout is owed, leased or ended; the sum is always the plan."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gym_ray.dispatch.ledger import QUARANTINE_DEATHS, Ledger, State

ENDS = [State.RESULT, State.FAILURE, State.DRAINED, State.OMITTED]


def test_rollouts_are_leased_in_plan_order() -> None:
    ledger = Ledger([0] * 5)
    assert list(ledger.lease({0: 3})) == [(0, 0), (1, 0), (2, 0)]
    assert list(ledger.lease({0: 9})) == [(3, 0), (4, 0)]


def test_what_came_back_goes_first_under_the_next_attempt() -> None:
    ledger = Ledger([0] * 3)
    list(ledger.lease({0: 2}))
    ledger.give_back(1, started=True)
    assert list(ledger.lease({0: 2})) == [(1, 1), (2, 0)]


def test_an_attempt_that_never_started_keeps_its_number() -> None:
    ledger = Ledger([0] * 1)
    list(ledger.lease({0: 1}))
    ledger.give_back(0, started=False)
    assert list(ledger.lease({0: 1})) == [(0, 0)]


def test_a_second_outcome_is_refused() -> None:
    ledger = Ledger([0] * 1)
    list(ledger.lease({0: 1}))
    assert ledger.settle(0, State.RESULT)
    assert not ledger.settle(0, State.FAILURE)
    assert ledger.count(State.RESULT) == 1
    assert ledger.count(State.FAILURE) == 0


def test_a_rollout_that_ended_while_it_was_owed_again_is_not_leased() -> None:
    ledger = Ledger([0] * 1)
    list(ledger.lease({0: 1}))
    ledger.give_back(0, started=True)
    ledger.settle(0, State.RESULT)
    assert list(ledger.lease({0: 1})) == []
    assert ledger.is_over


def test_the_third_shard_death_quarantines() -> None:
    ledger = Ledger([0] * 1)
    assert [ledger.died(0) for _ in range(QUARANTINE_DEATHS)] == [False, False, True]


def test_attempts_of_earlier_runs_count() -> None:
    ledger = Ledger([0] * 1)
    ledger.use_attempts(0, 2)
    assert list(ledger.lease({0: 1})) == [(0, 2)]


def test_a_plan_can_grow() -> None:
    ledger = Ledger([0] * 1)
    list(ledger.lease({0: 5}))
    ledger.extend([0] * 2)
    assert list(ledger.lease({0: 5})) == [(1, 0), (2, 0)]
    assert ledger.planned == 3


class LedgerModel(RuleBasedStateMachine):
    """Against a dictionary that says where each rollout is."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger([0] * 12)
        self.where = dict.fromkeys(range(12), State.OWED)
        self.tries: dict[int, list[int]] = {number: [] for number in range(12)}

    @rule(limit=st.integers(0, 5))
    def lease(self, limit: int) -> None:
        for number, attempt in self.ledger.lease({0: limit}):
            assert self.where[number] is State.OWED
            assert attempt not in self.tries[number]
            self.tries[number].append(attempt)
            self.where[number] = State.LEASED

    @precondition(lambda self: State.LEASED in self.where.values())
    @rule(data=st.data(), started=st.booleans())
    def give_back(self, data: st.DataObject, started: bool) -> None:
        number = data.draw(st.sampled_from([n for n, where in self.where.items() if where is State.LEASED]))
        self.ledger.give_back(number, started=started)
        if not started:
            self.tries[number].pop()
        self.where[number] = State.OWED

    @rule(number=st.integers(0, 11), end=st.sampled_from(ENDS))
    def settle(self, number: int, end: State) -> None:
        ended = self.where[number] in ENDS
        assert self.ledger.settle(number, end) is not ended
        if not ended:
            self.where[number] = end

    @invariant()
    def the_counts_are_the_plan(self) -> None:
        for state in State:
            assert self.ledger.count(state) == list(self.where.values()).count(state)
        assert sum(self.ledger.count(state) for state in State) == 12

    @invariant()
    def it_is_over_when_nothing_is_left(self) -> None:
        assert self.ledger.is_over is not any(w in (State.OWED, State.LEASED) for w in self.where.values())


TestLedgerModel = LedgerModel.TestCase
TestLedgerModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_is_set_aside_stays_owed_until_it_is_released() -> None:
    ledger = Ledger([0] * 4)
    for number in (0, 2, 2):
        ledger.set_aside(number)
    assert (ledger.count(State.OWED), ledger.leasable) == (4, 2)
    assert list(ledger.lease({0: 9})) == [(1, 0), (3, 0)]
    ledger.settle(1, State.RESULT)
    ledger.settle(3, State.RESULT)
    assert ledger.is_over
    ledger.release([(2, 5), (0, 0), (1, 0)])
    assert not ledger.is_over
    assert list(ledger.lease({0: 9})) == [(2, 5), (0, 0)]
    ledger.set_aside(2)
    assert ledger.leasable == 0


def test_withholding_leaves_alone_what_is_set_aside() -> None:
    ledger = Ledger([0] * 3)
    ledger.set_aside(1)
    assert ledger.withhold(State.DRAINED) == [0, 2]
    assert ledger.count(State.OWED) == 1


def test_some_are_leased_before_the_others() -> None:
    ledger = Ledger([0] * 4)
    ledger.lease_first([3, 1])
    assert [number for number, _ in ledger.lease({0: 9})] == [3, 1, 0, 2]

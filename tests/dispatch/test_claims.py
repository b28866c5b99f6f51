"""Every outcome goes to one place, every waiter gets one answer, whatever is closed when."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gym_ray.dispatch.claims import Claims


def test_outcomes_are_claimed_in_the_order_in_which_they_came() -> None:
    claims: Claims[int, str] = Claims(is_bounded=False)
    for outcome in (1, 2):
        assert claims.arrive(outcome) is None
    assert [claims.claim(), claims.claim(), claims.claim()] == [(1,), (2,), None]


def test_those_in_line_are_served_in_their_order() -> None:
    claims: Claims[int, str] = Claims(is_bounded=True)
    assert claims.wait("a")
    assert claims.wait("b")
    claims.withdraw("a")
    assert claims.arrive(1) == "b"
    assert claims.arrive(2) is None


def test_after_closing_an_eager_iterator_still_hands_out_what_is_there_and_a_bounded_one_does_not() -> None:
    for is_bounded, expected in ((False, (1,)), (True, None)):
        claims: Claims[int, str] = Claims(is_bounded=is_bounded)
        claims.arrive(1)
        claims.close()
        assert claims.claim() == expected
        assert not claims.wait("late")


class ClaimsModel(RuleBasedStateMachine):
    """Each outcome is a number; where it is must always be known."""

    @initialize(is_bounded=st.booleans())
    def start(self, is_bounded: bool) -> None:
        self.claims: Claims[int, int] = Claims(is_bounded=is_bounded)
        self.is_bounded = is_bounded
        self.arrived = self.asked = 0
        self.given: list[int] = []
        self.drained: list[int] = []
        self.waiting: list[int] = []
        self.cancelled: list[int] = []

    @rule()
    def arrive(self) -> None:
        waiter = self.claims.arrive(self.arrived)
        if self.waiting:
            assert waiter == self.waiting.pop(0)
            self.given.append(self.arrived)
        else:
            assert waiter is None
        self.arrived += 1

    @rule()
    def ask(self) -> None:
        outcome = self.claims.claim()
        if outcome is not None:
            self.given.append(outcome[0])
        elif self.claims.wait(self.asked):
            assert not self.claims.is_closed
            self.waiting.append(self.asked)
        else:
            assert self.claims.is_closed
            self.cancelled.append(self.asked)
        self.asked += 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiting))
        self.claims.withdraw(waiter)
        self.waiting.remove(waiter)

    @rule()
    def close(self) -> None:
        assert self.claims.close() == self.waiting
        self.cancelled += self.waiting
        self.waiting = []

    @rule()
    def drain(self) -> None:
        self.drained += self.claims.drain()

    @invariant()
    def every_outcome_is_in_one_place(self) -> None:
        assert len(self.given) + len(self.drained) + self.claims.unclaimed == self.arrived
        assert not set(self.given) & set(self.drained)
        assert self.claims.claimed == len(self.given)

    @invariant()
    def nobody_waits_while_something_is_there(self) -> None:
        assert not (self.waiting and self.claims.unclaimed)


TestClaimsModel = ClaimsModel.TestCase
TestClaimsModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)

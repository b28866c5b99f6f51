from dataclasses import replace

import pytest

from gym_ray.aggregation.coverage import Coverage

DONE = Coverage(planned=800, results=790, failures=10, drained=0, omitted=0, owed=0)


def test_the_equation_is_written_out() -> None:
    assert str(DONE) == "planned 800 = results 790 + failures 10 + drained 0 + omitted 0 + owed 0"


def test_a_run_is_complete_when_every_rollout_is_settled() -> None:
    assert DONE.is_complete
    DONE.check()


@pytest.mark.parametrize("elsewhere", ["drained", "omitted", "owed"])
def test_a_rollout_that_is_left_for_later_keeps_a_run_from_being_complete(elsewhere: str) -> None:
    coverage = replace(DONE, results=789, **{elsewhere: 1})
    coverage.check()
    assert not coverage.is_complete


@pytest.mark.parametrize(
    "wrong", [replace(DONE, results=789), replace(DONE, results=791), replace(DONE, results=801, owed=-11)]
)
def test_an_account_that_does_not_close_is_never_complete(wrong: Coverage) -> None:
    assert not wrong.is_complete
    with pytest.raises(ValueError, match="planned 800 != results"):
        wrong.check()

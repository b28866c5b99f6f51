"""Answers are read and compared as numbers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_ray.example.number_text import agree, read_answer, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", Fraction(42)),
        ("-42.50", Fraction(-85, 2)),
        ("1,234,567", Fraction(1234567)),
        ("$12.50", Fraction(25, 2)),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        ("2.5e3", Fraction(2500)),
        (".5", Fraction(1, 2)),
        ("\u22127", Fraction(-7)),
        ("12 apples, 5 pears", Fraction(5)),
        ("9-4", Fraction(4)),
        ("no number", None),
        ("1/0", None),
    ],
)
def test_a_number_is_read_as_people_write_it(text: str, number: Fraction | None) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2 + 3 = 5\nAnswer: 5 apples, from 2 and 3", Fraction(5)),
        ("Answer: 4\nNo, wait. Answer: 5", Fraction(5)),
        ("So I get \\boxed{-17/4}.", Fraction(-17, 4)),
        ("The answer is 1,250.", Fraction(1250)),
        ("It comes to 12, I think", Fraction(12)),
        ("There were 12 apples, but I cannot give an answer.", None),
    ],
)
def test_the_answer_is_the_last_number_that_is_marked_as_such(text: str, answer: Fraction | None) -> None:
    assert read_answer(text) == answer


@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=1000))
def test_every_way_of_writing_a_number_agrees_with_it(number: Fraction) -> None:
    written = read_number(str(number))
    rounded = read_number(f"{float(number):.9g}")
    assert written == number
    assert rounded is not None
    assert agree(rounded, number)


def test_another_number_does_not_agree() -> None:
    assert not agree(Fraction(101, 100), Fraction(1))
    assert not agree(Fraction(-5), Fraction(5))
    assert agree(Fraction(33333333, 10**8), Fraction(1, 3))

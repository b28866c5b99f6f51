"""Word problems for the `arithmetic` environment: a story, step by step, whose answer is computed while it is told."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gym_ray import keys
from gym_ray.example.arithmetic import ARITHMETIC
from gym_ray.example.draws import Dice
from gym_ray.example.environment import JsonObject

_SYSTEM = (
    "Solve the problem step by step. End with a line of the form: Answer: NUMBER. Fractions and decimals are fine."
)
_MAX_STEPS = 6
_PEOPLE = ("Amara", "Bence", "Chidi", "Dolores", "Emre", "Farida", "Goran", "Hanna", "Ines", "Jonas", "Kofi", "Leila")
_THINGS = ("apples", "marbles", "stamps", "postcards", "candles", "buttons", "seashells", "pencils", "tiles", "tickets")
_BOXES = ("boxes", "bags", "crates", "packets")


@dataclass(frozen=True, slots=True)
class _Story:
    person: str
    things: str
    dice: Dice


_Told = tuple[str, Fraction]
"""A sentence, and how many things there are after it."""


def arithmetic_row(number: int) -> JsonObject:
    """The row of this number; rows get harder and start over, from one step to six."""
    dice = Dice(f"arithmetic {number}")
    steps = 1 + number % _MAX_STEPS
    text, answer = _problem(_Story(dice.pick(_PEOPLE), dice.pick(_THINGS), dice), steps)
    return {
        keys.RESPONSES_CREATE_PARAMS: {
            "input": [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}],
            "temperature": 1.0,
        },
        keys.AGENT_REF: {"type": keys.RESPONSES_API_AGENTS, keys.NAME: ARITHMETIC.agent},
        keys.TASK_SOURCE: ARITHMETIC.resources_server,
        keys.PROBLEM_ID: f"arithmetic-{number:04}",
        "expected_answer": _written(answer),
        "steps": steps,
    }


def _problem(story: _Story, steps: int) -> tuple[str, Fraction]:
    count = Fraction(story.dice.between(12, 60))
    sentences = [f"{story.person} has {count} {story.things}."]
    for _ in range(steps - 1):
        sentence, count = _step(story, count)
        sentences.append(sentence)
    question, answer = story.dice.pick((_sale, _share, _gift))(story, count)
    return " ".join([*sentences, question]), answer


def _step(story: _Story, count: Fraction) -> _Told:
    """A step that leaves a whole number of things, and not too many to imagine."""
    while True:
        told = story.dice.pick(_STEPS)(story, count)
        if told is not None and 2 <= told[1] <= 5000:
            return told


def _buys(story: _Story, count: Fraction) -> _Told:
    boxes, size = story.dice.between(2, 9), story.dice.between(3, 15)
    kind = story.dice.pick(_BOXES)
    return f"{story.person} buys {boxes} {kind} with {size} {story.things} each.", count + boxes * size


def _gives_away(story: _Story, count: Fraction) -> _Told:
    given = story.dice.between(1, max(1, int(count) // 2))
    return f"{story.person} gives {given} of them to a neighbour.", count - given


def _doubles(story: _Story, count: Fraction) -> _Told:
    return f"A friend brings as many {story.things} as {story.person} already has, and leaves them there.", 2 * count


def _splits(story: _Story, count: Fraction) -> _Told | None:
    parts = story.dice.between(2, 5)
    if count % parts:
        return None
    return f"{story.person} splits the {story.things} evenly into {parts} piles and keeps one pile.", count / parts


def _loses_percent(story: _Story, count: Fraction) -> _Told | None:
    percent = story.dice.pick((10, 20, 25, 50))
    left = count * (100 - percent) / 100
    if left.denominator != 1:
        return None
    return f"Then {percent} percent of the {story.things} get lost.", left


_STEPS: tuple[Callable[[_Story, Fraction], _Told | None], ...] = (_buys, _gives_away, _doubles, _splits, _loses_percent)


def _sale(story: _Story, count: Fraction) -> _Told:
    cents = 5 * story.dice.between(3, 90)
    price = f"{cents // 100}.{cents % 100:02}"
    question = f"Finally {story.person} sells all remaining {story.things} for ${price} each. How many dollars is that?"
    return question, count * cents / 100


def _share(story: _Story, count: Fraction) -> _Told:
    days = story.dice.between(3, 12)
    question = f"{story.person} spreads the {story.things} evenly over {days} days. How many are there for each day?"
    return question, count / days


def _gift(story: _Story, count: Fraction) -> _Told:
    more = story.dice.between(5, 95)
    question = f"For a birthday, {story.person} gets {more} more. How many {story.things} does {story.person} have now?"
    return question, count + more


def _written(answer: Fraction) -> str:
    """A whole number, a decimal where that is exact at two digits, else a fraction."""
    if answer.denominator == 1:
        return str(answer.numerator)
    cents = answer * 100
    if cents.denominator == 1:
        return f"{cents.numerator // 100}.{cents.numerator % 100:02}"
    return f"{answer.numerator}/{answer.denominator}"

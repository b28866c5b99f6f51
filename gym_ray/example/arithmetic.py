"""The `arithmetic` environment: word problems in flat rows, answered in one message, checked as numbers."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from gym_ray import keys
from gym_ray.example import model
from gym_ray.example.attempt import AttemptIdentity
from gym_ray.example.environment import EnvironmentFacts, JsonObject
from gym_ray.example.number_text import agree, read_answer, read_number

ARITHMETIC = EnvironmentFacts(
    resources_server="arithmetic",
    agent="arithmetic_agent",
    server="arithmetic_environment_server",
    implementation="single_agent_turn_legacy",
    domain="math",
    takes_rows=True,
)


def _text_of_number(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _readable(text: str) -> str:
    if read_number(text) is None:
        raise ValueError("expected a number, such as 12.50 or 3/4")
    return text


class ArithmeticTask(BaseModel):
    """The fields of a row that this environment reads; rows may carry others."""

    expected_answer: Annotated[str, AfterValidator(_readable), BeforeValidator(_text_of_number)]
    steps: int = Field(1, ge=1)
    """Calculations on the way to the answer: what makes a problem hard for the scripted model."""


@dataclass(frozen=True, slots=True)
class ArithmeticEpisode:
    """One word problem."""

    prompt: JsonObject
    task: ArithmeticTask

    def play(self, identity: AttemptIdentity) -> JsonObject:
        expected = read_number(self.task.expected_answer) or Fraction(0)
        text = scripted_answer(expected, model.disposition(identity, self.task.steps))
        answer = read_answer(text)
        return {
            keys.RESPONSES_CREATE_PARAMS: self.prompt,
            keys.RESPONSE: model.response(identity, self.prompt, [model.message(text, 0)]),
            keys.REWARD: 1.0 if answer is not None and agree(answer, expected) else 0.0,
            keys.MASK_SAMPLE: False,
            keys.FAILURE_KIND: None,
            keys.FAILURE_REASON: None,
            "expected_answer": self.task.expected_answer,
            "extracted_answer": None if answer is None else _decimal(answer),
            "answered": answer is not None,
            "steps": self.task.steps,
        }


class ArithmeticEnvironment:
    """Opens word problems."""

    facts = ARITHMETIC

    def open(self, prompt: JsonObject, task: JsonObject) -> ArithmeticEpisode:
        return ArithmeticEpisode(prompt, ArithmeticTask.model_validate(task))


def scripted_answer(expected: Fraction, disposition: model.Disposition) -> str:
    """What the model says; a right answer may be written in any of several ways."""
    if not disposition.errs:
        return _worded(expected, disposition.style)
    if disposition.manner < 0.15:
        return "I lost track of the quantities and cannot give an answer."
    if disposition.manner < 0.5:
        return _worded(expected + 1 + int(9 * disposition.place), disposition.style)  # a slip in an addition
    if disposition.manner < 0.8 and expected != 0:
        return _worded(expected * 10, disposition.style)  # a lost decimal place
    return _worded(-expected - 1, disposition.style)  # subtracted the wrong way round


def _worded(answer: Fraction, style: float) -> str:
    if style < 0.25:
        return f"Working through it step by step, I get \\boxed{{{answer}}}."
    if style < 0.5:
        return f"Let me go through it in order.\nThe answer is {_decimal(answer)}."
    if style < 0.75 and answer.denominator == 1:
        return f"Answer: {answer.numerator:,}"
    return f"Step by step this comes to {_decimal(answer)}.\nAnswer: {answer.numerator}/{answer.denominator}"


def _decimal(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.8g}"

"""Numbers as people and models write them, read exactly: `1,234`, `-3/4`, `12.50`, `$7`, `5e3`.

Invariant: two texts of the same number read the same, so answers are compared as numbers and never as strings.
"""

import re
from fractions import Fraction

_NUMBER = re.compile(
    r"(?:(?<![\w.)])(?P<sign>[-\u2212+])\s?)?[$€£]?"
    r"(?P<whole>\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?P<decimals>\.\d+)?(?P<exponent>[eE][-+]?\d{1,3})?"
    r"(?:\s?/\s?(?P<divisor>\d+))?"
)
_ANSWER = re.compile(r"\\boxed\{([^{}]*)\}|answer(?:\s+is)?\s*[:=]?\s*([^\n]*)", re.IGNORECASE)


def read_number(text: str) -> Fraction | None:
    """The last number in the text, or None."""
    number = None
    for match in _NUMBER.finditer(text):
        number = _fraction(match)
    return number


def read_answer(text: str) -> Fraction | None:
    """The number that the text gives as its answer: the last one marked so, else the last number at all; or None."""
    marked = [first or second for first, second in _ANSWER.findall(text)]
    for candidate in reversed(marked):
        if (number := _first_number(candidate)) is not None:
            return number
    return None if marked else read_number(text)


def agree(answer: Fraction, expected: Fraction) -> bool:
    """True if the two differ by no more than rounding at six digits."""
    return abs(answer - expected) <= max(Fraction(1), abs(expected)) / 10**6


def _first_number(text: str) -> Fraction | None:
    match = _NUMBER.search(text)
    return None if match is None else _fraction(match)


def _fraction(match: re.Match[str]) -> Fraction | None:
    digits = match["whole"].replace(",", "") + (match["decimals"] or "") + (match["exponent"] or "")
    divisor = int(match["divisor"] or 1)
    if divisor == 0:
        return None
    value = Fraction(digits) / divisor
    return -value if match["sign"] in {"-", "\u2212"} else value

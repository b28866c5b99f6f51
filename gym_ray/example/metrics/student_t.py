"""The 0.975 quantile of Student's t distribution, which makes two-sided 95 % confidence bounds.

Source: Abramowitz & Stegun, 26.7.3 and 26.7.4 (the distribution as a finite sum), 26.7.5 (expansion for many degrees).
"""

import math
from functools import lru_cache

_COVERED = 0.95
_Z = 1.959963984540054
"""The 0.975 quantile of the normal distribution, to which t converges."""
_FINITE_SUM_BELOW = 200
"""From here on the expansion is exact to 1e-11, and the sum would only be slower."""


@lru_cache(maxsize=4096)
def quantile_975(degrees: int) -> float:
    """The t that 2.5 % of the distribution exceeds; exact to about 1e-10 for every `degrees` >= 1."""
    if degrees == 1:
        return math.tan(math.pi * _COVERED / 2)
    if degrees == 2:
        return _COVERED * math.sqrt(2 / (1 - _COVERED**2))
    t = _expansion(degrees)
    if degrees >= _FINITE_SUM_BELOW:
        return t
    for _ in range(6):  # the start is within 5 %, and each Newton step squares the error: three would do
        t -= (_central_probability(t, degrees) - _COVERED) / (2 * _density(t, degrees))
    return t


def _expansion(degrees: int) -> float:
    z, n = _Z, float(degrees)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def _central_probability(t: float, degrees: int) -> float:
    """The probability of a value between -t and t."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def _density(t: float, degrees: int) -> float:
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    return float(scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2))

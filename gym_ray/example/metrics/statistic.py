"""The statistics that metrics are made of; every function takes at least one finite number.

Source: protocol §9.3 (sample deviation), §9.6 (quartiles and bounds), §9.7 (percentiles).
"""

import math
from collections.abc import Sequence

from gym_ray.example.metrics.student_t import quantile_975

Number = int | float


def mean(values: Sequence[Number]) -> float:
    return math.fsum(values) / len(values)


def median(values: Sequence[Number]) -> float:
    return percentile(values, 50)


def percentile(values: Sequence[Number], percent: float) -> float:
    """The value below which `percent` of a hundred lie, interpolated linearly between neighbours."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def sample_deviation(values: Sequence[Number]) -> float:
    """The standard deviation with n - 1 in the denominator; 0.0 for a single value."""
    if len(values) == 1:
        return 0.0
    return math.sqrt(_squares(values) / (len(values) - 1))


def population_deviation(values: Sequence[Number]) -> float:
    """The standard deviation with n in the denominator."""
    return math.sqrt(_squares(values) / len(values))


def standard_error(values: Sequence[Number]) -> float:
    return sample_deviation(values) / math.sqrt(len(values))


def confidence_bounds(values: Sequence[Number]) -> tuple[float, float] | None:
    """The two-sided 95 % interval around the mean, or None for a single value."""
    if len(values) == 1:
        return None
    half_width = quantile_975(len(values) - 1) * standard_error(values)
    return mean(values) - half_width, mean(values) + half_width


def _squares(values: Sequence[Number]) -> float:
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values)

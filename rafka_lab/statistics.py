"""Means with confidence intervals for a handful of repeated measurements. Student's t, always at 95 %."""

import math
from collections.abc import Sequence
from typing import NamedTuple

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; beyond, the normal one is near enough.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL95 = 1.960


class Interval(NamedTuple):
    """A mean and where the true one lies with 95 % confidence; infinite for a single measurement."""

    mean: float
    low: float
    high: float


def t95(freedom: float) -> float:
    """The quantile for `freedom` degrees of freedom, rounded down to the safe side."""
    if freedom < 1:
        return math.inf
    whole = math.floor(freedom)
    return _T95[whole - 1] if whole <= len(_T95) else _NORMAL95


def interval(values: Sequence[float]) -> Interval:
    """The mean of repeated measurements."""
    count = len(values)
    mean = sum(values) / count
    if count == 1:
        return Interval(mean, -math.inf, math.inf)
    spread = t95(count - 1) * math.sqrt(_variance(values) / count)
    return Interval(mean, mean - spread, mean + spread)


def difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """second - first, by Welch's method: the two may scatter differently."""
    mean = sum(second) / len(second) - sum(first) / len(first)
    if min(len(first), len(second)) == 1:
        return Interval(mean, -math.inf, math.inf)
    parts = [_variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    if total == 0:
        return Interval(mean, mean, mean)
    below = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True))
    spread = t95(total**2 / below) * math.sqrt(total)
    return Interval(mean, mean - spread, mean + spread)


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)

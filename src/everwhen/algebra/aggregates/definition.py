"""What each aggregate function means, for the values of one group: the yardstick for the incremental ones.

Values come as a list with multiplicities written out and nulls left out; it is never empty.  Sums of integers and
decimals are exact and must fit the result type; means, variances and interpolated quantiles are rounded once, at the
end.  NaN is the largest value, and what is computed from one is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from everwhen.algebra.expressions.definition import EXACT, exact, integer, null_first_key, order_key


def total(values: Sequence[Any]) -> Any:
    """Σ: integers within 64 bits, decimals within 38 digits, floats rounded once."""
    if isinstance(values[0], float):
        return float_sum(values)
    if isinstance(values[0], Decimal):
        return exact(reduce(EXACT.add, values))
    return integer(sum(values))


def float_sum(values: Sequence[float]) -> float:
    """The sum of floats, rounded once; infinities of both signs, or a NaN, make it NaN."""
    if all(map(math.isfinite, values)):
        return _float(sum(map(Fraction, values)))
    return sum(value for value in values if not math.isfinite(value))


def _float(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def mean(values: Sequence[Any]) -> float:
    if not all(map(math.isfinite, values)):
        return float_sum([float(value) for value in values]) / len(values)
    return _float(Fraction(sum(map(Fraction, values)), len(values)))


def variance(values: Sequence[Any], *, sample: bool) -> float | None:
    """The mean squared distance from the mean; the sample's divides by n - 1 and is null for one value."""
    found = _variance(values, sample)
    return _float(found) if isinstance(found, Fraction) else found


def deviation(values: Sequence[Any], *, sample: bool) -> float | None:
    """The root of the variance, also where that is too large or too small for a float."""
    found = _variance(values, sample)
    if not isinstance(found, Fraction) or not found:
        return None if found is None else float(found)
    half = (found.numerator.bit_length() - found.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(found / Fraction(4) ** half), half)


def _variance(values: Sequence[Any], sample: bool) -> Fraction | float | None:
    n = len(values)
    if sample and n == 1:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    numbers = list(map(Fraction, values))
    squares, plain = sum(x * x for x in numbers), sum(numbers)
    return Fraction(n * squares - plain * plain, n * (n - 1 if sample else n))


def smallest(values: Sequence[Any]) -> Any:
    return min(values, key=order_key)


def largest(values: Sequence[Any]) -> Any:
    return max(values, key=order_key)


def count_distinct(values: Sequence[Any]) -> int:
    return len(set(map(order_key, values)))


def quantile(values: Sequence[Any], q: float) -> Any:
    """The value at position q·(n-1) of the sorted values: numbers are interpolated, of others the lower is taken."""
    ordered = sorted(values, key=order_key)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    if not isinstance(ordered[0], int | float | Decimal) or isinstance(ordered[0], bool):
        return ordered[below]
    return interpolate(float(ordered[below]), float(ordered[math.ceil(position)]), position - below)


def interpolate(low: float, high: float, fraction: float) -> float:
    """The point between two neighbours; equal neighbours, infinite ones too, are that point."""
    return low if fraction == 0 or low == high else low + (high - low) * fraction


def top_k(values: Sequence[Any], k: int) -> list[Any]:
    return sorted(values, key=order_key, reverse=True)[:k]


def first(rows: Sequence[tuple[Any, Any]], *, last: bool = False) -> Any:
    """The value of the row with the smallest (largest) `by`; of several the smallest value, nulls first."""
    dated = [(order_key(by), value) for value, by in rows if by is not None]
    if not dated:
        return None
    wanted = (max if last else min)(key for key, _ in dated)
    return min((value for key, value in dated if key == wanted), key=null_first_key)


def quantile_disc(values: Sequence[Any], q: float) -> Any:
    """The first of the sorted values with which a share of at least q has come."""
    ordered = sorted(values, key=order_key)
    n = len(ordered)
    return ordered[max(0, n - math.floor(n - q * n) - 1)]


def listed(rows: Sequence[tuple[Any, ...]], *, descending: bool = False) -> list[Any]:
    """All values that are not null in the order of the other columns, nulls first, then in their own."""
    present = [row for row in rows if row[0] is not None]
    ordered = sorted(present, key=lambda row: tuple(map(null_first_key, (*row[1:], row[0]))), reverse=descending)
    return [row[0] for row in ordered]


DEFINITIONS: Final[dict[str, Callable[..., Any]]] = {
    "sum": total,
    "avg": mean,
    "min": smallest,
    "max": largest,
    "stddev": lambda values: deviation(values, sample=True),
    "stddev_pop": lambda values: deviation(values, sample=False),
    "variance": lambda values: variance(values, sample=True),
    "variance_pop": lambda values: variance(values, sample=False),
    "count_distinct": count_distinct,
    "median": lambda values: quantile(values, 0.5),
    "quantile": quantile,
    "quantile_disc": quantile_disc,
    "top_k": top_k,
}
"""Functions of the non-null values of one column (and the parameters)."""

"""Floats of two parts, against fractions: what rounding loses is kept."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np

from everwhen.operators.sweep.double_double import plus, product_error, square_error, times


def floats(seed: int, n: int = 200) -> np.ndarray:
    rng = random.Random(seed)
    return np.array([math.ldexp(rng.uniform(-1, 1), rng.randint(-60, 60)) for _ in range(n)])


def exact(high: np.ndarray, low: np.ndarray) -> list[Fraction]:
    return [Fraction(a) + Fraction(b) for a, b in zip(high.tolist(), low.tolist(), strict=True)]


def test_a_product_and_its_error_are_the_exact_product() -> None:
    x, y = floats(1), floats(2)
    assert exact(x * y, product_error(x, y)) == [
        Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    assert exact(x * x, square_error(x)) == [Fraction(a) ** 2 for a in x.tolist()]


def test_what_is_too_large_to_tell_has_no_error() -> None:
    x = np.array([1e200, math.inf, math.nan, -1e308])
    assert square_error(x).tolist() == [0.0] * 4


def test_sums_are_within_twice_the_precision() -> None:
    x, y = floats(3), floats(4)
    rest = [each * np.random.default_rng(5).uniform(-1, 1, len(each)) * 2.0**-54 for each in (x, y)]
    high, low = plus((x, rest[0]), (y, rest[1]))
    given = zip(exact(x, rest[0]), exact(y, rest[1]), exact(high, low), strict=True)
    for a, b, found in given:
        assert abs(found - (a + b)) <= (abs(a) + abs(b)) / 2**100
    assert (np.abs(low) <= np.abs(high) * 2.0**-52).all(), "the low part is what rounding lost"


def test_a_large_value_that_goes_again_leaves_the_small_one() -> None:
    one, large = (np.array([1e-20]), np.zeros(1)), (np.array([1.0]), np.zeros(1))
    both = plus(one, large)
    high, low = plus(both, (-large[0], -large[1]))
    assert high[0] + low[0] == 1e-20


def test_whole_weights() -> None:
    x, low = floats(6), np.zeros(200)
    assert all((a == b).all() for a, b in zip(times(x, low, np.full(200, -1)), (-x, -low), strict=True))
    assert exact(*times(x, low, np.full(200, 3))) == [3 * Fraction(a) for a in x.tolist()]

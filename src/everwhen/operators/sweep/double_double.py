"""Floats in twice the precision: a float and what rounding lost of it (Dekker's products)."""

from __future__ import annotations

import numpy as np


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    c = 134217729.0 * x
    high = c - (c - x)
    return high, x - high


def square_error(x: np.ndarray) -> np.ndarray:
    """What rounding lost of x·x (zero where x·x is too large to tell)."""
    return product_error(x, x)


def product_error(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What rounding lost of x·y."""
    with np.errstate(over="ignore", invalid="ignore"):
        xh, xl = _split(x)
        yh, yl = _split(y)
        error = ((xh * yh - x * y) + xh * yl + xl * yh) + xl * yl
    return np.where(np.isfinite(error), error, 0.0)


def times(high: np.ndarray, low: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Floats of two parts times whole numbers."""
    if (np.abs(weight) == 1).all():
        return high * weight, low * weight
    w = weight.astype(np.float64)
    return high * w, low * w + product_error(high, w)


def plus(x: tuple[np.ndarray, np.ndarray], y: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The sum of floats of two parts."""
    high = x[0] + y[0]
    back = high - x[0]
    low = (x[0] - (high - back)) + (y[0] - back) + x[1] + y[1]
    both = high + low
    return both, low - (both - high)

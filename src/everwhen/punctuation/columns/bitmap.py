"""A sieve: which ranks may be promised, as one bit each.  Most rows are about none of them, and are passed by one look.

It covers the ranks from the smallest to the largest that are promised, where they lie close enough; a bit that is set
may be out of date, a bit that is not set never is.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.punctuation.columns.loops import mark

_MOST: Final = 1 << 22
"""So many ranks are covered at most: half a megabyte."""


class Sieve:
    """Bits from the rank `base` on."""

    def __init__(self, base: int, bits: np.ndarray) -> None:
        self.base = base
        self.bits = bits

    @staticmethod
    def of(lows: np.ndarray, highs: np.ndarray) -> Sieve | None:
        """A sieve with these intervals, and room for as many ranks above; None if they lie too far apart."""
        low, high = int(lows.min()), int(highs.max())
        size = min(2 * (high - low + 64), _MOST)
        if high - low >= size:
            return None
        sieve = Sieve(low, np.zeros(size // 8 + 1, np.uint8))
        sieve.mark(lows, highs)
        return sieve

    def mark(self, lows: np.ndarray, highs: np.ndarray) -> bool:
        """Sets the bits of intervals of ranks; False if some lie outside, and then the sieve is of no use any more."""
        return bool(mark(self.bits, self.base, lows, highs))

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes


NO_SIEVE: Final = Sieve(0, np.empty(0, np.uint8))
"""Lets everything pass."""

"""Sums and variances of floats that a large value leaves as if it had never come.

A sum in twice the precision loses what is 2**106 times smaller than its largest part, and does not get it back when
that part has left.  So values are added up by *class of magnitude*, each class on its own, and a class of which nothing
is alive counts for nothing.  Classes are so narrow that the sum of a class is exact: all of its values are multiples of
one power of two, and with up to 2**19 of them alive the sum is less than 2**103 times as large.  A square is kept as
the float next to it and the rest, each of which is summed as exactly.  So a result is rounded when it is said, and
depends neither on what has left nor on the batches.  Nearly all values are of class 0; others get accumulators when the
first one comes.

A class's values are divided by a power of two (class 0: as they are), so that no square is too large or too small for
a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from everwhen.operators.sweep.double_double import plus, product_error, square_error
from everwhen.operators.sweep.lane_view import Lanes

Part = tuple[np.ndarray, np.ndarray]
"""The high and the low part of a float."""


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """Class c has the values from 2**(first + c·width) to below 2**(first + (c+1)·width); class 0 also has zero."""

    width: int
    first: int

    def classes(self, values: np.ndarray) -> np.ndarray | None:
        """The classes of finite values (None: all are of class 0)."""
        size = np.abs(values)
        lowest, highest = 2.0**self.first, 2.0 ** (self.first + self.width)
        if size.max(initial=0.0) < highest and not ((size < lowest) & (size != 0.0)).any():
            return None
        exponent = np.frexp(size)[1].astype(np.int64) - 1
        return np.where(size > 0.0, (exponent - self.first) // self.width, 0)

    def scale(self, class_: int) -> int:
        """Values of a class are divided by two to the power of this."""
        return class_ * self.width


SUMS: Final = Magnitudes(32, -12)
"""Class 0 has the values from 0.0003 to a million."""
MOMENTS: Final = Magnitudes(16, -4)
"""Class 0 has the values from 0.07 to 4,000: squares have twice as many digits."""


@dataclass(frozen=True, slots=True)
class FloatRows:
    """The values of a column in some rows, zero where it is null, by class (None: all are of class 0), and the classes
    among them that have not come before."""

    values: np.ndarray
    finite: np.ndarray
    magnitudes: Magnitudes
    classes: np.ndarray | None
    new: tuple[int, ...]

    def are(self, what: str) -> np.ndarray:
        """Which values are "nan", "inf", "minus_inf", or of a class."""
        if what == "nan":
            return np.isnan(self.values)
        if what.startswith("class"):
            return self.classes == int(what[5:]) if self.classes is not None else np.zeros(len(self.values), np.bool_)
        return self.values == (np.inf if what == "inf" else -np.inf)

    def parts(self, what: str) -> Part | None:
        """The "summed", "square" or "errors" (what rounding takes off the squares) of one class, whose number may stand
        behind (None: there is nothing of it)."""
        class_ = int(what[6:] or 0)
        if class_ and self.classes is None:
            return None
        here = self.finite if self.classes is None else self.finite & (self.classes == class_)
        mine = np.where(here, self.values, 0.0)
        if class_:
            mine = np.ldexp(mine, -self.magnitudes.scale(class_))
        if what.startswith("square"):
            mine = mine * mine
        elif what.startswith("errors"):
            mine = square_error(mine)
        return mine, np.zeros(len(mine))


@dataclass(frozen=True, slots=True)
class FloatColumn:
    """An argument column that is added up as floats, and the classes that have come, in that order."""

    column: int
    magnitudes: Magnitudes
    classes: list[int] = field(default_factory=lambda: [0])

    def rows(self, values: np.ndarray) -> FloatRows:
        finite = np.isfinite(values)
        found = self.magnitudes.classes(np.where(finite, values, 0.0))
        came = () if found is None else tuple(c for c in np.unique(found).tolist() if c not in self.classes)
        return FloatRows(values, finite, self.magnitudes, found, came)

    def _alive(self, lanes: Lanes) -> dict[int, np.ndarray]:
        """How many finite values of each class there are."""
        found = {c: lanes.int_(f"class{c}", self.column) for c in self.classes if c}
        left = lanes.int_("valid", self.column)
        for what in ("nan", "inf", "minus_inf"):
            left = left - lanes.int_(what, self.column)
        return {0: left - sum(found.values()), **found}

    def _parts(self, what: str, lanes: Lanes, alive: Mapping[int, np.ndarray]) -> dict[int, Part]:
        """A sum by class, without what rounding has left of those of which nothing is alive."""
        found: dict[int, Part] = {}
        for class_ in self.classes:
            high, low = lanes.float_(f"{what}{class_}" if class_ else what, self.column)
            there = alive[class_] != 0
            found[class_] = np.where(there, high, 0.0), np.where(there, low, 0.0)
        return found

    def total(self, lanes: Lanes) -> np.ndarray:
        """The sum of all finite values."""
        if len(self.classes) == 1:
            high, low = lanes.float_("summed", self.column)
            return high + low
        found: Part | None = None
        plain = np.zeros(len(lanes.words))
        with np.errstate(over="ignore", invalid="ignore"):
            for class_, (high, low) in sorted(self._parts("summed", lanes, self._alive(lanes)).items(), reverse=True):
                scale = self.magnitudes.scale(class_)
                part = np.ldexp(high, scale), np.ldexp(low, scale)
                found = part if found is None else plus(found, part)
                plain = plain + part[0]
            assert found is not None
            both = found[0] + found[1]
        return np.where(np.isfinite(both), both, plain)

    def spread(self, lanes: Lanes, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sum of the squared distances from the mean of `n` values, and the power of two by which the distances are
        divided: that of the largest class of which something is alive."""
        if len(self.classes) == 1:
            plain = lanes.float_("summed", self.column)
            square = plus(lanes.float_("square", self.column), lanes.float_("errors", self.column))
            scale = np.zeros(len(n), np.int64)
        else:
            plain, square, scale = self._gathered(lanes)
        # Σx² - (Σx)²/n in twice the precision: the two are close when values are large and alike
        high, low = plain
        whole, error = high * high, square_error(high) + 2.0 * high * low
        mean_high = whole / n
        rest = (whole - mean_high * n) - product_error(mean_high, n)
        mean_low = (rest + error) / n
        return np.maximum((square[0] - mean_high) + (square[1] - mean_low), 0.0), scale

    def _gathered(self, lanes: Lanes) -> tuple[Part, Part, np.ndarray]:
        """The sums of the values and of their squares over all classes, divided by the scale of the largest alive."""
        alive = self._alive(lanes)
        top = np.full(len(lanes.words), min(self.classes), np.int64)
        for class_ in sorted(self.classes):
            top = np.where(alive[class_] != 0, class_, top)
        scale = top * self.magnitudes.width
        zero = np.zeros(len(top))
        plain: Part = (zero, zero)
        square: Part = (zero, zero)
        sums = self._parts("summed", lanes, alive)
        squares, errors = self._parts("square", lanes, alive), self._parts("errors", lanes, alive)
        for class_ in sorted(self.classes, reverse=True):
            by = np.where(alive[class_] != 0, self.magnitudes.scale(class_) - scale, 0)
            plain = plus(plain, _scaled(sums[class_], by))
            square = plus(plus(square, _scaled(squares[class_], 2 * by)), _scaled(errors[class_], 2 * by))
        return plain, square, scale


def _scaled(part: Part, by: np.ndarray) -> Part:
    return np.ldexp(part[0], by), np.ldexp(part[1], by)

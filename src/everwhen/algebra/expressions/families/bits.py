"""The bits of integers, in two's complement: `bit_at(x, 63)` is 1 for negative numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, apply, coerce
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require


def bit_at(number: int, place: int) -> int:
    """The bit at a place, 0 to 63."""
    return (number >> place) & 1


def _bit_at(args: Sequence[Compiled], where: str) -> Compiled:
    require(args, where, "integers", "integer")
    wanted = "the place of a bit, 0 to 63,"
    place = constant_value(args[1], where, wanted, lambda given: 0 <= given < 64)
    value, one = coerce(args[0], pa.int64()), pa.scalar(1, pa.int64())
    if place == 63:  # pyarrow does not shift so far
        return apply(pa.int64(), lambda x: pc.cast(pc.less(x, 0), pa.int64()), [value], where)
    shift = pa.scalar(place, pa.int64())
    return apply(pa.int64(), lambda x: pc.bit_wise_and(pc.shift_right(x, shift), one), [value], where)


BIT_FUNCTIONS: Final = (ScalarFunction("bit_at(x, place)", _bit_at, bit_at, 2, 2),)

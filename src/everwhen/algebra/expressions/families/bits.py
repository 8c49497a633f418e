"""The bits of integers, in two's complement, and what sums of them say: the parts of BIT_AND, BIT_OR and BIT_XOR.

Two bits go into one number, the second 31 places higher, so that sums of up to two thousand million rows keep apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, Datum, Rule, apply, coerce
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require

PAIRS: Final = 32
_HIGHER: Final = 31
_LOW: Final = (1 << _HIGHER) - 1
Test = Callable[[Any, Any], Any]
"""Whether a bit is set, of how many rows there are and how many of them have it."""


def bit_pair(number: int, place: int) -> int:
    """The bits at twice a place and behind it, 0 to 31, as one number."""
    return ((number >> 2 * place) & 1) + (((number >> (2 * place + 1)) & 1) << _HIGHER)


def _bit_pair(args: Sequence[Compiled], where: str) -> Compiled:
    require(args, where, "integers", "integer")
    place = constant_value(args[1], where, "the place of two bits, 0 to 31,", lambda given: 0 <= given < PAIRS)

    def kernel(given: Datum) -> pa.Array:
        numbers = pc.fill_null(given, 0).to_numpy(zero_copy_only=False)
        pairs = ((numbers >> 2 * place) & 1) + (((numbers >> (2 * place + 1)) & 1) << _HIGHER)
        return pa.array(pairs, pa.int64(), mask=given.is_null().to_numpy(zero_copy_only=False))

    return apply(pa.int64(), kernel, [coerce(args[0], pa.int64())], where)


def _from_sums(test: Test) -> Callable[..., int]:
    def value(count: int, *sums: int) -> int:
        bits = [each for total in sums for each in (total & _LOW, total >> _HIGHER)]
        found = sum(1 << place for place, has in enumerate(bits) if test(count, has))
        return found - (1 << 64) if found >> 63 else found

    return value


def _rule(test: Test) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        require(args, where, "sums of bits", "integer")

        def kernel(*data: Datum) -> pa.Array:
            columns = [pc.fill_null(each, 0).to_numpy(zero_copy_only=False) for each in data]
            count, sums = columns[0], columns[1:]
            found = np.zeros(len(count), np.uint64)
            for place, total in enumerate(sums):
                found |= test(count, total & _LOW).astype(np.uint64) << np.uint64(2 * place)
                found |= test(count, total >> _HIGHER).astype(np.uint64) << np.uint64(2 * place + 1)
            missing = np.logical_or.reduce([each.is_null().to_numpy(zero_copy_only=False) for each in data])
            return pa.array(found.view(np.int64), pa.int64(), mask=missing)

        return apply(pa.int64(), kernel, [coerce(arg, pa.int64()) for arg in args], where)

    return rule


def _sums(name: str, test: Test) -> ScalarFunction:
    return ScalarFunction(f"{name}(count, sum, …)", _rule(test), _from_sums(test), PAIRS + 1, PAIRS + 1)


BIT_FUNCTIONS: Final = (
    ScalarFunction("_bit_pair(x, place)", _bit_pair, bit_pair, 2, 2),
    _sums("_bits_of_all", lambda count, has: has == count),
    _sums("_bits_of_any", lambda count, has: has > 0),
    _sums("_bits_of_odd", lambda count, has: has % 2 == 1),
)

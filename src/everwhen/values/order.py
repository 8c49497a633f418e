"""The order of a column's values as numbers, so that patterns over any type are intervals of integers.

Three kinds of type:

* RANK: whole numbers, floats, booleans, dates, times, timestamps, durations, decimals of up to 18 digits.  Every value
  has a 64-bit rank.  Ranks are in the order of the values and without gaps: neighbours in rank are neighbours in value,
  so a range with open bounds is a closed interval of ranks and two intervals that touch are one, exactly.
* BYTES: text, binaries, longer decimals.  Every value has a byte string, and these are in the order of the values.
* OPAQUE: nested values.  They are equal or not; no order is defined and a range over them is refused.

Floats: one zero, one NaN; NaN is above every number, as everywhere in the algebra.  A null has no rank: no range
matches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import InvalidOperation
from enum import Enum
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import Unfit, expected, from_python, python_values, show_value
from everwhen.errors import QueryError

_WIDEST_RANKED_DECIMAL: Final = 18
_DAY_MS: Final = 86_400_000
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_INTS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UINTS: Final = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_FLOATS: Final = {16: np.float16, 32: np.float32, 64: np.float64}
_INT64: Final = np.dtype(np.int64)
_SIGN: Final = np.uint64(1 << 63)
_FAILURES: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, InvalidOperation, Unfit)


class Kind(Enum):
    RANK = "rank"
    BYTES = "bytes"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class ValueOrder:
    """How values of one type are ordered; `lo` and `hi` are the smallest and the largest rank (RANK only)."""

    type: pa.DataType
    kind: Kind
    lo: int = 0
    hi: int = -1

    @cached_property
    def whole(self) -> bool:
        """Whether a value is its own rank."""
        is_ = pa.types
        return is_.is_signed_integer(self.type) or (is_.is_unsigned_integer(self.type) and self.type.bit_width < 64)

    @cached_property
    def plain(self) -> bool:
        """Whether every 64-bit number is a value and its own rank."""
        return pa.types.is_int64(self.type)

    def ranks(self, column: pa.Array) -> np.ndarray:
        """The rank of each value (int64); what stands where a value is missing does not matter."""
        if self.plain:
            return _buffer(column, _INT64)
        type_, is_ = self.type, pa.types
        if is_.is_null(type_):
            return np.zeros(len(column), np.int64)
        if is_.is_boolean(type_):
            filled = column.fill_null(False) if column.null_count else column
            return filled.to_numpy(zero_copy_only=False).astype(np.int64)
        if is_.is_decimal(type_):
            wide = column.cast(pa.decimal128(type_.precision, type_.scale))
            return np.ascontiguousarray(_buffer(wide, np.dtype((np.int64, 2)))[:, 0])
        if is_.is_floating(type_):
            return _float_ranks(_buffer(column, np.dtype(_FLOATS[type_.bit_width])))
        if is_.is_unsigned_integer(type_):
            data = _buffer(column, np.dtype(_UINTS[type_.bit_width]))
            return (data ^ _SIGN).view(np.int64) if data.dtype == np.uint64 else data.astype(np.int64)
        data = _buffer(column, np.dtype(_INTS[type_.bit_width])).astype(np.int64, copy=False)
        return data // _DAY_MS if is_.is_date64(type_) else data

    def keys(self, column: pa.Array) -> Any:
        """The ranks of a column's values, or the column itself where there are none."""
        return np.ascontiguousarray(self.ranks(column)) if self.kind is Kind.RANK else column

    def column(self, ranks: np.ndarray) -> pa.Array:
        """The values of ranks."""
        type_, is_ = self.type, pa.types
        if is_.is_null(type_):
            return pa.nulls(len(ranks))
        if is_.is_boolean(type_):
            return pa.array(ranks != 0)
        if is_.is_decimal(type_):
            words = np.empty((len(ranks), 2), np.int64)
            words[:, 0], words[:, 1] = ranks, ranks >> 63
            wide = pa.decimal128(type_.precision, type_.scale)
            return pa.Array.from_buffers(wide, len(ranks), [None, pa.py_buffer(words)]).cast(type_)
        if is_.is_floating(type_):
            data = _rank_floats(ranks, type_.bit_width)
        elif is_.is_unsigned_integer(type_):
            wide_bits = type_.bit_width == 64
            data = ranks.view(np.uint64) ^ _SIGN if wide_bits else ranks.astype(_UINTS[type_.bit_width])
        else:
            data = (ranks * _DAY_MS if is_.is_date64(type_) else ranks).astype(_INTS[type_.bit_width])
        return pa.Array.from_buffers(type_, len(ranks), [None, pa.py_buffer(np.ascontiguousarray(data))])

    def values(self, ranks: np.ndarray) -> list[Any]:
        """The values of ranks, as Python has them."""
        if self.whole:
            return ranks.tolist()
        return python_values(self.column(ranks))

    def rank(self, value: Any) -> int:
        """The rank of one value."""
        if type(value) is int and self.lo <= value <= self.hi and pa.types.is_signed_integer(self.type):
            return value
        return int(self.ranks(constants([value], self.type))[0])

    def spans(self, column: pa.Array) -> tuple[np.ndarray, int, np.ndarray]:
        """The byte strings of a BYTES column: offsets, the position of the first, the bytes."""
        type_, is_ = self.type, pa.types
        if is_.is_decimal(type_):
            width = 32 if is_.is_decimal256(type_) else 16
            raw = _buffer(column, np.dtype((np.uint8, width)))[:, ::-1].copy()
            raw[:, 0] ^= 0x80  # negative numbers come first
            return np.arange(len(column) + 1, dtype=np.int64) * width, 0, raw.ravel()
        if is_.is_fixed_size_binary(type_):
            width = type_.byte_width
            raw = _buffer(column, np.dtype((np.uint8, width))) if width else np.empty(0, np.uint8)
            return np.arange(len(column) + 1, dtype=np.int64) * width, 0, np.ascontiguousarray(raw).ravel()
        if str(type_).endswith("_view"):
            column = column.cast(pa.large_binary() if "binary" in str(type_) else pa.large_string())
        _, offsets, data = column.buffers()
        if offsets is None:
            return np.zeros(len(column) + 1, np.int32), 0, np.empty(0, np.uint8)
        large = is_.is_large_string(column.type) or is_.is_large_binary(column.type)
        bounds = np.frombuffer(offsets, np.int64 if large else np.int32, column.offset + len(column) + 1)
        return bounds, column.offset, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)

    def column_of_bytes(self, raw: pa.Array) -> pa.Array:
        """The values of byte strings (a binary column without nulls)."""
        if not pa.types.is_decimal(self.type):
            return raw.cast(self.type)
        width = 32 if pa.types.is_decimal256(self.type) else 16
        turned = np.frombuffer(b"".join(raw.to_pylist()), np.uint8).reshape(len(raw), width)[:, ::-1].copy()
        turned[:, -1] ^= 0x80
        return pa.Array.from_buffers(self.type, len(raw), [None, pa.py_buffer(turned)])

    def of_bytes(self, strings: Sequence[bytes]) -> list[Any]:
        """The values of byte strings, as Python has them."""
        return self.column_of_bytes(pa.array(strings, pa.binary())).to_pylist()


@cache
def order_of(type_: pa.DataType) -> ValueOrder:
    """The order of a type's values."""
    is_ = pa.types
    if is_.is_dictionary(type_):
        return order_of(type_.value_type)
    if is_.is_null(type_):
        return ValueOrder(type_, Kind.RANK)
    if is_.is_boolean(type_):
        return ValueOrder(type_, Kind.RANK, 0, 1)
    if is_.is_floating(type_):
        ends = _float_ranks(np.array([-np.inf, np.nan], _FLOATS[type_.bit_width]))
        return ValueOrder(type_, Kind.RANK, int(ends[0]), int(ends[1]))
    if is_.is_decimal(type_):
        if type_.precision > _WIDEST_RANKED_DECIMAL:
            return ValueOrder(type_, Kind.BYTES)
        most = 10**type_.precision - 1
        return ValueOrder(type_, Kind.RANK, -most, most)
    if is_.is_time(type_):
        return ValueOrder(type_, Kind.RANK, 0, _PER_DAY[type_.unit] - 1)
    if is_.is_unsigned_integer(type_) and type_.bit_width < 64:
        return ValueOrder(type_, Kind.RANK, 0, 2**type_.bit_width - 1)
    if is_.is_date64(type_):
        return ValueOrder(type_, Kind.RANK, -(2**63) // _DAY_MS, (2**63 - 1) // _DAY_MS)
    if is_.is_integer(type_) or is_.is_temporal(type_):
        half = 2 ** (type_.bit_width - 1)
        return ValueOrder(type_, Kind.RANK, -half, half - 1)
    if is_.is_nested(type_):
        return ValueOrder(type_, Kind.OPAQUE)
    return ValueOrder(type_, Kind.BYTES)


def constants(values: Sequence[Any], type_: pa.DataType, name: str = "") -> pa.Array:
    """Constants of patterns as a column; a `QueryError` names the first that is not exactly of the type."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    try:
        return _exact(values, type_)
    except _FAILURES:
        for value in values:
            try:
                _exact([value], type_)
            except _FAILURES:
                place = f" of {name!r}" if name else ""
                raise QueryError(
                    f"{show_value(value)} in a pattern{place} is not of type {type_}; expected {expected(type_)}"
                ) from None
        # Each is right alone: some are text, others Python's own dates.
        return pa.concat_arrays([_exact([value], type_) for value in values])


def _exact(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    kinds = set(map(type, values)) - {type(None)}
    allowed = _python_types(type_)
    if allowed and not kinds <= allowed and not all(issubclass(kind, np.integer) for kind in kinds):
        raise TypeError(kinds)
    found = from_python(values, type_)
    if _rounds(type_):  # Arrow drops what does not fit without a word
        for given, kept in zip(values, python_values(found), strict=True):
            if type(given) is type(kept) and not (given == kept or given != given):
                raise ValueError(given)
    return found


@cache
def _python_types(type_: pa.DataType) -> frozenset[type]:
    """What Python calls values of the type, where Arrow would take others and change them; empty: Arrow decides."""
    is_ = pa.types
    if is_.is_integer(type_):
        return frozenset({int})
    if is_.is_date(type_):
        return frozenset({date, str})
    if is_.is_string(type_) or is_.is_large_string(type_):
        return frozenset({str})
    if is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_fixed_size_binary(type_):
        return frozenset({bytes})
    return frozenset()


@cache
def _rounds(type_: pa.DataType) -> bool:
    coarse = pa.types.is_temporal(type_) and getattr(type_, "unit", "us") in ("s", "ms")
    return coarse or (pa.types.is_floating(type_) and type_.bit_width < 64)


def plain(column: Any) -> Any:
    """A column without dictionary and in one piece; ranks stay as they are."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _buffer(column: pa.Array, dtype: np.dtype) -> np.ndarray:
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    base, shape = dtype.base, dtype.shape
    if not shape:
        return np.frombuffer(data, dtype, len(column) + column.offset)[column.offset :]
    per_value = int(np.prod(shape))
    flat = np.frombuffer(data, base, (len(column) + column.offset) * per_value)[column.offset * per_value :]
    return flat.reshape(len(column), *shape)


def _float_ranks(values: np.ndarray) -> np.ndarray:
    """Bits in the order of the numbers; NaN follows infinity."""
    signed = _INTS[values.dtype.itemsize * 8]
    bits = (values + values.dtype.type(0)).view(signed)
    most = (1 << (values.dtype.itemsize * 8 - 1)) - 1
    # A negative number has its magnitude turned round; the one added closes the gap that minus zero would leave.
    ranks = np.where(bits < 0, (bits ^ most) + 1, bits).astype(np.int64)
    nan = np.isnan(values)
    if nan.any():
        ranks[nan] = int(np.array([np.inf], values.dtype).view(signed)[0]) + 1
    return ranks


def _rank_floats(ranks: np.ndarray, width: int) -> np.ndarray:
    signed, floating = _INTS[width], _FLOATS[width]
    narrow = ranks.astype(signed)
    bits = np.where(narrow < 0, (narrow - 1) ^ ((1 << (width - 1)) - 1), narrow)
    values = bits.astype(signed).view(floating).copy()
    values[ranks > int(np.array([np.inf], floating).view(signed)[0])] = np.nan
    return values

"""Coded rows: a payload as a few 64-bit integers, laid out row by row in one matrix.

A row is `[null mask word(s), column codes…]`; a null has its bit set and the code 0, so two rows are equal exactly
when their integers are.  `RowCodec` turns Arrow columns into such a matrix and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.compiled.njit import loop
from everwhen.containers.gaps import fill, only_gaps, without
from everwhen.core.schema import Schema
from everwhen.rows.interner import Interner, is_pooled, validity

BITS: Final = 63
"""Columns per null mask word: the sign bit stays free."""

_NAN_BITS: Final = np.array([np.nan]).view(np.int64)[0]
_INT_BY_WIDTH: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UINT_BY_WIDTH: Final = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_FLOAT_BY_WIDTH: Final = {16: np.float16, 32: np.float32, 64: np.float64}


class RowCodec:
    """Rows of one schema, coded with one pool."""

    def __init__(self, schema: Schema, pool: Interner) -> None:
        self.schema = schema
        self.pool = pool
        self.words = max(1, -(-len(schema) // BITS))
        self.width = self.words + len(schema)
        self.pooled = tuple((self.words + j, t) for j, t in enumerate(schema.types) if is_pooled(t))
        self._types = schema.types
        self._dictionaries = {j - self.words: pool.dictionary(t) for j, t in self.pooled}

    def encode(self, columns: Sequence[pa.Array], length: int, gaps: np.ndarray | None = None) -> np.ndarray:
        """Arrow columns as a matrix of `length` coded rows; `gaps` are places in the columns that are left out."""
        rows = np.empty((length, self.width), np.int64)
        rows[:, : self.words] = 0
        for j, column in enumerate(columns):
            type_ = self._types[j]
            dictionary = self._dictionaries.get(j)
            if gaps is None and not column.null_count:
                if dictionary is None:
                    rows[:, self.words + j] = encode_plain(column, type_, copy=False)
                else:
                    dictionary.encode_into(rows, self.words + j, column)
                continue
            codes = encode_plain(column, type_) if dictionary is None else dictionary.encode(column)
            if column.null_count and not (gaps is not None and only_gaps(column, gaps)):
                missing = column.is_null().to_numpy(zero_copy_only=False)
                codes[missing] = 0
                mask = missing.astype(np.int64) << (j % BITS)
                rows[:, j // BITS] |= mask if gaps is None else without(mask, gaps)
            if gaps is None:
                rows[:, self.words + j] = codes
            else:
                fill(rows, self.words + j, codes, gaps)
        return rows

    def decode(self, rows: np.ndarray, nulls: int = 0) -> tuple[pa.Array, ...]:
        """Coded rows as Arrow columns, followed by so many nulls."""
        columns = np.empty((len(self._types), len(rows) + nulls), np.int64)
        if not turned(rows, self.words, columns):
            return tuple(self.column(rows, j, nulls) for j in range(len(self._types)))
        n = len(rows)
        known = validity(None, n, nulls)
        return tuple(
            self._dictionaries[j].decode(columns[j, :n], None, nulls)
            if j in self._dictionaries
            else plain_column(columns[j], known, type_, nulls)
            for j, type_ in enumerate(self._types)
        )

    def column(self, rows: np.ndarray, j: int, nulls: int = 0) -> pa.Array:
        """One column of coded rows as Arrow, followed by so many nulls."""
        codes = rows[:, self.words + j]
        valid = self.valid(rows, j)
        if j in self._dictionaries:
            return self._dictionaries[j].decode(np.ascontiguousarray(codes), valid, nulls)
        return decode_plain(codes, valid, self._types[j], nulls)

    def valid(self, rows: np.ndarray, j: int) -> np.ndarray | None:
        """Which rows have a value in column `j`; None if all have."""
        word = rows[:, j // BITS]
        if not word.any():
            return None
        return (word >> (j % BITS)) & 1 == 0

    def empty(self) -> np.ndarray:
        return np.empty((0, self.width), np.int64)

    def select(self, rows: np.ndarray, positions: Sequence[int], target: RowCodec) -> np.ndarray:
        """The columns at `positions` as rows of `target`, without decoding."""
        out = np.empty((len(rows), target.width), np.int64)
        out[:, : target.words] = 0
        masked = rows[:, : self.words].any()
        for to, j in enumerate(positions):
            out[:, target.words + to] = rows[:, self.words + j]
            if masked:
                out[:, to // BITS] |= ((rows[:, j // BITS] >> (j % BITS)) & 1) << (to % BITS)
        return out


def encode_column(column: pa.Array, type_: pa.DataType, pool: Interner) -> np.ndarray:
    """The codes of a column; what stands where a value is missing does not matter."""
    return pool.dictionary(type_).encode(column) if is_pooled(type_) else encode_plain(column, type_)


def encode_plain(column: pa.Array, type_: pa.DataType, copy: bool = True) -> np.ndarray:
    """The codes of values that are their own code; without a copy they may be the column's own memory."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_null(type_):
        return np.zeros(len(column), np.int64)
    if pa.types.is_boolean(type_):
        return (
            (column.fill_null(False) if column.null_count else column).to_numpy(zero_copy_only=False).astype(np.int64)
        )
    data = _buffer(column, type_)
    if pa.types.is_floating(type_):
        return float_codes(data.astype(np.float64))
    return (data.view(np.int64) if data.dtype == np.uint64 else data).astype(np.int64, copy=copy)


def float_codes(values: np.ndarray) -> np.ndarray:
    """The bits of floats, one pattern for NaN and one for zero."""
    codes = (values + 0.0).view(np.int64)
    nan = np.isnan(values)
    if nan.any():
        codes[nan] = _NAN_BITS
    return codes


def _buffer(column: pa.Array, type_: pa.DataType) -> np.ndarray:
    width = type_.bit_width
    kind = (
        _FLOAT_BY_WIDTH
        if pa.types.is_floating(type_)
        else _UINT_BY_WIDTH
        if pa.types.is_unsigned_integer(type_)
        else _INT_BY_WIDTH
    )
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), kind[width])
    return np.frombuffer(data, kind[width], len(column) + column.offset)[column.offset :]


def decode_column(codes: np.ndarray, valid: np.ndarray | None, type_: pa.DataType, pool: Interner) -> pa.Array:
    """Codes as an Arrow column of the type."""
    if is_pooled(type_):
        return pool.dictionary(type_).decode(np.ascontiguousarray(codes), valid)
    return decode_plain(codes, valid, type_)


def plain_column(codes: np.ndarray, known: pa.Buffer | None, type_: pa.DataType, nulls: int) -> pa.Array:
    """Codes that nobody else has, the last ones for so many nulls, which the bits `known` tell, as a column: 64-bit
    values stay where they are."""
    n = len(codes) - nulls
    if pa.types.is_primitive(type_) and not pa.types.is_floating(type_) and type_.bit_width == 64:
        return pa.Array.from_buffers(type_, n + nulls, [known, pa.py_buffer(codes)])
    return decode_plain(codes[:n], None, type_, nulls)


@loop
def turned(rows: np.ndarray, words: int, columns: np.ndarray) -> bool:
    """Write the codes of rows column by column, zeros behind them.  Returns whether no row has a null."""
    n = len(rows)
    nulls = np.int64(0)
    for j in range(words):
        for i in range(n):
            nulls |= rows[i, j]
    if nulls != 0:
        return False
    for j in range(len(columns)):
        for i in range(n):
            columns[j, i] = rows[i, words + j]
        for i in range(n, columns.shape[1]):
            columns[j, i] = 0
    return True


def decode_plain(codes: np.ndarray, valid: np.ndarray | None, type_: pa.DataType, nulls: int = 0) -> pa.Array:
    """Codes as a column of values that are their own code, followed by so many nulls."""
    n = len(codes)
    if pa.types.is_null(type_):
        return pa.nulls(n + nulls)
    if pa.types.is_boolean(type_):
        data = np.packbits(np.append(codes != 0, np.zeros(nulls, np.bool_)), bitorder="little")
    elif pa.types.is_floating(type_):
        data = np.zeros(n + nulls, _FLOAT_BY_WIDTH[type_.bit_width])
        data[:n] = np.ascontiguousarray(codes).view(np.float64)
    else:
        kind = _UINT_BY_WIDTH if pa.types.is_unsigned_integer(type_) else _INT_BY_WIDTH
        data = np.zeros(n + nulls, kind[type_.bit_width])
        data[:n] = codes
    return pa.Array.from_buffers(type_, n + nulls, [validity(valid, n, nulls), pa.py_buffer(data)])

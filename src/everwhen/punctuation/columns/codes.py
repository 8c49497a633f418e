"""Constants of patterns as 64-bit codes, and text as a number of cuts: what the flat arrays of promise sets hold.

A coder numbers the constants of one column.  Values that have a rank are their own code; others are numbered as they
come.  `find` never adds: most rows of a stream match no constant.  A `Ruler` is for ranges over byte strings: it holds
the bounds in use in order, and a string's position is how many of them are at or before it, so that a range of strings
is a closed interval of positions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from everwhen.containers.bytes_times import BytesTimes
from everwhen.core.scalars import python_values
from everwhen.punctuation.columns.box_loops import positions
from everwhen.punctuation.values.order import Kind, ValueOrder, order_of
from everwhen.punctuation.values.sets import Run, lowest_key
from everwhen.rows.interner import freeze

_BITS: Final = 63
"""Columns per word that says which are null: the sign bit stays free."""
_NO_BYTES: Final = np.empty(0, np.uint8)


class Codes(Protocol):
    """Constants to codes and back; the code of a null does not matter."""

    def encode(self, column: pa.Array) -> np.ndarray: ...

    def find(self, column: pa.Array) -> np.ndarray:
        """Codes, -1 for what was never encoded (ranks: the rank)."""

    def column(self, codes: np.ndarray) -> pa.Array: ...

    def keep(self, codes: np.ndarray) -> None:
        """Forgets all but these (ascending) codes, which are numbered anew from 0."""

    @property
    def nbytes(self) -> int: ...


class RankCodes:
    """Ranks: every value has one, nothing is kept."""

    def __init__(self, order: ValueOrder) -> None:
        self._order = order

    def encode(self, column: pa.Array) -> np.ndarray:
        return self._order.ranks(column)

    find = encode

    def column(self, codes: np.ndarray) -> pa.Array:
        return self._order.column(codes)

    def keep(self, codes: np.ndarray) -> None:
        pass

    @property
    def nbytes(self) -> int:
        return 0


class ByteCodes:
    """Text, binaries and long decimals, kept as bytes beside each other."""

    def __init__(self, order: ValueOrder) -> None:
        self._order = order
        self._table = BytesTimes()

    def encode(self, column: pa.Array) -> np.ndarray:
        offsets, first, data = self._order.spans(column)
        return self._table.number(offsets, first, len(column), data)

    def find(self, column: pa.Array) -> np.ndarray:
        offsets, first, data = self._order.spans(column)
        return np.maximum(self._table.find(offsets, first, len(column), data), -1)

    def column(self, codes: np.ndarray) -> pa.Array:
        return self._order.column_of_bytes(self._table.entries()[0].take(pa.array(codes)))

    def keep(self, codes: np.ndarray) -> None:
        kept = self._table.entries()[0].take(pa.array(codes))
        self._table = BytesTimes()
        bounds, data = kept.buffers()[1:]
        if bounds is not None and data is not None:
            self._table.number(np.frombuffer(bounds, np.int64), kept.offset, len(kept), np.frombuffer(data, np.uint8))

    @property
    def nbytes(self) -> int:
        return self._table.nbytes


class NestedCodes:
    """Nested values, by what they hash as."""

    def __init__(self, order: ValueOrder) -> None:
        self._type = order.type
        self._codes: dict[Any, int] = {}
        self._values: list[Any] = []

    def encode(self, column: pa.Array) -> np.ndarray:
        values = python_values(column)
        for value in values:
            if value is not None and (key := freeze(value)) not in self._codes:
                self._codes[key] = len(self._values)
                self._values.append(value)
        return self._look_up(values)

    def find(self, column: pa.Array) -> np.ndarray:
        return self._look_up(python_values(column))

    def _look_up(self, values: Sequence[Any]) -> np.ndarray:
        return np.fromiter((self._codes.get(freeze(value), -1) for value in values), np.int64, len(values))

    def column(self, codes: np.ndarray) -> pa.Array:
        return pa.array([self._values[code] for code in codes.tolist()], self._type)

    def keep(self, codes: np.ndarray) -> None:
        self._values = [self._values[code] for code in codes.tolist()]
        self._codes = {freeze(value): code for code, value in enumerate(self._values)}

    @property
    def nbytes(self) -> int:
        return 200 * len(self._values)


def codes_for(type_: pa.DataType) -> Codes:
    order = order_of(type_)
    match order.kind:
        case Kind.RANK:
            return RankCodes(order)
        case Kind.BYTES:
            return ByteCodes(order)
        case Kind.OPAQUE:
            return NestedCodes(order)


class KeyCodes:
    """Several columns as rows of words: which are null, then a code each (0 for a null)."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.codes = [codes_for(type_) for type_ in types]
        self.words = max(1, -(-len(types) // _BITS))
        self.width = self.words + len(types)

    def encode(self, columns: Sequence[pa.Array], n: int) -> np.ndarray:
        return self._rows([codes.encode(column) for codes, column in zip(self.codes, columns, strict=True)], columns, n)

    def find(self, columns: Sequence[pa.Array], n: int) -> np.ndarray:
        """Rows to look up; a value that is unknown has the code -1, which no number has."""
        return self._rows([codes.find(column) for codes, column in zip(self.codes, columns, strict=True)], columns, n)

    def _rows(self, codes: list[np.ndarray], columns: Sequence[pa.Array], n: int) -> np.ndarray:
        rows = np.empty((n, self.width), np.int64)
        rows[:, : self.words] = 0
        for j, (column, found) in enumerate(zip(columns, codes, strict=True)):
            rows[:, self.words + j] = found
            if column.null_count:
                null = column.is_null().to_numpy(zero_copy_only=False)
                rows[:, j // _BITS] |= null.astype(np.int64) << (j % _BITS)
                rows[null, self.words + j] = 0
        return rows

    def columns(self, rows: np.ndarray) -> list[pa.Array]:
        """What rows were made of."""
        found = []
        for j, codes in enumerate(self.codes):
            null = self._null(rows, j)
            values = codes.column(np.ascontiguousarray(rows[~null, self.words + j]))
            at = np.cumsum(~null) - 1
            found.append(values.take(pa.array(at, mask=null)))
        return found

    @property
    def nbytes(self) -> int:
        return sum(codes.nbytes for codes in self.codes)

    def keep(self, rows: np.ndarray) -> np.ndarray:
        """Forgets the constants that no row has; the rows in the new codes."""
        rows = rows.copy()
        for j, codes in enumerate(self.codes):
            if isinstance(codes, RankCodes):
                continue
            held = ~self._null(rows, j)
            used, inverse = np.unique(rows[held, self.words + j], return_inverse=True)
            codes.keep(used)
            rows[held, self.words + j] = inverse
        return rows

    def _null(self, rows: np.ndarray, j: int) -> np.ndarray:
        return (rows[:, j // _BITS] >> (j % _BITS)) & 1 == 1


Moves = tuple[np.ndarray, np.ndarray]
"""Where a position that starts, and one that ends, an interval has gone."""


class Ruler:
    """The bounds of ranges over byte strings, in order."""

    def __init__(self, order: ValueOrder) -> None:
        self._order = order
        self._lowest = lowest_key(order)
        self.cuts: list[bytes] = []
        self._flat: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def last(self) -> int:
        """The last position."""
        return len(self.cuts)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.cuts)) + 64 * len(self.cuts)

    def grow(self, runs: Iterable[Run]) -> Moves | None:
        """Takes the bounds of runs in; where the positions go, if they move."""
        known = set(self.cuts)
        new = {bound for run in runs for bound in run if bound is not None and bound != self._lowest} - known
        if not new:
            return None
        old = self.cuts
        self.cuts = sorted(known | new)
        self._flat = None
        at = {cut: i for i, cut in enumerate(self.cuts)}
        inside = [at[cut] for cut in old]
        return np.array([0, *(i + 1 for i in inside)], np.int64), np.array([*inside, len(self.cuts)], np.int64)

    def shrink(self, used: np.ndarray) -> Moves:
        """Keeps only the cuts with these (ascending) indices; an interval must start and end at one of them."""
        moved = np.searchsorted(used, np.arange(len(self.cuts) + 1))
        ends = moved.copy()
        ends[-1] = len(used)
        starts = np.concatenate((np.zeros(1, np.int64), moved[:-1] + 1))
        self.cuts = [self.cuts[i] for i in used.tolist()]
        self._flat = None
        return starts, ends

    def interval(self, run: Run) -> tuple[int, int]:
        """The positions of a run whose bounds were taken in."""
        lo, hi = run
        start = 0 if lo == self._lowest else bisect_left(self.cuts, lo) + 1
        return start, self.last if hi is None else bisect_left(self.cuts, hi)

    def run(self, lo: int, hi: int) -> Run:
        """The run of an interval of positions."""
        return self._lowest if lo == 0 else self.cuts[lo - 1], None if hi == self.last else self.cuts[hi]

    def positions(self, column: pa.Array) -> np.ndarray:
        if self._flat is None:
            offsets = np.cumsum([0, *map(len, self.cuts)], dtype=np.int64)
            self._flat = offsets, np.frombuffer(b"".join(self.cuts) or b"\0", np.uint8)
        offsets, first, data = self._order.spans(column)
        out = np.empty(len(column), np.int64)
        positions(offsets, first, data if len(data) else _NO_BYTES, *self._flat, out)
        return out

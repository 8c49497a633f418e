"""Values as 64-bit codes, exactly: equal values have equal codes, and a code gives its value back.

Inside the engine a row is a few 64-bit integers.  Integers, booleans, floats and temporal values are their own code;
strings, binaries, decimals and nested values are numbered by a `Dictionary`, one per Arrow type, in an `Interner` that
all operators of a running plan share.  So a string is hashed once, where it enters, and never again.

A dictionary grows with the distinct values seen.  `Interner.collect` drops those that no registered holder still uses;
holders are the tables of operators (`everwhen.containers.key_table`), so operators need not know of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from everwhen.containers.bytes_table import BytesTable

_EMPTY: Final = np.empty(0, np.uint8)
SMALL: Final = 16
"""Up to so many rows, Python objects beat Arrow kernels."""


def freeze(value: Any) -> Any:
    """A hashable stand-in for a nested value, equal exactly for equal values: one NaN, one zero."""
    if isinstance(value, list):
        return tuple(freeze(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, freeze(v)) for k, v in value.items())
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def sort_key(value: Any) -> tuple[Any, ...]:
    """Orders values of one type, nested ones too: nulls first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, list):
        return (1, tuple(sort_key(v) for v in value))
    if isinstance(value, dict):
        return (1, tuple(sort_key(v) for v in value.values()))
    return (2,) if isinstance(value, float) and value != value else (1, value)


def validity(valid: np.ndarray | None, n: int, nulls: int = 0) -> pa.Buffer | None:
    """Arrow's bits for `n` values (None: all are valid) and so many nulls behind them."""
    if not nulls:
        return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if valid is not None:
        return pa.py_buffer(np.packbits(np.append(valid, np.zeros(nulls, np.bool_)), bitorder="little"))
    bits = np.zeros(-(-(n + nulls) // 8), np.uint8)
    bits[: n // 8] = 255
    if n % 8:
        bits[n // 8] = (1 << n % 8) - 1
    return pa.py_buffer(bits)


class Dictionary:
    """Distinct values of one Arrow type, numbered from 0 in the order in which they were first seen."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.nested = pa.types.is_nested(type_) or pa.types.is_map(type_)
        self._codes: dict[Any, int] = {}
        self._values: list[Any] = []
        self._chunks: list[pa.Array] = []
        self._stored = 0

    def __len__(self) -> int:
        return len(self._values)

    def encode(self, array: pa.Array) -> np.ndarray:
        """Codes of the values (null: 0), numbering new ones.  Cost: one hash per distinct value of the batch."""
        if isinstance(array, pa.DictionaryArray):
            indices, values = array.indices, array.dictionary.to_pylist()
        elif len(array) <= SMALL or self.nested:
            return np.array([0 if v is None else self._code(v) for v in array.to_pylist()], np.int64)
        else:
            encoded = array.dictionary_encode()
            indices, values = encoded.indices, encoded.dictionary.to_pylist()
        if indices.null_count:
            indices = indices.fill_null(0)
        if not values:
            return np.zeros(len(array), np.int64)
        codes = np.fromiter(map(self._codes.get, values, repeat(-1)), np.int64, len(values))
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            codes[unknown] = [0 if values[i] is None else self._code(values[i]) for i in unknown.tolist()]
        return codes[indices.to_numpy(zero_copy_only=False)]

    def encode_into(self, rows: np.ndarray, at: int, array: pa.Array) -> None:
        """Write the codes into a column of a matrix."""
        rows[:, at] = self.encode(array)

    def _code(self, value: Any) -> int:
        key = freeze(value) if self.nested else value
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self._values)
            self._values.append(value)
        return code

    def value(self, code: int) -> Any:
        return self._values[code]

    def decode(self, codes: np.ndarray, valid: np.ndarray | None, nulls: int = 0) -> pa.Array:
        """The values of codes; rows that are not valid become null, and so many nulls follow."""
        if nulls:
            return pa.concat_arrays([self.decode(codes, valid), pa.nulls(nulls, self.type)])
        if len(codes) <= SMALL or self.nested:
            picked = [self._values[c] for c in codes.tolist()] if self._values else [None] * len(codes)
            if valid is not None:
                picked = [v if ok else None for v, ok in zip(picked, valid.tolist(), strict=True)]
            return pa.array(picked, self.type)
        indices = pa.array(codes, mask=None if valid is None else ~valid)
        chunks = self._arrow()
        if len(chunks) == 1:
            return chunks[0].take(indices)
        if not chunks:
            return pa.nulls(len(codes), self.type)
        taken = pa.chunked_array(chunks, self.type).take(indices)
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken

    def _arrow(self) -> list[pa.Array]:
        """The values as Arrow chunks whose sizes at least double towards the front, so that appending is cheap."""
        if self._stored < len(self._values):
            self._chunks.append(pa.array(self._values[self._stored :], self.type))
            self._stored = len(self._values)
            while len(self._chunks) > 1 and len(self._chunks[-2]) < 2 * len(self._chunks[-1]):
                last = self._chunks.pop()
                self._chunks[-1] = pa.concat_arrays([self._chunks[-1], last])
        return self._chunks

    def ranks(self, codes: np.ndarray) -> np.ndarray:
        """For each code the position of its value among the values of `codes`, in their natural order."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        values = [self.value(c) for c in distinct.tolist()]
        order = sorted(range(len(values)), key=lambda i: sort_key(values[i]))
        rank = np.empty(len(values), np.int64)
        rank[order] = np.arange(len(values))
        return rank[inverse]

    def keep(self, used: np.ndarray) -> np.ndarray:
        """Drop all values but those marked; the new code of each old one (unused: 0)."""
        kept = np.flatnonzero(used)
        new_codes = np.zeros(len(self._values), np.int64)
        new_codes[kept] = np.arange(len(kept))
        self._values = [self._values[i] for i in kept.tolist()]
        self._codes = {freeze(v) if self.nested else v: i for i, v in enumerate(self._values)}
        self._chunks, self._stored = [], 0
        return new_codes


class Holder(Protocol):
    """Whatever keeps coded rows between steps."""

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        """Matrices of rows in use with their pooled columns: (column index, type) each.  They are changed in place."""

    def recoded(self) -> None:
        """Called after codes were changed in place (hashes must be made anew)."""


class TextDictionary(Dictionary):
    """Strings and binaries, kept as bytes beside each other."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._table = BytesTable()
        self._text = pa.types.is_string(type_)

    def __len__(self) -> int:
        return self._table.count

    @property
    def strings(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the bytes of each code begin (those of the next one behind it), and the bytes."""
        return self._table.strings

    def encode(self, array: pa.Array) -> np.ndarray:
        if isinstance(array, pa.DictionaryArray):
            if not len(array.dictionary):
                return np.zeros(len(array), np.int64)
            codes = self.encode(array.dictionary.cast(self.type))
            indices = array.indices.fill_null(0) if array.indices.null_count else array.indices
            return codes[indices.to_numpy(zero_copy_only=False)]
        codes = np.empty((len(array), 1), np.int64)
        self.encode_into(codes, 0, array)
        return codes[:, 0]

    def encode_into(self, rows: np.ndarray, at: int, array: pa.Array) -> None:
        if isinstance(array, pa.DictionaryArray):
            rows[:, at] = self.encode(array)
        elif len(array):
            _, offsets, data = array.buffers()
            bounds = np.frombuffer(offsets, np.int32, array.offset + len(array) + 1)
            text = _EMPTY if data is None else np.frombuffer(data, np.uint8)
            self._table.encode_into(rows, at, bounds, array.offset, len(array), text)

    def value(self, code: int) -> Any:
        raw = self._table.value(code)
        return raw.decode() if self._text else raw

    def decode(self, codes: np.ndarray, valid: np.ndarray | None, nulls: int = 0) -> pa.Array:
        if not len(self):
            return pa.nulls(len(codes) + nulls, self.type)
        return self._table.decode(codes, self.type, validity(valid, len(codes), nulls), nulls)

    def keep(self, used: np.ndarray) -> np.ndarray:
        kept = np.flatnonzero(used)
        new_codes = np.zeros(len(used), np.int64)
        new_codes[kept] = np.arange(len(kept))
        self._table.keep(kept)
        return new_codes


def is_pooled(type_: pa.DataType) -> bool:
    """Whether values of the type need a dictionary."""
    return not (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date(type_)
        or pa.types.is_time(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_duration(type_)
        or pa.types.is_null(type_)
    )


class Interner:
    """The dictionaries of a running plan."""

    def __init__(self) -> None:
        self._dictionaries: dict[pa.DataType, Dictionary] = {}
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._next_collection = 1 << 16

    def dictionary(self, type_: pa.DataType) -> Dictionary:
        if type_ not in self._dictionaries:
            text = pa.types.is_string(type_) or pa.types.is_binary(type_)
            self._dictionaries[type_] = TextDictionary(type_) if text else Dictionary(type_)
        return self._dictionaries[type_]

    def register(self, holder: Holder) -> None:
        self._holders.add(holder)

    @property
    def size(self) -> int:
        """Distinct values kept."""
        return sum(map(len, self._dictionaries.values()))

    def collect(self, force: bool = False) -> int:
        """Drop values that no holder uses.  Call it only between steps.  Amortised: it waits until the pool doubled."""
        if not force and self.size < self._next_collection:
            return 0
        before = self.size
        used = {type_: np.zeros(len(d), np.bool_) for type_, d in self._dictionaries.items()}
        held = [matrix for holder in self._holders for matrix in holder.coded()]
        for matrix, columns in held:
            for column, type_ in columns:
                if type_ in used and len(used[type_]):
                    used[type_][matrix[:, column]] = True
        remap = {type_: self._dictionaries[type_].keep(marks) for type_, marks in used.items()}
        for matrix, columns in held:
            for column, type_ in columns:
                if type_ in remap and len(remap[type_]):
                    matrix[:, column] = remap[type_][matrix[:, column]]
        for holder in self._holders:
            holder.recoded()
        self._next_collection = max(1 << 16, 2 * self.size)
        return before - self.size

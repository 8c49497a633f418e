"""Distinct values of any type, numbered: Python objects, hashed by what is equal exactly for equal values.

Text has a dictionary of its own (`interner.py`).
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

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

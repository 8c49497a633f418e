"""The order of pooled values: a label for each code that compares as its value does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.model.arrays import grown
from everwhen.model.pool import Dictionary

_SHORT = 18
"""Decimals of so many digits are 64-bit integers."""


class ValueRanks:
    """Labels of the codes that have been noted.  Those of short decimals stay; others are made anew for new values."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self.clear()

    def clear(self) -> None:
        """Forget all codes."""
        self.labels = np.zeros(1, np.int64)
        self._noted = np.zeros(1, np.bool_)

    def note(self, codes: np.ndarray) -> bool:
        """Let there be labels for these codes, all of which the dictionary has; whether any is new."""
        size = max(len(self._dictionary), 1)
        if size > len(self.labels):
            size = max(size, 2 * len(self.labels))
            self.labels, self._noted = grown(self.labels, size, 0), grown(self._noted, size, 0)
        unknown = codes[~self._noted[codes]]
        if not len(unknown) or not len(self._dictionary):
            return False
        type_, unknown = self._dictionary.type, np.unique(unknown)
        self._noted[unknown] = True
        if pa.types.is_decimal(type_) and type_.precision <= _SHORT:
            values = self._dictionary.decode(unknown, None).cast(pa.decimal128(38, type_.scale))
            parts = np.frombuffer(values.buffers()[1], np.int64, 2 * (values.offset + len(values)))
            self.labels[unknown] = parts[2 * values.offset :: 2]
            return True
        known = np.flatnonzero(self._noted)
        if pa.types.is_decimal(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_):
            order = pc.array_sort_indices(self._dictionary.decode(known, None)).to_numpy(zero_copy_only=False)
            self.labels[known[order]] = np.arange(len(known))
        else:
            self.labels[known] = self._dictionary.ranks(known)
        return True

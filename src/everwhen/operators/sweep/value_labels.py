"""Labels: integers that compare as the values of a type do, and the codes whose labels they are."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.rows.dictionary import Dictionary
from everwhen.rows.interner import Interner, is_pooled

_LOWEST: Final = np.int64(-(2**63))
_REST: Final = np.int64(2**63 - 1)


class Labels:
    """Codes that are their own labels: whole numbers, times, and whatever is only told from others."""

    ranked = False

    def of(self, codes: np.ndarray) -> np.ndarray:
        return codes

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """The codes of labels; 0 may stand where there is none."""
        return labels


class FloatLabels(Labels):
    def of(self, codes: np.ndarray) -> np.ndarray:
        return np.where(codes < 0, codes ^ _REST, codes)

    def codes(self, labels: np.ndarray) -> np.ndarray:
        return self.of(labels)


class UnsignedLabels(Labels):
    def of(self, codes: np.ndarray) -> np.ndarray:
        return codes ^ _LOWEST

    def codes(self, labels: np.ndarray) -> np.ndarray:
        return self.of(labels)


class RankedLabels(Labels):
    """Pooled values by their rank among those that have been noted: a new one changes the labels of others."""

    ranked = True

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self.clear()

    def clear(self) -> None:
        """Forget all codes."""
        self._label = np.full(1, -1, np.int64)
        self._code = np.empty(0, np.int64)  # by label

    @property
    def count(self) -> int:
        """How many codes have labels."""
        return len(self._code)

    @property
    def by_code(self) -> np.ndarray:
        """The label of each code, -1 where it has none."""
        return self._label

    def note(self, codes: np.ndarray) -> np.ndarray | None:
        """Let codes have labels; if others change by that, the new label of each old one."""
        size = len(self._dictionary)
        if not size:
            return None
        if size > len(self._label):
            more = np.full(max(size, 2 * len(self._label)) - len(self._label), -1, np.int64)
            self._label = np.concatenate([self._label, more])
        unknown = codes[self._label[codes] < 0]
        if not len(unknown):
            return None
        type_, before = self._dictionary.type, self._code
        known = np.concatenate([before, np.unique(unknown)])
        if pa.types.is_decimal(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_):
            order = pc.array_sort_indices(self._dictionary.decode(known, None)).to_numpy(zero_copy_only=False)
            self._code = known[order.astype(np.int64)]
        else:
            self._code = known[np.argsort(self._dictionary.ranks(known))]
        self._label[self._code] = np.arange(len(self._code))
        return self._label[before] if len(before) else None

    def of(self, codes: np.ndarray) -> np.ndarray:
        return self._label[codes]

    def codes(self, labels: np.ndarray) -> np.ndarray:
        return np.where(labels < 0, 0, self._code[labels]) if len(self._code) else np.zeros_like(labels)


def labels_of(type_: pa.DataType | None, ordered: bool, pool: Interner) -> Labels:
    """The labels of a type (None: numbers of our own); if it is not `ordered`, values are only told from each other."""
    if type_ is None or not ordered:
        return Labels()
    if is_pooled(type_):
        return RankedLabels(pool.dictionary(type_))
    if pa.types.is_floating(type_):
        return FloatLabels()
    unsigned = pa.types.is_unsigned_integer(type_) and type_.bit_width == 64
    return UnsignedLabels() if unsigned else Labels()

"""The order of rows as the arrays that loops take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.ranks.rank import Ordering
from everwhen.operators.rank.loops.order import BINARY, FLOATS, RANKED, SIGNED, TEXT, UNSIGNED, Order
from everwhen.operators.sweep.value_labels import RankedLabels
from everwhen.rows.codec import BITS, RowCodec
from everwhen.rows.interner import TextDictionary, is_pooled

_NO_BYTES: Final = np.zeros(1, np.uint8)
_NO_STARTS: Final = np.zeros(2, np.int64)


class RowOrder:
    """Rows of a codec by some columns, then by others in the order of values, nulls first.

    Texts are compared as they are; decimals and nested values by ranks among those that have been noted.
    """

    def __init__(self, order: Sequence[Ordering], ties: Sequence[str], codec: RowCodec, first_word: int) -> None:
        self._pool = codec.pool
        self._ranked: list[pa.DataType] = []
        columns = []
        for name, falling, nulls_first in (*order, *((name, False, True) for name in ties)):
            j = codec.schema.index(name)
            at = (first_word + codec.words + j, first_word + j // BITS, j % BITS)
            columns.append((*at, self._kind(codec.schema.types[j]), int(falling), int(nulls_first)))
        self._columns = np.array(columns, np.int64).reshape(-1, 6)
        self._labels = [RankedLabels(codec.pool.dictionary(type_)) for type_ in self._ranked]
        self._words = [[at for at, type_ in codec.pooled if type_ == mine] for mine in self._ranked]
        self._ranks = np.zeros(1, np.int64), np.zeros(max(1, len(self._ranked)), np.int64)

    def _kind(self, type_: pa.DataType) -> int:
        if pa.types.is_string(type_):
            return TEXT
        if pa.types.is_binary(type_):
            return BINARY
        if is_pooled(type_):
            if type_ not in self._ranked:
                self._ranked.append(type_)
            return RANKED + self._ranked.index(type_)
        if pa.types.is_floating(type_):
            return FLOATS
        return UNSIGNED if type_ == pa.uint64() else SIGNED

    def note(self, rows: np.ndarray) -> None:
        """Let the values of coded rows have ranks."""
        sizes = [labels.count for labels in self._labels]
        for labels, words in zip(self._labels, self._words, strict=True):
            codes = [np.unique(rows[:, word]) for word in words if len(rows)]
            if codes:
                labels.note(np.concatenate(codes))
        if sizes != [labels.count for labels in self._labels]:
            ranks = [labels.by_code for labels in self._labels]
            places = np.concatenate([[0], np.cumsum([len(each) for each in ranks])[:-1]]).astype(np.int64)
            self._ranks = np.concatenate(ranks), places

    def forget(self) -> None:
        """Codes have changed: values are to be noted anew."""
        for labels in self._labels:
            labels.clear()

    @property
    def arrays(self) -> Order:
        """What loops compare by; it holds until something new is coded."""
        return Order(self._columns, *self._ranks, *self._bytes(pa.string()), *self._bytes(pa.binary()))

    def _bytes(self, type_: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
        dictionary = self._pool.dictionary(type_)
        assert isinstance(dictionary, TextDictionary)
        return dictionary.strings if len(dictionary) else (_NO_STARTS, _NO_BYTES)

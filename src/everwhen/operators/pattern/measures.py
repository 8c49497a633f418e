"""What a match says: the columns of its partition and the measures, as rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everwhen.algebra.expressions.build import Column
from everwhen.algebra.nodes import MatchRecognize
from everwhen.algebra.patterns import instructions
from everwhen.algebra.patterns.program import Reading
from everwhen.operators.pattern.loops.changes import joined
from everwhen.operators.pattern.loops.search import FOUND, FOUND_HI, FOUND_KEY, FOUND_LO, FOUND_ROW
from everwhen.rows.changes import Changes
from everwhen.rows.codec import BITS, RowCodec, decode_column, encode_column, float_codes

Found = tuple[np.ndarray, np.ndarray]
"""Codes, and which of them are values."""


class Measures:
    """The answer's rows of matches."""

    def __init__(self, node: MatchRecognize, codec: RowCodec, slots: np.ndarray) -> None:
        self.codec = codec
        self._keys = len(node.partition)
        self._measures = [measure for _, measure in node.measures]
        self._readings = node.program.readings
        self._slots = slots

    def changes(self, found: np.ndarray, pool: np.ndarray, keys: np.ndarray, key_codec: RowCodec, sign: int) -> Changes:
        """Matches as segments; those of one first row that follow each other and say the same are one."""
        codec = self.codec
        rows = np.zeros((len(found), codec.width), np.int64)
        mine = keys[found[:, FOUND_KEY]]
        for j in range(self._keys):
            valid = key_codec.valid(mine, j)
            codes = mine[:, key_codec.words + j]
            self._put(rows, j, codes, np.ones(len(rows), np.bool_) if valid is None else valid)
        terms: dict[str, Found] = {}
        for at, measure in enumerate(self._measures):
            for name in measure.columns():
                if name not in terms:
                    terms[name] = _read(self._readings[name], found, pool, self._slots)
            if isinstance(measure, Column):
                codes, valid = terms[measure.name]
            else:
                codes, valid = self._computed(at, terms, len(found))
            self._put(rows, self._keys + at, codes, valid)
        lo, hi = found[:, FOUND_LO].copy(), found[:, FOUND_HI].copy()
        owner = found[:, FOUND_ROW]
        if len(found) > 1:
            # pieces of one first row stand together
            order = np.lexsort((lo, owner))
            lo, hi, rows, owner = lo[order], hi[order], rows[order], owner[order]
            keep = np.empty(len(lo), np.int64)
            if joined(lo, hi, owner, rows, keep) < len(lo):
                kept = keep == 1
                lo, hi, rows = lo[kept], hi[kept], rows[kept]
        return Changes(codec, lo, hi, np.full(len(lo), sign, np.int64), rows)

    def _put(self, rows: np.ndarray, j: int, codes: np.ndarray, valid: np.ndarray) -> None:
        rows[:, self.codec.words + j] = np.where(valid, codes, 0)
        rows[:, j // BITS] |= (~valid).astype(np.int64) << (j % BITS)

    def _computed(self, at: int, terms: dict[str, Found], n: int) -> Found:
        measure, pool = self._measures[at], self.codec.pool
        columns: dict[str, pa.Array] = {}
        for name in measure.columns():
            codes, valid = terms[name]
            columns[name] = decode_column(np.where(valid, codes, 0), valid, self._readings[name].type, pool)
        values = measure.evaluate(columns, n)
        type_ = self.codec.schema.types[self._keys + at]
        return encode_column(values, type_, pool), values.is_valid().to_numpy(zero_copy_only=False)


def _read(reading: Reading, found: np.ndarray, pool: np.ndarray, slots: np.ndarray) -> Found:
    """A term of matches: from a row, or from what was counted and added."""
    words = found[:, FOUND + reading.word]
    if reading.op == instructions.AT:
        word, null_word, bit = slots[reading.slot].tolist()
        at = np.maximum(words, 0)
        return pool[at, word], (words >= 0) & ((pool[at, null_word] >> bit) & 1 == 0)
    if reading.op == instructions.COUNTED:
        return words, np.ones(len(found), np.bool_)
    count = found[:, FOUND + reading.word + 1]
    some = count > 0
    if reading.op == instructions.SUMMED:
        return (float_codes(words.copy().view(np.float64)) if pa.types.is_floating(reading.type) else words), some
    total = words.astype(np.float64) if reading.op == instructions.AVG_I else words.copy().view(np.float64)
    return float_codes(total / np.maximum(count, 1)), some

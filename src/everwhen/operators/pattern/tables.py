"""A pattern's program as the tables that loops take, and the values of slots, by columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.expressions.build import Column, Expr
from everwhen.algebra.nodes import MatchRecognize
from everwhen.algebra.patterns import instructions
from everwhen.algebra.patterns.program import Program
from everwhen.operators.pattern.loops.layout import BITS, NULLS, PLACES_PER_WORD, ROW, Machine, Order, States
from everwhen.operators.stateless.linear import evaluate
from everwhen.operators.sweep.value_labels import RankedLabels
from everwhen.rows.codec import BITS as COLUMNS_PER_WORD
from everwhen.rows.codec import RowCodec, encode_column
from everwhen.rows.interner import is_pooled

_POSITIONS: Final = (instructions.FIRST, instructions.LAST, instructions.MIN, instructions.MAX)


def states(program: Program) -> States:
    """The automaton in bits."""
    found = program.automaton
    n = len(found.labels)
    words = n // PLACES_PER_WORD + 1
    follow = np.zeros((n + 1, words), np.int64)
    labels = np.zeros((len(program.variables), words), np.int64)
    ends, going = np.zeros(words, np.int64), np.zeros(words, np.int64)

    def put(row: np.ndarray, place: int) -> None:
        row[place // PLACES_PER_WORD] |= np.int64(1) << (place % PLACES_PER_WORD)

    for place in range(n):
        put(labels[found.labels[place]], place)
        for each in found.follow[place]:
            put(follow[place], each)
        if found.follow[place]:
            put(going, place)
        if place in found.accepting:
            put(ends, place)
    for each in found.first:
        put(follow[n], each)
    return States(follow, labels, ends, going)


class RowTables:
    """Records of rows of a codec: the row, the bits of conditions, the computed slots."""

    def __init__(self, node: MatchRecognize, codec: RowCodec) -> None:
        self.codec = codec
        self.program = program = node.program
        self._computed = [at for at, slot in enumerate(program.slots) if not isinstance(slot, Column)]
        self.width = ROW + codec.width + len(self._computed)
        behind = {at: number for number, at in enumerate(self._computed)}
        slots = []
        for at, slot in enumerate(program.slots):
            if isinstance(slot, Column):
                slots.append(self._place(codec.schema.index(slot.name)))
            else:
                slots.append((ROW + codec.width + behind[at], NULLS, behind[at]))
        self.slots = np.array(slots, np.int64).reshape(-1, 3)
        self.pooled: tuple[tuple[int, pa.DataType], ...] = (
            *((ROW + at, type_) for at, type_ in codec.pooled),
            *((ROW + codec.width + n, program.slot_types[at]) for n, at in enumerate(self._computed)
              if is_pooled(program.slot_types[at])),
        )  # fmt: skip
        self._free = sum(1 << variable for variable, condition in enumerate(program.bits) if condition is None)
        self._conditions = _together(program.bits)
        self.machine = self._machine()
        self.ranking = Ranking(node, self)

    def _place(self, j: int) -> tuple[int, int, int]:
        """The word of a column, and the word and the bit of its null."""
        return ROW + self.codec.words + j, ROW + j // COLUMNS_PER_WORD, j % COLUMNS_PER_WORD

    def _machine(self) -> Machine:
        program = self.program
        code = np.array([word for part in program.code for word in part], np.int64).reshape(-1, instructions.WIDTH)
        lengths = [len(part) // instructions.WIDTH for part in program.code]
        constants = np.array([word for word, _ in program.constants] or [0], np.int64)
        registers = [(r.kind, r.variable, r.slot, r.word, r.order) for r in program.registers]
        initial = np.zeros(program.words, np.int64)
        for each in program.registers:
            if each.kind in _POSITIONS:
                initial[each.word] = -1
        return Machine(
            code, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), constants, constants.view(np.float64),
            np.array([null for _, null in program.constants] or [False], np.int64), self.slots,
            np.array(registers, np.int64).reshape(-1, 5), initial, program.carried, int(program.looks_back),
            sum(1 << variable for variable in {program.automaton.labels[place] for place in program.automaton.first}),
        )  # fmt: skip

    def records(self, lo: np.ndarray, hi: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Rows of the codec with their lifetimes as records."""
        n = len(rows)
        found = np.zeros((n, self.width), np.int64)
        found[:, 0], found[:, 1] = lo, hi
        found[:, ROW : ROW + self.codec.width] = rows
        bits = np.full(n, self._free, np.int64)
        for condition, variables in self._conditions:
            verdict = evaluate(condition, self.codec, rows)
            verdict = verdict.fill_null(False) if verdict.null_count else verdict
            bits |= np.where(verdict.to_numpy(zero_copy_only=False), variables, 0)
        found[:, BITS] = bits
        for number, at in enumerate(self._computed):
            values = evaluate(self.program.slots[at], self.codec, rows)
            codes = encode_column(values, self.program.slot_types[at], self.codec.pool)
            if values.null_count:
                missing = values.is_null().to_numpy(zero_copy_only=False)
                codes = np.where(missing, 0, codes)
                found[:, NULLS] |= missing.astype(np.int64) << number
            found[:, ROW + self.codec.width + number] = codes
        return found


def _together(conditions: Sequence[Expr | None]) -> list[tuple[Expr, int]]:
    """Different conditions, with the variables that have them, in bits."""
    found: list[tuple[Expr, int]] = []
    for variable, condition in enumerate(conditions):
        if condition is None:
            continue
        for at, (known, variables) in enumerate(found):
            if known.equals(condition):
                found[at] = known, variables | 1 << variable
                break
        else:
            found.append((condition, 1 << variable))
    return found


class Ranking:
    """The order of rows, and ranks of values that codes do not tell: made when they are first needed."""

    def __init__(self, node: MatchRecognize, tables: RowTables) -> None:
        codec, program = tables.codec, tables.program
        self._types = list(program.ranked)
        self._always = len(self._types)  # conditions compare these
        columns = []
        for name, falling in (*node.order, *((name, None) for name in node.ties)):
            j = codec.schema.index(name)
            type_ = codec.schema.types[j]
            columns.append((*tables._place(j), self._order(type_), int(bool(falling)), int(falling is None)))
        self._columns = np.array(columns, np.int64).reshape(-1, 6)
        self._labels = [RankedLabels(codec.pool.dictionary(type_)) for type_ in self._types]
        self._words = [[at for at, type_ in tables.pooled if type_ == mine] for mine in self._types]
        self._known = [False] * len(self._types)
        self._sizes = [0] * len(self._types)
        self._arrays = np.zeros(1, np.int64), np.full(max(1, len(self._types)), -1, np.int64)

    def _order(self, type_: pa.DataType) -> int:
        if is_pooled(type_):
            if type_ not in self._types:
                self._types.append(type_)
            return instructions.RANKED + self._types.index(type_)
        if pa.types.is_floating(type_):
            return instructions.FLOATS
        return instructions.UNSIGNED if type_ == pa.uint64() else instructions.SIGNED

    @property
    def order(self) -> Order:
        return Order(self._columns, *self._arrays)

    def need(self) -> None:
        """Ranks of all types are needed from now on."""
        self._known = [True] * len(self._types)

    def note(self, *records: np.ndarray) -> None:
        """Let the values of records have ranks, where these are needed."""
        changed = False
        for at, labels in enumerate(self._labels):
            if not (self._known[at] or at < self._always):
                continue
            self._known[at] = True
            codes = [np.unique(matrix[:, word]) for matrix in records for word in self._words[at] if len(matrix)]
            if not codes:
                continue
            before = self._sizes[at]
            labels.note(np.concatenate(codes))
            self._sizes[at] = labels.count
            changed |= labels.count != before
        if changed:
            self._concatenate()

    def _concatenate(self) -> None:
        found, places, end = [], [], 0
        for labels, known in zip(self._labels, self._known, strict=True):
            ranks = labels.by_code if known else np.empty(0, np.int64)
            places.append(end if known and len(ranks) else -1)
            found.append(ranks)
            end += len(ranks)
        self._arrays = np.concatenate([*found, np.zeros(1, np.int64)]), np.array(places or [-1], np.int64)

    def forget(self) -> None:
        """Codes have changed: ranks are to be noted anew."""
        for labels in self._labels:
            labels.clear()
        self._sizes = [0] * len(self._sizes)
        self._arrays = np.zeros(1, np.int64), np.full(max(1, len(self._types)), -1, np.int64)

"""Schemes of keys and lists as state machines; the contract is that of `scheme_machines`.

What each keeps: `Unique` the keys that have come (as promises, unless a host keeps them); `Complete` the largest group
of each unit, or, where rows are counted, how many each unit has reported of every group that is not over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation, Range
from everwhen.core.scalars import python_values
from everwhen.core.schema import Schema
from everwhen.operators.punctuate.complete_keys import low_water
from everwhen.operators.punctuate.order_schemes import Broken, Columns, Machine, Observed, Over, key_promises
from everwhen.punctuation.schemes import Complete, Unique
from everwhen.values.columns import joined, numbered, ranked
from everwhen.values.order import constants, plain


class UniqueMachine(Machine):
    """Keeps the keys that have come, unless a host keeps the promises made of them."""

    def __init__(self, scheme: Unique, schema: Schema, hosted: bool) -> None:
        self._scheme = scheme
        self._over = Over(schema, scheme.columns, hosted)
        self._fresh: list[Punctuation] = []

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        self._fresh = []
        if not length:
            return Observed()
        key = [plain(columns[name]) for name in self._scheme.key]
        _, first = np.unique(numbered(key, length), return_index=True)
        at = self._over.first(columns, length)
        if len(first) < length:
            again = np.ones(length, np.bool_)
            again[first] = False
            at = min(at, int(np.argmax(again)))
        if at < length:
            row = _shown(self._scheme.key, key, at)
            return Observed(broken=Broken(at, f"a second row with {row} on a stream with {self._scheme}", _REMEDY))
        self._fresh = key_promises(self._scheme.key, key)
        return Observed(self._fresh)

    def settle(self) -> None:
        self._over.add(self._fresh)
        self._fresh = []

    @property
    def nbytes(self) -> int:
        return self._over.nbytes

    def snapshot(self) -> dict[str, Any]:
        return {"over": self._over.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self._over.restore(state["over"])


_REMEDY = "an adjust is a second element of its row, too: a stream that corrects rows has no UNIQUE punctuation"


class ListedMachine(Machine):
    """COMPLETE without EACH: keeps the largest group of each unit."""

    def __init__(self, scheme: Complete, schema: Schema) -> None:
        self._scheme = scheme
        self._units = constants(scheme.units, schema.field(scheme.unit).type)
        self._tops = [pa.nulls(len(self._units), schema.field(name).type) for name in scheme.group]
        self._low: tuple[Any, ...] | None = None
        self._next: tuple[list[pa.Array], tuple[Any, ...] | None] = self._tops, self._low

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        size = len(self._units)
        group = [joined(top, columns[name]) for top, name in zip(self._tops, self._scheme.group, strict=True)]
        numbers, missing = ranked(group, size + length)
        # a row with a null behind a value may stand before all that comes, but reports no group
        rows = np.flatnonzero(~missing[size:]) if len(group) == 1 else np.arange(length)
        values, place = numbers[size:][rows], size + rows
        unit = np.where(missing[size:], -1, _units(columns[self._scheme.unit], self._units))[rows]
        tops, at, reached = numbers[:size].copy(), np.arange(size), ~missing[:size]
        if ordered:
            broken, last = low_water(values, unit, place, tops, at, reached, True)
        else:
            nobody = np.full(len(unit), -1, np.int64)
            broken, _ = low_water(values, nobody, place, tops, at, reached, True)
            _, last = low_water(values, unit, place, tops, at, reached, False)
        self._next = self._tops, self._low
        if broken >= 0:
            i = int(rows[broken])
            row = _shown(self._scheme.group, [part.slice(size) for part in group], i)
            problem = f"{row}, after every {self._scheme.unit} has reported a later one, on a stream with"
            return Observed(broken=Broken(i, f"{problem} {self._scheme}"))
        picked = pa.array(at)
        low = None if last < 0 else tuple(python_values(part.take(picked[last : last + 1]))[0] for part in group)
        self._next = [part.take(picked) for part in group], low
        return Observed([] if low is None or low == self._low else self._promises(low))

    def _promises(self, low: tuple[Any, ...]) -> list[Punctuation]:
        """Everything that stands before the group in the order of the columns."""
        found = []
        for j, (name, value) in enumerate(zip(self._scheme.group, low, strict=True)):
            match: dict[str, AttributePattern] = {
                n: OneOf((v,)) for n, v in zip(self._scheme.group[:j], low[:j], strict=True)
            }
            found.append(Punctuation({**match, name: Range(lt=value)}))
        return found

    def settle(self) -> None:
        self._tops, self._low = self._next

    @property
    def nbytes(self) -> int:
        return sum(top.nbytes for top in self._tops)

    def snapshot(self) -> dict[str, Any]:
        return {"tops": list(self._tops), "low": self._low}

    def restore(self, state: dict[str, Any]) -> None:
        self._next = self._tops, self._low = list(state["tops"]), state["low"]


class CountedMachine(Machine):
    """COMPLETE … EACH n: keeps, per group that is not over, how many rows each unit has reported."""

    def __init__(self, scheme: Complete, schema: Schema, hosted: bool) -> None:
        assert scheme.each is not None
        self._scheme = scheme
        self._each = scheme.each
        self._units = constants(scheme.units, schema.field(scheme.unit).type)
        self._over = Over(schema, scheme.group, hosted)
        # one entry per group and unit: the group's values, the unit's number, the rows
        self._groups = [pa.array([], schema.field(name).type) for name in scheme.group]
        self._unit = self._count = np.empty(0, np.int64)
        self._next = self._groups, self._unit, self._count
        self._fresh: list[Punctuation] = []

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        self._fresh, self._next = [], (self._groups, self._unit, self._count)
        if not length:
            return Observed()
        known = len(self._unit)
        group = [joined(old, columns[name]) for old, name in zip(self._groups, self._scheme.group, strict=True)]
        ids = numbered(group, known + length)
        unit = np.concatenate([self._unit, _units(columns[self._scheme.unit], self._units)])
        count = np.concatenate([self._count, np.ones(length, np.int64)])
        # entries of one group and unit stand together, in the order in which they came; behind each the sum so far
        some = np.flatnonzero(unit >= 0)
        order = some[np.lexsort((some, unit[some], ids[some]))]
        pair = ids[order] * len(self._units) + unit[order]
        begins = np.concatenate([[True], pair[1:] != pair[:-1]]) if len(pair) else np.zeros(0, np.bool_)
        total = np.cumsum(count[order])
        start = np.flatnonzero(begins)
        sums = total - np.repeat(total[start] - count[order][start], np.diff(np.append(start, len(pair))))
        there = (sums >= self._each) & (sums - count[order] < self._each)  # the row that makes a unit's number full
        full = np.bincount(ids[order[there]], minlength=int(ids.max()) + 1) == len(self._units)
        closed_at = np.full(len(full), -1, np.int64)
        np.maximum.at(closed_at, ids[order[there]], order[there])
        at = self._over.first(columns, length)
        if ordered:
            late = full[ids[known:]] & (np.arange(known, known + length) > closed_at[ids[known:]])
            at = min(at, int(np.argmax(late)) if late.any() else length)
        if at < length:
            row = _shown(self._scheme.group, [part.slice(known) for part in group], at)
            problem = f"{row}, after every {self._scheme.unit} has reported its {self._each}, on a stream with "
            return Observed(broken=Broken(at, f"{problem}{self._scheme}"))
        ends = np.append(start[1:], len(pair)) - 1 if len(start) else start
        kept = ends[~full[ids[order[ends]]]]
        left = order[kept]
        rows = pa.array(left)
        self._next = [part.take(rows) for part in group], unit[left], np.minimum(sums[kept], self._each)
        _, firsts = np.unique(ids, return_index=True)
        self._fresh = key_promises(self._scheme.group, [part.take(pa.array(firsts[full])) for part in group])
        return Observed(self._fresh)

    def settle(self) -> None:
        self._groups, self._unit, self._count = self._next
        self._over.add(self._fresh)
        self._fresh = []

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._groups) + self._unit.nbytes + self._count.nbytes + self._over.nbytes

    def snapshot(self) -> dict[str, Any]:
        return {"groups": list(self._groups), "unit": self._unit, "count": self._count, "over": self._over.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self._groups, self._unit, self._count = list(state["groups"]), state["unit"], state["count"]
        self._next = self._groups, self._unit, self._count
        self._over.restore(state["over"])


def _units(column: pa.Array, units: pa.Array) -> np.ndarray:
    """Which unit of the list each row is from; -1 for none."""
    found = pc.index_in(plain(column), value_set=units, skip_nulls=True)
    return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _shown(names: Sequence[str], columns: Sequence[pa.Array], at: int) -> str:
    values = [python_values(plain(column).slice(at, 1))[0] for column in columns]
    return ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=True))

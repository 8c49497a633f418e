"""The punctuation that binds several columns: lists, by the columns that are bound to constants and to ranges.

The constants of a punctuation are its key.  Behind a key stand boxes, one run per ranged column: `item = 7 and
hour < 4` and `item = 7 and 4 <= hour < 9` have the same key and become one box.  A row finds its key by a look-up per
column and is compared with all boxes of it.  A product of long lists (`a in (…) and b in (…)`, more than 4096
combinations) is kept as it is and compared with every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.punctuation.columns.column import ColumnStore
from everwhen.punctuation.columns.constants import constants_for
from everwhen.punctuation.columns.steps import Cuts
from everwhen.punctuation.parts import parts_of, shown
from everwhen.values.order import Kind, constants, order_of
from everwhen.values.sets import Run, spans_of

_NULL: Final = -1
"""The code of a null."""


class Shape(NamedTuple):
    """Which columns are bound to constants and which to ranges, in the order of the schema."""

    constants: tuple[str, ...]
    ranges: tuple[str, ...]


def shape_of(match: Mapping[str, AttributePattern]) -> Shape | None:
    """The shape of patterns, each a constant or a range; None: one of them is a list."""
    lists = {name: pattern.values for name, pattern in match.items() if isinstance(pattern, OneOf)}
    if any(len(values) != 1 for values in lists.values()):
        return None
    return Shape(tuple(lists), tuple(name for name in match if name not in lists))


class Box(NamedTuple):
    """A run per ranged column, and a time."""

    runs: tuple[Run, ...]
    t: int

    def within(self, other: Box) -> bool:
        return all(lo >= low and _upto(hi, high) for (lo, hi), (low, high) in zip(self.runs, other.runs, strict=True))

    def united(self, other: Box) -> Box | None:
        """Both as one box, if they differ in one column and meet or touch there."""
        differing = [d for d, (one, two) in enumerate(zip(self.runs, other.runs, strict=True)) if one != two]
        if len(differing) != 1 or self.t != other.t:
            return None
        (first, end), (second, last) = sorted((self.runs[differing[0]], other.runs[differing[0]]), key=lambda r: r[0])
        if end is not None and second > end:
            return None
        runs = list(self.runs)
        runs[differing[0]] = (first, last if _upto(end, last) else end)
        return Box(tuple(runs), self.t)


class BoxList:
    """Punctuation of one shape."""

    def __init__(self, schema: Schema, shape: Shape) -> None:
        self.shape = shape
        self._schema = schema
        self._orders = [order_of(schema.field(name).type) for name in shape.constants]
        self._types = [schema.field(name).type for name in shape.ranges]
        self._codes = [constants_for(order) for order in self._orders]  # a code for each constant, instead of a time
        self._next_code = 0
        self._keys = KeyTable(max(1, len(shape.constants)))
        self._values: list[tuple[Any, ...]] = []  # by the number of the key, as all that follow
        self._boxes: list[list[Box]] = []
        self._times = np.empty(0, np.int64)  # without ranges: the time
        self._flat: _Flat | None = None
        self._credit = 0

    def __len__(self) -> int:
        return sum(map(len, self._boxes)) if self.shape.ranges else len(self._values)

    @property
    def nbytes(self) -> int:
        return 100 * len(self.shape.constants) * len(self._values) + 200 * sum(map(len, self._boxes))

    def add(self, given: Sequence[Punctuation]) -> None:
        self._credit += len(given)
        values = [tuple(p.match[name].values[0] for name in self.shape.constants) for p in given]  # type: ignore[union-attr]
        columns = {
            name: constants([row[j] for row in values], self._orders[j].type, name)
            for j, name in enumerate(self.shape.constants)
        }
        ids = self._keys.intern(self._rows(columns, len(given), adding=True))
        for id_, row in zip(ids.tolist(), values, strict=True):
            if id_ == len(self._values):
                self._values.append(row)
        if not self.shape.ranges:
            self._times = grown(self._times, self._keys.capacity, NEVER)
            np.maximum.at(self._times, ids, np.array([p.t for p in given], np.int64))
            return
        self._flat = None
        self._boxes += [[] for _ in range(len(self._values) - len(self._boxes))]
        for p, id_ in zip(given, ids.tolist(), strict=True):
            self._boxes[id_] = _with_box(self._boxes[id_], Box(self._runs(p.match), p.t))

    def raise_to(self, columns: Mapping[str, pa.Array], out: np.ndarray) -> None:
        """Raises `out` to what is promised for each row."""
        ids = self._keys.find(self._rows(columns, len(out)))
        for name in self.shape.ranges:
            if columns[name].null_count:
                ids[columns[name].is_null().to_numpy(zero_copy_only=False)] = -1
        at = np.flatnonzero(ids >= 0)
        if not len(at):
            return
        if not self.shape.ranges:
            out[at] = np.maximum(out[at], self._times[ids[at]])
            return
        if self._flat is None:
            self._flat = _Flat(self._boxes, self._types)
        picked = pa.array(at)
        out[at] = np.maximum(
            out[at], self._flat.at(ids[at], [columns[name].take(picked) for name in self.shape.ranges])
        )

    def around(self, match: Mapping[str, AttributePattern]) -> int:
        """The largest time that one entry says for all that patterns match, which bind all of its columns."""
        columns = {
            name: constants(match[name].values, order.type)  # type: ignore[union-attr]
            for name, order in zip(self.shape.constants, self._orders, strict=True)
        }
        (id_,) = self._keys.find(self._rows(columns, 1)).tolist()
        if id_ < 0:
            return NEVER
        if not self.shape.ranges:
            return int(self._times[id_])
        if any(not spans_of(match[n], t).runs for n, t in zip(self.shape.ranges, self._types, strict=True)):
            return NEVER  # a null is in no range
        asked = Box(self._runs(match), NEVER)
        return max((box.t for box in self._boxes[id_] if asked.within(box)), default=NEVER)

    def forget(self, c: int) -> None:
        """Drops what says no more than `c`, when it pays."""
        self._credit += 1
        if 2 * self._credit >= len(self):
            kept = list(self.promises(c))
            self.__init__(self._schema, self.shape)  # type: ignore[misc]
            if kept:
                self.add(kept)
            self._credit = 0

    def promises(self, c: int = NEVER) -> Iterator[Punctuation]:
        """All that says more than `c`."""
        boxes = self._boxes if self.shape.ranges else [[Box((), t)] for t in self._times[: len(self._values)].tolist()]
        orders = list(map(order_of, self._types))
        for values, some in zip(self._values, boxes, strict=True):
            fixed = [(OneOf((value,)),) for value in values]
            for box in some:
                if box.t > c:
                    ranged = [shown(run, order) for run, order in zip(box.runs, orders, strict=True)]
                    for patterns in product(*fixed, *ranged):
                        match = dict(zip((*self.shape.constants, *self.shape.ranges), patterns, strict=True))
                        yield Punctuation({name: match[name] for name in self._schema.names if name in match}, box.t)

    def _runs(self, match: Mapping[str, AttributePattern]) -> tuple[Run, ...]:
        return tuple(spans_of(match[n], t).runs[0] for n, t in zip(self.shape.ranges, self._types, strict=True))

    def _rows(self, columns: Mapping[str, pa.Array], n: int, adding: bool = False) -> np.ndarray:
        """The codes of constants, row by row; one that is unknown has a code that no key has."""
        rows = np.zeros((n, self._keys.width), np.int64)
        for j, (name, order, codes) in enumerate(zip(self.shape.constants, self._orders, self._codes, strict=True)):
            keys = order.keys(columns[name])
            found = np.full(n, NEVER, np.int64)
            codes.raise_to(keys, found)
            if adding and (found == NEVER).any():
                codes.add(keys, np.where(found == NEVER, self._next_code + np.arange(n), found))
                self._next_code += n
                codes.raise_to(keys, found)
            rows[:, j] = found
            if columns[name].null_count:
                rows[columns[name].is_null().to_numpy(zero_copy_only=False), j] = _NULL
        return rows


class _Flat:
    """Boxes as arrays: those of one key stand together."""

    def __init__(self, boxes: Sequence[Sequence[Box]], types: Sequence[pa.DataType]) -> None:
        every = [box for some in boxes for box in some]
        self._counts = np.array([len(some) for some in boxes], np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        self._times = np.array([box.t for box in every], np.int64)
        self._cuts: list[Cuts | None] = []
        self._bounds: list[np.ndarray] = []
        self._orders = [order_of(type_) for type_ in types]
        for d, order in enumerate(self._orders):
            runs = [box.runs[d] for box in every]
            if order.kind is Kind.RANK:
                self._cuts.append(None)
                bounds = [(lo, order.hi if hi is None else hi - 1) for lo, hi in runs]
            else:
                cuts = Cuts(order, sorted({bound for run in runs for bound in run if bound is not None}))
                self._cuts.append(cuts)
                bounds = [(cuts.place(lo), len(cuts) if hi is None else cuts.place(hi) - 1) for lo, hi in runs]
            self._bounds.append(np.array(bounds, np.int64))

    def at(self, ids: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
        """The largest time of a box of each row's key that the row lies in."""
        points = [
            order.keys(column) if cuts is None else cuts.places(column)
            for order, cuts, column in zip(self._orders, self._cuts, columns, strict=True)
        ]
        found, counts = np.full(len(ids), NEVER, np.int64), self._counts[ids]
        for nth in range(int(counts.max())):
            rows = np.flatnonzero(counts > nth)
            box = self._starts[ids[rows]] + nth
            inside = self._times[box] > found[rows]
            for bounds, point in zip(self._bounds, points, strict=True):
                inside &= (bounds[box, 0] <= point[rows]) & (point[rows] <= bounds[box, 1])
            found[rows[inside]] = self._times[box[inside]]
        return found


class Product:
    """A punctuation that is kept as it is, each of its patterns as a set of its own."""

    def __init__(self, promise: Punctuation, schema: Schema) -> None:
        self.promise = promise
        self._columns: dict[str, ColumnStore] = {}
        for name, pattern in promise.match.items():
            type_ = schema.field(name).type
            self._columns[name] = ColumnStore(type_)
            self._columns[name].add(*parts_of(pattern, order_of(type_), promise.t, name))

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    def raise_to(self, columns: Mapping[str, pa.Array], out: np.ndarray) -> None:
        inside = np.full(len(out), self.promise.t, np.int64)
        for name, column in self._columns.items():
            matched = np.full(len(out), NEVER, np.int64)
            column.raise_to(columns[name], matched)
            np.minimum(inside, matched, out=inside)
        np.maximum(out, inside, out=out)


def _with_box(boxes: Sequence[Box], new: Box) -> list[Box]:
    """Boxes and another one: what lies in one that says as much goes, and what makes a box together becomes one."""
    kept: list[Box] = []
    left = list(boxes)
    while left:
        box = left.pop()
        if new.within(box) and new.t <= box.t:
            return [*kept, *left, box]
        if box.within(new) and box.t <= new.t:
            continue
        united = new.united(box)
        if united is None:
            kept.append(box)
        else:
            new, left, kept = united, left + kept, []  # the larger one may meet others
    return [*kept, new]


def _upto(hi: Any, other: Any) -> bool:
    """Whether a run ends at the end of another, or before."""
    return other is None or (hi is not None and hi <= other)

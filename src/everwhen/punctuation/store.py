"""A set of punctuations, kept small: for a payload x the largest time promised, F(x) (Tucker, section 3).

    upto(x) = max { t : (p, t) was added, p matches x, t has not been forgotten }

What binds one column stands in a store per column (`columns/column.py`): constants are hashed and ranges are intervals
in flat arrays.  What binds several stands in lists (`columns/wide.py`).  What another one covers is dropped, and ranges
that touch become one.  So a look-up costs much the same for ten constants of a column and for a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.punctuation.columns.column import ColumnStore
from everwhen.punctuation.columns.wide import BoxList, Product, Shape, shape_of
from everwhen.punctuation.parts import Part, constant_patterns, range_patterns, taken
from everwhen.punctuation.pattern_algebra import combine, subsumes
from everwhen.punctuation.plain import promises_of, promises_state
from everwhen.punctuation.read import read_promises
from everwhen.punctuation.table import PunctuationTable
from everwhen.values.order import constants, order_of, plain
from everwhen.values.sets import spans_of

_SHORT: Final = 1 << 14
"""A range of so many values meets others value by value."""
MOST_COMBINED: Final = 64
"""At most so many pairs of punctuations are combined one by one: joins of joins may have hundreds on both sides."""
_PRODUCTS: Final = Shape((), ("",))
"""Stands for the punctuations that are kept as lists."""


class PunctuationStore:
    """The punctuation of a port.

    >>> from everwhen.core.punctuation import OneOf
    >>> promises = PunctuationStore(Schema.of([("item", pa.int64())]))
    >>> promises.add(Punctuation({"item": OneOf((i,))}) for i in range(1000))
    >>> len(promises), list(promises)[0].match["item"]
    (1, Range(ge=0, gt=None, le=999, lt=None))
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._everything = NEVER
        self._floor = NEVER
        self._first = INF  # no kept time is smaller
        self._columns: dict[str, ColumnStore] = {}
        self._boxes: dict[Shape, BoxList] = {}
        self._products: list[Product] = []

    @property
    def bound(self) -> frozenset[str]:
        """The columns that a kept pattern binds."""
        if not (self._boxes or self._products):
            return frozenset(self._columns)
        boxes = (name for shape in self._boxes for name in (*shape.constants, *shape.ranges))
        return frozenset((*self._columns, *boxes, *(name for each in self._products for name in each.promise.match)))

    def __len__(self) -> int:
        """Entries kept: a constant, an interval or a box each."""
        return sum(map(len, self._stores())) + len(self._products) + (self._everything != NEVER)

    def __bool__(self) -> bool:
        return bool(self._columns or self._boxes or self._products or self._everything != NEVER)

    @property
    def nbytes(self) -> int:
        return sum(store.nbytes for store in (*self._stores(), *self._products))

    def add(self, promises: Iterable[Punctuation]) -> None:
        """Takes punctuation in; a pattern that does not fit the schema is a `QueryError`, and then none is taken.

        Cost: O(1) per constant of a column, amortised, when many come at a time.
        """
        said = read_promises(promises, self.schema)
        if said.everything > self._least():
            self._everything = said.everything
            self._drop(said.everything)
        known = self._least()
        said = said.after(known)
        self._first = min(self._first, said.span[0])
        for name in {**said.constants, **said.ranges}:
            if name not in self._columns:
                self._columns[name] = ColumnStore(self.schema.field(name).type)
            self._columns[name].add(said.constants.get(name), said.ranges.get(name))
        by_shape: dict[Shape, list[Punctuation]] = {}
        for promise in said.wide:
            shape = shape_of(promise.match)
            if shape is not None:
                by_shape.setdefault(shape, []).append(promise)
            elif not self._in_products(promise):
                kept = (old for old in self._products if not subsumes(promise, old.promise, self.schema))
                self._products = [*kept, Product(promise, self.schema)]
        for shape, some in by_shape.items():
            news = self._news(shape, some)
            if news:
                if shape not in self._boxes:
                    self._boxes[shape] = BoxList(self.schema, shape)
                self._boxes[shape].add(news)

    def _news(self, shape: Shape, some: list[Punctuation]) -> list[Punctuation]:
        """Those that bind several columns, without what a column's own punctuation says for their constants."""
        names = [name for name in shape.constants if name in self._columns]
        if not names:
            return some
        known = np.full(len(some), NEVER, np.int64)
        for name, column in _constant_columns(names, some, self.schema).items():
            self._columns[name].raise_to(column, known)
        return [promise for promise, t in zip(some, known.tolist(), strict=True) if promise.t > t]

    def upto(self, columns: Mapping[str, pa.Array | np.ndarray], n: int) -> np.ndarray:
        """F(x) for each of `n` rows (int64), `NEVER` where nothing is promised.  Reads the columns in `bound` only; one
        may be given by the ranks of its values, if none is null."""
        out = np.full(n, self._everything, np.int64)
        if not n:
            return out
        for name, column in self._columns.items():
            column.raise_to(plain(columns[name]), out)
        if self._boxes or self._products:
            read = {name: self._values(columns[name], name) for name in self.bound}
            for boxes in self._boxes.values():
                boxes.raise_to(read, out)
            for each in self._products:
                each.raise_to(read, out)
        if self._first <= self._floor:
            out[out <= self._floor] = NEVER
        return out

    def _values(self, column: pa.Array | np.ndarray, name: str) -> pa.Array:
        return (
            order_of(self.schema.field(name).type).column(column) if isinstance(column, np.ndarray) else plain(column)
        )

    def pieces(self, most: int) -> dict[str, np.ndarray] | None:
        """By column, as rows of a first and a last rank and a time; None: that is not all it says, or there are more
        than `most` of a column."""
        if self._boxes or self._products or self._everything != NEVER:
            return None
        found: dict[str, np.ndarray] = {}
        for name, column in self._columns.items():
            pieces = column.pieces() if len(column) <= most else None
            if pieces is None:
                return None
            found[name] = pieces if self._first > self._floor else pieces[pieces[:, 2] > self._floor]
        return found

    def implies(self, promise: Punctuation) -> bool:
        """Whether a punctuation says nothing new.  False may be wrong where only several entries together say it."""
        found = read_promises([promise], self.schema)
        least = self._least()
        if found.everything > least or any(not self._implied(name, part) for name, part in found.constants.items()):
            return False
        for name, part in found.ranges.items():
            known = self._columns.get(name)
            for run, t in zip(part.runs(), part.times.tolist(), strict=True):
                if t > least and (known is None or known.least(run) < t):
                    return False
        return all(each.t <= least or self._around(each) >= each.t or self._in_products(each) for each in found.wide)

    def _implied(self, name: str, part: Part) -> bool:
        ours = self._columns.get(name)
        known = np.full(len(part.times), self._least(), np.int64)
        null = self._least()
        if ours is not None:
            known, null = np.maximum(known, ours.at(part.keys)), max(null, ours.null)
        return part.null <= null and bool((known >= part.times).all())

    def _around(self, promise: Punctuation) -> int:
        """The largest time that one entry says for all that a pattern over several columns matches."""
        shape = shape_of(promise.match)
        if shape is None:
            return NEVER
        best = NEVER
        for name, column in self._columns.items():
            if name in shape.constants:
                known = np.full(1, best, np.int64)
                column.raise_to(_constant_columns([name], [promise], self.schema)[name], known)
                best = int(known[0])
            elif name in shape.ranges:
                (run,) = spans_of(promise.match[name], self.schema.field(name).type).runs
                best = max(best, column.least(run))
        for other, boxes in self._boxes.items():
            if {*shape.constants} >= {*other.constants} and promise.match.keys() >= {*other.ranges}:
                best = max(best, boxes.around(promise.match))
        return best

    def _in_products(self, promise: Punctuation) -> bool:
        return any(subsumes(each.promise, promise, self.schema) for each in self._products)

    def meet(self, promises: Iterable[Punctuation]) -> PunctuationTable:
        """What the given punctuations and the kept ones say together: all combinations, merged and simplified.

        Of those that no look-up brings together only the first `MOST_COMBINED` combinations.
        """
        said = read_promises(promises, self.schema)
        if not (self and said):
            return PunctuationTable(self.schema)
        if len(self._columns) == 1 and not (self._boxes or self._products):
            (alone,) = self._columns
            said = said.spelled_out(alone, _SHORT)
            if said.only_constants == alone:
                return self._meet_constants(alone, said.constants[alone])
        fresh, found = PunctuationStore(self.schema), PunctuationStore(self.schema)
        fresh.add(said)
        for ours, theirs in ((self, fresh), (fresh, self)):
            if ours._everything != NEVER:
                found.add(theirs.said().until(ours._everything))
        for name, column in fresh._columns.items():
            if name in self._columns:
                constants, ranges = column.meet(self._columns[name])
                found.add(PunctuationTable(self.schema, {name: constants}, {name: ranges}))
        for ours, theirs in ((fresh, self), (self, fresh)):
            found.add(PunctuationTable(self.schema, wide=_looked_up(ours, theirs)))
        pairs = islice(_pairs(fresh._parts(), self._parts()), MOST_COMBINED)
        found.add(both for p, q in pairs if (both := combine(p, q, self.schema)) is not None)
        return found.said().after(self._floor)

    def _meet_constants(self, name: str, part: Part) -> PunctuationTable:
        """The same for constants of the only column that is bound."""
        until = self._columns[name].at(part.keys, self._everything)
        at = np.flatnonzero(until > self._floor)
        if not len(at):
            return PunctuationTable(self.schema)
        times = np.minimum(part.times[at], until[at])
        found = PunctuationTable(self.schema, {name: Part(part.order, taken(part.keys, at), times)})
        return found.after(self._floor)

    def said(self) -> PunctuationTable:
        """All that is kept."""
        wide = [*(p for boxes in self._boxes.values() for p in boxes.promises()), *(e.promise for e in self._products)]
        constants = {name: column.constants() for name, column in self._columns.items()}
        ranges = {name: column.ranges() for name, column in self._columns.items()}
        return PunctuationTable(self.schema, constants, ranges, wide, self._everything).after(self._floor)

    def forget(self, c: int) -> None:
        """What has a time up to `c` says nothing any more."""
        if c <= self._floor:
            return
        self._floor = c
        if self._everything <= c:
            self._everything = NEVER
        if c >= self._first:
            self._drop(c)

    def __iter__(self) -> Iterator[Punctuation]:
        """Punctuations that say the same, as few as there are entries or fewer: constants of one time as lists."""
        if self._everything != NEVER:
            yield Punctuation({}, self._everything)
        for part in self._parts().values():
            yield from part()

    def _parts(self) -> dict[Shape, Callable[[], Iterator[Punctuation]]]:
        """All by what it binds; what binds one column has one shape whatever it is."""

        def of_column(name: str, column: ColumnStore) -> Iterator[Punctuation]:
            found = (*constant_patterns(column.constants()), *range_patterns(column.ranges()))
            return (Punctuation({name: pattern}, t) for pattern, t in found if t > self._floor)

        parts: dict[Shape, Callable[[], Iterator[Punctuation]]] = {}
        for name, column in self._columns.items():
            parts[Shape((name,), ())] = lambda name=name, column=column: of_column(name, column)  # type: ignore[misc]
        for shape, boxes in self._boxes.items():
            parts[shape] = lambda boxes=boxes: boxes.promises(self._floor)  # type: ignore[misc]
        if self._products:
            parts[_PRODUCTS] = lambda: (each.promise for each in self._products)
        return parts

    def snapshot(self) -> dict[str, Any]:
        """Plain values, from which `restore` makes an equal store."""
        wide = [*(p for boxes in self._boxes.values() for p in boxes.promises()), *(e.promise for e in self._products)]
        return {
            "everything": self._everything,
            "floor": self._floor,
            "columns": {name: column.snapshot() for name, column in self._columns.items()},
            "wide": promises_state(wide),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Holds what a snapshot held, and nothing else."""
        self.__init__(self.schema)  # type: ignore[misc]
        for name, saved in state["columns"].items():
            column = self._columns[name] = ColumnStore(self.schema.field(name).type)
            column.restore(saved)
        self.add(promises_of(state["wide"]))
        self._everything, self._floor, self._first = state["everything"], state["floor"], NEVER

    def _stores(self) -> list[ColumnStore | BoxList]:
        return [*self._columns.values(), *self._boxes.values()]

    def _least(self) -> int:
        """What is known of every payload, or does not count."""
        return max(self._everything, self._floor)

    def _drop(self, c: int) -> None:
        for store in self._stores():
            store.forget(c)
        self._columns = {name: column for name, column in self._columns.items() if len(column)}
        self._boxes = {shape: boxes for shape, boxes in self._boxes.items() if len(boxes)}
        self._products = [each for each in self._products if each.promise.t > c]


def _looked_up(one: PunctuationStore, two: PunctuationStore) -> list[Punctuation]:
    """What several columns are bound to in one store, with what another store says of some of their constants alone."""
    found = []
    for shape, boxes in one._boxes.items():
        asked = [(name, column) for name, column in two._columns.items() if name in shape.constants]
        others = [
            each for other, each in two._boxes.items() if not other.ranges and {*other.constants} <= {*shape.constants}
        ]
        if asked or others:
            some = list(boxes.promises(one._floor))
            columns = _constant_columns(shape.constants, some, one.schema)
            times = np.full(len(some), NEVER, np.int64)
            for name, column in asked:
                column.raise_to(columns[name], times)
            for other in others:
                other.raise_to(columns, times)
            found += [
                Punctuation(promise.match, min(t, promise.t))
                for promise, t in zip(some, times.tolist(), strict=True)
                if t > two._floor
            ]
    return found


Parts = Mapping[Shape, Callable[[], Iterator[Punctuation]]]


def _pairs(ours: Parts, theirs: Parts) -> Iterator[tuple[Punctuation, Punctuation]]:
    """Punctuations of both that no look-up brings together: they bind different columns, or one column by ranges."""
    for shape, our_part in ours.items():
        for other, their_part in theirs.items():
            if not (_asks(shape, other) or _asks(other, shape)):
                yield from product(list(our_part()), list(their_part()))


def _asks(shape: Shape, other: Shape) -> bool:
    """Whether what has the first shape can be looked up for the constants of the second."""
    return not shape.ranges and {*shape.constants} <= {*other.constants}


def _constant_columns(names: Iterable[str], some: list[Punctuation], schema: Schema) -> dict[str, pa.Array]:
    """The constants of some columns, a row for each punctuation."""
    found = {}
    for name in names:
        values = [promise.match[name].values[0] for promise in some]  # type: ignore[union-attr]
        found[name] = constants(values, order_of(schema.field(name).type).type, name)
    return found

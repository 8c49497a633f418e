"""A set of promises, kept small: for a payload x the largest time promised, F(x) (Tucker, section 3).

    promised(x) = max { t : (p, t) was added, p matches x, t has not been forgotten }

Promises are kept by the columns they bind: one alone (`columns/column.py`), or several (`columns/boxes.py`).  There
constants are hashed and ranges are intervals in flat arrays; a promise that another one covers is dropped, and promises
that touch become one.  So a look-up costs much the same for ten constants and for a million.

A product of long lists (`a in (…) and b in (…)`, more than 4096 combinations) is kept as its lists, looked up alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache, partial
from itertools import islice, product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.punctuation.columns.boxes import BoxTable, Entries, Shape, state_of
from everwhen.punctuation.columns.column import ColumnPunctuation
from everwhen.punctuation.columns.intervals import NO_PIECES
from everwhen.punctuation.pattern_algebra import combine, subsumes
from everwhen.punctuation.plain import promises_of, promises_state
from everwhen.punctuation.read import read_promises, wide_promise
from everwhen.punctuation.table import PunctuationTable
from everwhen.punctuation.table_parts import Listed, Ranged, WidePromise
from everwhen.punctuation.values.order import Kind, order_of, plain
from everwhen.punctuation.values.sets import run_at
from everwhen.punctuation.written_out import asks, look_up_column, of_column, of_table

LookUp = Callable[[Mapping[str, pa.Array], np.ndarray], None]
"""Raises times to what is promised for the constants in some columns."""
_SHORT: Final = 1 << 14
"""A range of so many values meets others value by value."""
MOST_COMBINED: Final = 500
"""At most so many pairs of promises are combined one by one: joins of joins may have hundreds on both sides."""
_WIDE: Final = Shape((), ("",))
"""Stands for the promises that are kept as lists."""


class PunctuationStore:
    """The promises of a port.

    >>> promises = PunctuationStore(Schema.of([("item", pa.int64())]))
    >>> from everwhen.core.punctuation import OneOf
    >>> promises.add(Punctuation({"item": OneOf((i,))}) for i in range(1000))
    >>> len(promises), list(promises)[0].match["item"]
    (1, Range(ge=0, gt=None, le=999, lt=None))
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._everything = NEVER
        self._floor = NEVER
        self._first = INF  # no kept time is smaller
        self._columns: dict[str, ColumnPunctuation] = {}
        self._tables: dict[Shape, BoxTable] = {}
        self._wide: list[WidePromise] = []

    @property
    def bound(self) -> frozenset[str]:
        """The columns that a kept pattern binds."""
        tables = (name for shape in self._tables for name in (*shape.constants, *shape.ranges))
        return frozenset((*self._columns, *tables, *(name for wide in self._wide for name in wide.columns)))

    @property
    def alone(self) -> Set[str]:
        """The columns that a kept pattern binds alone."""
        return self._columns.keys()

    def __len__(self) -> int:
        """Entries kept: a constant, an interval or a box each."""
        return sum(map(len, self._stores())) + len(self._wide) + (self._everything != NEVER)

    def __bool__(self) -> bool:
        return bool(self._columns or self._tables or self._wide or self._everything != NEVER)

    @property
    def nbytes(self) -> int:
        wide = sum(column.nbytes for wide in self._wide for column in wide.columns.values())
        return sum(store.nbytes for store in self._stores()) + wide

    def add(self, promises: Iterable[Punctuation]) -> None:
        """Takes promises in; a pattern that does not fit the schema is a `QueryError`, and then none is taken.

        Cost: O(1) per constant, amortised, when many come at a time.
        """
        self.take(read_promises(promises, self.schema))

    def take(self, said: PunctuationTable) -> None:
        """The same for promises that have been read."""
        if said.everything > self._said():
            self._everything = said.everything
            self._drop(said.everything)
        known = self._said()
        said = said.after(known)
        self._first = min(self._first, said.span[0])
        for name, listed in said.constants.items():
            column = self._column(name)
            column.add_keys(listed.keys, listed.times)
            column.null = max(column.null, listed.null)
        for name, ranged in said.ranges.items():
            self._column(name).add_ranges(ranged.runs, ranged.times)
        for shape, entries in said.tables.items():
            times = np.full(len(entries), known, np.int64)
            for name, values in zip(shape.constants, entries.columns, strict=True):
                if name in self._columns:
                    self._columns[name].raise_to(values, times)
            self._join_entries(shape, entries.filter(times < entries.times))
        for wide in said.wide:
            if wide.promise.t > known and not self._implied_wide(wide.promise):
                kept_wide = (old for old in self._wide if not subsumes(wide.promise, old.promise, self.schema))
                self._wide = [*kept_wide, wide]

    def promised(self, columns: Mapping[str, pa.Array], n: int) -> np.ndarray:
        """F(x) for each of `n` rows (int64), `NEVER` where nothing is promised.  Reads the columns in `bound` only."""
        out = np.full(n, self._everything, np.int64)
        if not n:
            return out
        read = {name: plain(columns[name]) for name in self.bound}
        for name, column in self._columns.items():
            column.raise_to(read[name], out)
        for table in self._tables.values():
            table.raise_to(read, out)
        for wide in self._wide:
            wide.raise_to(read, out)
        if self._floor != NEVER:
            out[out <= self._floor] = NEVER
        return out

    @property
    def whole(self) -> str | None:
        """The only column that is bound, if it holds whole numbers."""
        if len(self._columns) != 1 or self._tables or self._wide:
            return None
        ((name, column),) = self._columns.items()
        return name if column.order.whole else None

    def of_ranks(self, ranks: np.ndarray) -> np.ndarray:
        """The same for values of the only column that is bound, by their ranks."""
        (column,) = self._columns.values()
        out = column.of_keys(ranks)
        least = max(self._everything, self._floor)
        if least != NEVER:
            out[out <= least] = self._everything
        return out

    def pieces(self, name: str, most: int) -> np.ndarray | None:
        """What is said of a column alone, as rows of its first and last rank and its time; None if there are more than
        `most`.  For a set that is `ranked`."""
        column = self._columns.get(name)
        if column is None:
            return NO_PIECES
        return column.pieces(most, self._floor if self._first <= self._floor else NEVER)

    def first_late(self, name: str, ranks: np.ndarray, sync: np.ndarray, gaps: np.ndarray) -> int:
        """The first of some rows that comes before what is promised for its value of a column that is bound; if none,
        how many there are.  What stands in the gaps does not count.  For a set that is `ranked`."""
        return self._columns[name].first_late(ranks, sync, gaps, self._floor)

    @property
    def ranked(self) -> bool:
        """Whether all that is said binds one column each, whose values have ranks, and no nulls."""
        if self._tables or self._wide or self._everything != NEVER:
            return False
        return all(column.order.kind is Kind.RANK and column.null == NEVER for column in self._columns.values())

    def implies(self, promise: Punctuation) -> bool:
        """Whether a promise says nothing new.  False may be wrong where only several entries together say it."""
        found = read_promises([promise], self.schema)
        if found.everything > self._said():
            return False
        if any(not self._implied_column(name, column) for name, column in found.columns().items()):
            return False
        for shape, entries in found.tables.items():
            for i in range(len(entries)):
                if self._around(shape, entries, i) < int(entries.times[i]):
                    return False
        return all(self._implied_wide(wide.promise) for wide in found.wide)

    def meet(self, promises: Iterable[Punctuation]) -> PunctuationTable:
        """What the given promises and the kept ones say together: all combinations, merged and simplified.

        Of those that no look-up brings together only the first `MOST_COMBINED` combinations.
        """
        said = read_promises(promises, self.schema)
        if not (self and said):
            return PunctuationTable(self.schema)
        if len(self._columns) == 1 and not (self._tables or self._wide):
            (alone,) = self._columns
            said = said.spelled_out(alone, _SHORT)
            if said.only_constants == alone:
                return self._meet_constants(alone, said.constants[alone])
        fresh, found = PunctuationStore(self.schema), PunctuationStore(self.schema)
        fresh.take(said)
        for ours, theirs in ((self, fresh), (fresh, self)):
            if ours._everything != NEVER:
                found._join(theirs, ours._everything)
        for name, column in fresh._columns.items():
            if name in self._columns:
                found._join_column(name, column.meet(self._columns[name]))
        if fresh._tables:
            found._join_looked_up(fresh._tables, self._look_ups())
        if self._tables:
            found._join_looked_up(self._tables, fresh._look_ups(), without=frozenset(fresh._tables))
        others = (combine(p, q, self.schema) for p, q in islice(fresh._pairs(self), MOST_COMBINED))
        found.add(p for p in others if p is not None)
        found._floor = self._floor
        return found.said()

    def _meet_constants(self, name: str, listed: Listed) -> PunctuationTable:
        """The same for constants of the only column that is bound."""
        at, until = self._columns[name].meet_keys(listed.keys, listed.times, self._everything, self._floor)
        if not len(at):
            return PunctuationTable(self.schema)
        keys = listed.keys[at] if listed.order.kind is Kind.RANK else listed.keys.take(pa.array(at))
        return PunctuationTable(self.schema, {name: Listed(listed.order, keys, until, listed.null)})

    def said(self) -> PunctuationTable:
        """All that is kept."""
        constants, ranges = {}, {}
        for name, column in self._columns.items():
            listed, ranged = Listed(column.order, *column.keys(), column.null), Ranged(column.order, *column.ranges())
            if listed:
                constants[name] = listed
            if len(ranged.times):
                ranges[name] = ranged
        tables = {shape: table.entries() for shape, table in self._tables.items()}
        return PunctuationTable(self.schema, constants, ranges, tables, self._wide, self._everything).after(self._floor)

    def forget(self, c: int) -> None:
        """Promises with a time up to `c` say nothing any more."""
        if c <= self._floor:
            return
        self._floor = c
        if self._everything <= c:
            self._everything = NEVER
        if c >= self._first:
            self._drop(c)

    def __iter__(self) -> Iterator[Punctuation]:
        """Promises that say the same, as few as there are entries or fewer: constants of one time as lists."""
        if self._everything != NEVER:
            yield Punctuation({}, self._everything)
        for name, column in self._columns.items():
            for pattern, t in column.patterns(self._floor):
                yield Punctuation({name: pattern}, t)
        for table in self._tables.values():
            yield from table.promises(self._floor)
        yield from (wide.promise for wide in self._wide)

    def snapshot(self) -> dict[str, Any]:
        """Plain values, from which `restore` makes an equal set."""
        return {
            "everything": self._everything,
            "floor": self._floor,
            "columns": {name: column.snapshot() for name, column in self._columns.items()},
            "tables": [
                (shape.constants, shape.ranges, state_of(table.entries())) for shape, table in self._tables.items()
            ],
            "wide": promises_state(wide.promise for wide in self._wide),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Holds what a snapshot held, and nothing else."""
        self.__init__(self.schema)  # type: ignore[misc]
        self._everything, self._floor = state["everything"], state["floor"]
        self._first = NEVER
        for name, saved in state["columns"].items():
            column = self._columns[name] = ColumnPunctuation(self.schema.field(name).type)
            column.restore(saved)
        for constants, ranges, saved in state["tables"]:
            self._join_entries(Shape(tuple(constants), tuple(ranges)), Entries(**saved))
        self._wide = [wide_promise(promise, self.schema) for promise in promises_of(state["wide"])]

    def _stores(self) -> list[ColumnPunctuation | BoxTable]:
        return [*self._columns.values(), *self._tables.values()]

    def _said(self) -> int:
        return max(self._everything, self._floor)

    def _column(self, name: str) -> ColumnPunctuation:
        if name not in self._columns:
            self._columns[name] = ColumnPunctuation(self.schema.field(name).type)
        return self._columns[name]

    def _drop(self, c: int) -> None:
        for store in self._stores():
            store.forget(c)
        self._columns = {name: column for name, column in self._columns.items() if len(column)}
        self._tables = {shape: table for shape, table in self._tables.items() if len(table)}
        self._wide = [wide for wide in self._wide if wide.promise.t > c]

    def _join(self, other: PunctuationStore, t: int) -> None:
        """Takes in all that another set says, up to `t`."""
        self._everything = max(self._everything, min(other._everything, t))
        self._first = NEVER
        for name, column in other._columns.items():
            self._join_column(name, column.clipped(t))
        for shape, table in other._tables.items():
            entries = table.entries()
            self._join_entries(shape, Entries(entries.columns, entries.runs, np.minimum(entries.times, t)))
        self.add(Punctuation(wide.promise.match, min(wide.promise.t, t)) for wide in other._wide)

    def _join_column(self, name: str, column: ColumnPunctuation) -> None:
        if name not in self._columns and len(column):
            self._columns[name] = column
        elif len(column):
            self._columns[name].join(column)

    def _join_entries(self, shape: Shape, entries: Entries) -> None:
        if len(entries):
            if shape not in self._tables:
                self._tables[shape] = BoxTable(self.schema, shape)
            self._tables[shape].add(entries)

    def _look_ups(self) -> dict[Shape, LookUp]:
        """What can be asked for the time of constants: single columns, and tables without ranges."""
        found: dict[Shape, LookUp] = {
            Shape((name,), ()): partial(look_up_column, name, column) for name, column in self._columns.items()
        }
        return found | {shape: table.raise_to for shape, table in self._tables.items() if not shape.ranges}

    def _join_looked_up(
        self, tables: Mapping[Shape, BoxTable], asked: Mapping[Shape, LookUp], without: Set[Shape] = frozenset()
    ) -> None:
        """Takes in the entries of tables for whose constants a promise that binds some of them alone says something."""
        for shape, table in tables.items():
            for other, look_up in asked.items():
                if set(other.constants) <= set(shape.constants) and not (other == shape and shape in without):
                    entries = table.entries()
                    times = np.full(len(entries), NEVER, np.int64)
                    look_up(dict(zip(shape.constants, entries.columns, strict=True)), times)
                    times = np.minimum(times, entries.times)
                    self._join_entries(shape, entries.filter(times != NEVER, times))

    def _pairs(self, other: PunctuationStore) -> Iterator[tuple[Punctuation, Punctuation]]:
        """Promises of both that no look-up brings together: they bind different columns, or one column by ranges."""
        ours, theirs = self._parts(), other._parts()
        for shape, our_part in ours.items():
            for other_shape, their_part in theirs.items():
                if not (asks(shape, other_shape) or asks(other_shape, shape)):
                    yield from product(our_part(), their_part())

    def _parts(self) -> dict[Shape, Callable[[], list[Punctuation]]]:
        """The promises by what they bind; those of one column have one shape whatever they are."""
        parts: dict[Shape, Callable[[], list[Punctuation]]] = {
            Shape((name,), ()): cache(partial(of_column, name, column, self._floor))
            for name, column in self._columns.items()
        }
        for shape, table in self._tables.items():
            parts[shape] = cache(partial(of_table, table, self._floor))
        if self._wide:
            parts[_WIDE] = lambda: [wide.promise for wide in self._wide]
        return parts

    def _implied_column(self, name: str, column: ColumnPunctuation) -> bool:
        ours, said = self._columns.get(name), self._said()
        values, times = column.constants()
        known = np.full(len(times), said, np.int64)
        if ours is not None and len(times):
            np.maximum(known, ours.at(values), out=known)
        runs, until = column.runs()
        return (
            column.null <= max(said, NEVER if ours is None else ours.null)
            and bool((known >= times).all())
            and all(
                t <= said or (ours is not None and ours.least(run) >= t)
                for run, t in zip(runs, until.tolist(), strict=True)
            )
        )

    def _around(self, shape: Shape, entries: Entries, i: int) -> int:
        """The largest time that one entry says for all of an entry of another set."""
        constants = {name: column.slice(i, 1) for name, column in zip(shape.constants, entries.columns, strict=True)}
        runs = {name: found[i] for name, found in zip(shape.ranges, entries.runs, strict=True)}
        points = {name: run_at(column, order_of(column.type)) for name, column in constants.items()}
        inside = {**runs, **{name: run for name, run in points.items() if run is not None}}
        best = self._said()
        for name, column in self._columns.items():
            if name in constants:
                known = np.full(1, best, np.int64)
                column.raise_to(constants[name], known)
                best = int(known[0])
            elif name in runs:
                best = max(best, column.least(runs[name]))
        for other, table in self._tables.items():
            if constants.keys() >= set(other.constants) and inside.keys() >= set(other.ranges):
                found = table.around([constants[n] for n in other.constants], [inside[n] for n in other.ranges])
                best = max(best, found)
        return best

    def _implied_wide(self, promise: Punctuation) -> bool:
        return promise.t <= self._said() or any(subsumes(wide.promise, promise, self.schema) for wide in self._wide)

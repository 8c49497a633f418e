"""Promises as they travel: a table per form, with arrays of values and of times, instead of objects one by one.

What binds one column stands by that column: its constants, its ranges, its null.  What binds several stands by the
columns that it binds to constants and to ranges.  Values that have ranks (`value_order`) stand as ranks, so operators
act on whole arrays of them.  `PunctuationTable` is also a sequence of `Punctuation`s that say the same in few words;
these are made when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, overload

import numpy as np

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.punctuation.columns.boxes import BoxTable, Entries, Shape, promises_of
from everwhen.punctuation.columns.column import ColumnPunctuation, shown
from everwhen.punctuation.table_parts import (
    Listed,
    Ranged,
    WidePromise,
    by_value,
    joined_entries,
    joined_lists,
    joined_ranges,
    renamed_table,
)
from everwhen.punctuation.values.order import Kind

FEW: Final = 64
"""So few constants and ranges are put together one by one."""


class PunctuationTable(Sequence[Punctuation]):
    """What some promises say.  Nothing of it is changed once it is made."""

    __slots__ = ("_count", "_span", "_words", "constants", "everything", "ranges", "schema", "tables", "wide")

    def __init__(
        self,
        schema: Schema,
        constants: Mapping[str, Listed] | None = None,
        ranges: Mapping[str, Ranged] | None = None,
        tables: Mapping[Shape, Entries] | None = None,
        wide: Sequence[WidePromise] = (),
        everything: int = NEVER,
        span: tuple[int, int] | None = None,
    ) -> None:
        self.schema = schema
        self.constants: Mapping[str, Listed] = constants or {}
        self.ranges: Mapping[str, Ranged] = ranges or {}
        self.tables: Mapping[Shape, Entries] = tables or {}
        self.wide = wide
        self.everything = everything
        self._span = span
        self._words: tuple[Punctuation, ...] | None = None
        self._count = -1  # of the words, where it is known

    def __bool__(self) -> bool:
        return bool(self.constants or self.ranges or self.tables or self.wide or self.everything != NEVER)

    @property
    def single(self) -> bool:
        """Whether every promise binds one column."""
        return not (self.tables or self.wide or self.everything != NEVER)

    @property
    def only_constants(self) -> str | None:
        """The column of which it says some constants, no null among them, if it says nothing else."""
        if len(self.constants) != 1 or self.ranges or not self.single:
            return None
        ((name, listed),) = self.constants.items()
        return name if listed.null == NEVER else None

    @property
    def bound(self) -> set[str]:
        """The columns that are bound."""
        found = {*self.constants, *self.ranges}
        for shape in self.tables:
            found.update(shape.constants, shape.ranges)
        for wide in self.wide:
            found.update(wide.promise.match)
        return found

    # -- times ----------------------------------------------------------------------------------------------------

    @property
    def span(self) -> tuple[int, int]:
        """The smallest and the largest time."""
        if self._span is None:
            arrays = [times for times in self._times() if len(times)]
            alone = [listed.null for listed in self.constants.values() if listed.null != NEVER]
            alone += [wide.promise.t for wide in self.wide]
            if self.everything != NEVER:
                alone.append(self.everything)
            self._span = (
                min([*alone, *(int(times.min()) for times in arrays)], default=INF),
                max([*alone, *(int(times.max()) for times in arrays)], default=NEVER),
            )
        return self._span

    def _times(self) -> list[np.ndarray]:
        found = [listed.times for listed in self.constants.values()]
        found += [ranged.times for ranged in self.ranges.values()]
        return found + [entries.times for entries in self.tables.values()]

    def after(self, t: int) -> PunctuationTable:
        """What it says of later times."""
        if t == NEVER:
            return self
        first, last = self.span
        if t < first:
            return self
        if t >= last:
            return PunctuationTable(self.schema)
        constants = {name: listed.after(t) for name, listed in self.constants.items()}
        ranges = {name: ranged.after(t) for name, ranged in self.ranges.items()}
        tables = {shape: entries.filter(entries.times > t) for shape, entries in self.tables.items()}
        return PunctuationTable(
            self.schema,
            {name: listed for name, listed in constants.items() if listed},
            {name: ranged for name, ranged in ranges.items() if len(ranged.times)},
            {shape: entries for shape, entries in tables.items() if len(entries)},
            [wide for wide in self.wide if wide.promise.t > t],
            self.everything if self.everything > t else NEVER,
        )

    def moved(self, to: Callable[[int], int]) -> PunctuationTable:
        """The same with other times."""

        def times(old: np.ndarray) -> np.ndarray:
            known = {t: to(t) for t in set(old.tolist())}
            return np.array([known[t] for t in old.tolist()], np.int64)

        def alone(t: int) -> int:
            return t if t == NEVER else to(t)

        return PunctuationTable(
            self.schema,
            {n: each._replace(times=times(each.times), null=alone(each.null)) for n, each in self.constants.items()},
            {n: each._replace(times=times(each.times)) for n, each in self.ranges.items()},
            {shape: Entries(each.columns, each.runs, times(each.times)) for shape, each in self.tables.items()},
            [WidePromise(Punctuation(w.promise.match, to(w.promise.t)), w.columns) for w in self.wide],
            alone(self.everything),
        )

    def until(self, t: int) -> PunctuationTable:
        """The same with times of at most `t`."""
        return self if t >= self.span[1] else self.moved(lambda other: min(t, other))

    # -- columns ----------------------------------------------------------------------------------------------------

    def renamed(self, names: Mapping[str, str], schema: Schema) -> PunctuationTable:
        """The same over columns that have other names; all that it binds are among them."""
        constants = {names[name]: listed for name, listed in self.constants.items()}
        ranges = {names[name]: ranged for name, ranged in self.ranges.items()}
        if self.single:
            return PunctuationTable(schema, constants, ranges, span=self._span)
        place = {name: i for i, name in enumerate(schema.names)}
        return PunctuationTable(
            schema,
            constants,
            ranges,
            dict(renamed_table(shape, entries, names, place) for shape, entries in self.tables.items()),
            [
                WidePromise(
                    Punctuation({names[name]: pattern for name, pattern in wide.promise.match.items()}, wide.promise.t),
                    {names[name]: column for name, column in wide.columns.items()},
                )
                for wide in self.wide
            ],
            self.everything,
            self._span,
        )

    def split(self, columns: Collection[str]) -> tuple[PunctuationTable, PunctuationTable]:
        """What binds only these columns, and the rest."""

        def inside(shape: Shape) -> bool:
            return all(name in columns for name in (*shape.constants, *shape.ranges))

        parts = []
        for which in (True, False):
            parts.append(
                PunctuationTable(
                    self.schema,
                    {name: listed for name, listed in self.constants.items() if (name in columns) is which},
                    {name: ranged for name, ranged in self.ranges.items() if (name in columns) is which},
                    {shape: entries for shape, entries in self.tables.items() if inside(shape) is which},
                    [wide for wide in self.wide if all(name in columns for name in wide.promise.match) is which],
                    self.everything if which else NEVER,
                )
            )
        return parts[0], parts[1]

    def without_list(self, name: str) -> PunctuationTable:
        """All but the constants of a column that is bound alone."""
        constants = {other: listed for other, listed in self.constants.items() if other != name}
        return PunctuationTable(self.schema, constants, self.ranges, self.tables, self.wide, self.everything)

    def without_table(self, shape: Shape) -> PunctuationTable:
        """All but what has a form."""
        tables = {other: entries for other, entries in self.tables.items() if other != shape}
        return PunctuationTable(self.schema, self.constants, self.ranges, tables, self.wide, self.everything)

    def spelled_out(self, name: str, most: int) -> PunctuationTable:
        """The same with ranges of up to `most` ranks of a column as lists of their constants."""
        ranged = self.ranges.get(name)
        if ranged is None or ranged.order.kind is not Kind.RANK:
            return self
        lows, highs = ranged.runs.T
        short = (highs < lows + most) & (lows < ranged.order.hi - most)
        if not short.any():
            return self
        sizes = (highs - lows + 1)[short]
        keys = np.repeat(lows[short] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        spelled = PunctuationTable(
            self.schema, {name: Listed(ranged.order, keys, np.repeat(ranged.times[short], sizes))}
        )
        long = Ranged(ranged.order, ranged.runs[~short], ranged.times[~short])
        ranges = {other: each for other, each in self.ranges.items() if other != name}
        if len(long.times):
            ranges[name] = long
        return joined(
            [spelled, PunctuationTable(self.schema, self.constants, ranges, self.tables, self.wide, self.everything)]
        )

    def numbered(self, first: int, last: int) -> PunctuationTable | None:
        """What the promises from the `first` up to the `last` of those that were read say; None: that is not known."""
        if not self.single or any(listed.null != NEVER for listed in self.constants.values()):
            return None
        constants = {name: listed.numbered(first, last) for name, listed in self.constants.items()}
        ranges = {name: ranged.numbered(first, last) for name, ranged in self.ranges.items()}
        return PunctuationTable(
            self.schema,
            {name: listed for name, listed in constants.items() if listed},
            {name: ranged for name, ranged in ranges.items() if len(ranged.times)},
        )

    def united(self) -> PunctuationTable:
        """The same with ranges that touch as one."""
        if not any(len(ranged.times) > 1 for ranged in self.ranges.values()):
            return self
        ranges = {name: ranged.united() for name, ranged in self.ranges.items()}
        return PunctuationTable(
            self.schema, self.constants, ranges, self.tables, self.wide, self.everything, self._span
        )

    def columns(self) -> dict[str, ColumnPunctuation]:
        """The promises of single columns as sets of their own."""
        found = {name: ColumnPunctuation(self.schema.field(name).type) for name in (*self.constants, *self.ranges)}
        for name, listed in self.constants.items():
            found[name].add_keys(listed.keys, listed.times)
            found[name].null = listed.null
        for name, ranged in self.ranges.items():
            found[name].add_ranges(ranged.runs, ranged.times)
        return found

    def pieces(self, name: str, places: np.ndarray) -> np.ndarray | None:
        """What is said of one column, as rows of a first and a last rank, a time, and the place of the promise that
        says it, in the order of places; None: its values have no ranks, or a null is promised."""
        listed, ranged = self.constants.get(name), self.ranges.get(name)
        some = listed or ranged
        if some is None:
            return np.empty((0, 4), np.int64)
        if some.order.kind is not Kind.RANK or (listed is not None and listed.null != NEVER):
            return None
        n = 0 if listed is None else len(listed.times)
        out = np.empty((n + (0 if ranged is None else len(ranged.times)), 4), np.int64)
        if listed is not None:
            out[:n, 0] = out[:n, 1] = listed.keys
            out[:n, 2], out[:n, 3] = listed.times, places[listed.of]
        if ranged is not None:
            out[n:, :2], out[n:, 2], out[n:, 3] = ranged.runs, ranged.times, places[ranged.of]
        return out if listed is None or ranged is None else out[out[:, 3].argsort(kind="stable")]

    # -- for people ---------------------------------------------------------------------------------------------------

    @property
    def words(self) -> tuple[Punctuation, ...]:
        """Promises that say the same, as few as there are entries or fewer."""
        if self._words is None:
            count = sum(len(times) for times in self._times())
            nested = any(listed.order.kind is Kind.OPAQUE for listed in self.constants.values())
            self._words = tuple(self._said(nested or count >= FEW))
        return self._words

    def _said(self, many: bool) -> Iterator[Punctuation]:
        if self.everything != NEVER:
            yield Punctuation({}, self.everything)
        if many:
            for name, column in self.columns().items():
                for pattern, t in column.patterns():
                    yield Punctuation({name: pattern}, t)
        else:
            for name, listed in self.constants.items():
                for values, t in by_value(listed):
                    yield Punctuation({name: OneOf(values)}, t)
            for name, ranged in self.ranges.items():
                for run, t in zip(ranged.listed_runs(), ranged.times.tolist(), strict=True):
                    for pattern in shown(run, ranged.order):
                        yield Punctuation({name: pattern}, t)
        for shape, entries in self.tables.items():
            if many:
                table = BoxTable(self.schema, shape)
                table.add(entries)
                yield from table.promises()
            else:
                yield from promises_of(entries, shape, self.schema)
        for wide in self.wide:
            yield wide.promise

    def __len__(self) -> int:
        if self._count < 0:
            counts = [listed.at_once for listed in self.constants.values()]
            counts += [ranged.one_by_one for ranged in self.ranges.values()]
            told = self.single and all(counts) and sum(map(len, self._times())) < FEW
            self._count = sum(counts) if told else len(self.words)
        return self._count

    def __iter__(self) -> Iterator[Punctuation]:
        return iter(self.words)

    @overload
    def __getitem__(self, at: int) -> Punctuation: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Punctuation]: ...

    def __getitem__(self, at: int | slice) -> Punctuation | Sequence[Punctuation]:
        return self.words[at]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self.words == tuple(other) if self and other else not (self or other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PunctuationTable{self.words}"


def joined(parts: Iterable[PunctuationTable]) -> PunctuationTable:
    """What several say, over the same columns; there is one at least."""
    listed = list(parts)
    some = [part for part in listed if part]
    if len(some) < 2:
        return some[0] if some else listed[0]
    constants: dict[str, list[Listed]] = {}
    ranges: dict[str, list[Ranged]] = {}
    tables: dict[Shape, list[Entries]] = {}
    for part in some:
        for name, one in part.constants.items():
            constants.setdefault(name, []).append(one)
        for name, run in part.ranges.items():
            ranges.setdefault(name, []).append(run)
        for shape, entries in part.tables.items():
            tables.setdefault(shape, []).append(entries)
    return PunctuationTable(
        some[0].schema,
        {name: joined_lists(these) for name, these in constants.items()},
        {name: joined_ranges(those) for name, those in ranges.items()},
        {shape: joined_entries(found) for shape, found in tables.items()},
        [wide for part in some for wide in part.wide],
        max(part.everything for part in some),
    )

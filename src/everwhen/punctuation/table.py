"""Punctuation as it travels: arrays of values and of times, instead of objects one by one.

What binds one column stands by that column: its constants and its ranges (`Part`).  What binds several columns is a
plain list.  `PunctuationTable` is also a sequence of `Punctuation`s that say the same in few words; these are made when
somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, overload

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.scalars import python_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.punctuation.columns.column import ColumnStore
from everwhen.punctuation.columns.intervals import normal
from everwhen.punctuation.columns.loops import least_and_most
from everwhen.punctuation.columns.wide import shape_of
from everwhen.punctuation.parts import (
    FEW,
    NO_INTS,
    Part,
    constant_patterns,
    constants_part,
    joined_parts,
    pieces_part,
    range_patterns,
)
from everwhen.values.order import Kind, constants, order_of
from everwhen.values.sets import union

MOST_WIDE: Final = 64
"""So many punctuations that bind several columns may follow from fewer."""


class PunctuationTable(Sequence[Punctuation]):
    """What some punctuations say.  Nothing of it is changed once it is made."""

    __slots__ = ("_span", "_words", "constants", "everything", "ranges", "schema", "wide")

    def __init__(
        self,
        schema: Schema,
        constants: Mapping[str, Part] | None = None,
        ranges: Mapping[str, Part] | None = None,
        wide: Sequence[Punctuation] = (),
        everything: int = NEVER,
    ) -> None:
        self.schema = schema
        self.constants = {name: part for name, part in constants.items() if part} if constants else {}
        self.ranges = {name: part for name, part in ranges.items() if part} if ranges else {}
        self.wide = wide
        self.everything = everything
        self._span: tuple[int, int] | None = None
        self._words: tuple[Punctuation, ...] | None = None

    @staticmethod
    def of_keys(
        schema: Schema, names: Sequence[str], columns: Sequence[pa.Array], times: np.ndarray
    ) -> PunctuationTable:
        """Rows of constants of some columns, each with a time."""
        if len(names) == 1:
            return PunctuationTable(schema, {names[0]: constants_part(order_of(columns[0].type), columns[0], times)})
        rows = zip(*map(python_values, columns), strict=True)
        found = [
            Punctuation({name: OneOf((value,)) for name, value in zip(names, row, strict=True)}, t)
            for row, t in zip(rows, times.tolist(), strict=True)
        ]
        return PunctuationTable(schema, wide=[_in_order(promise, schema) for promise in found])

    def __bool__(self) -> bool:
        return bool(self.constants or self.ranges or self.wide or self.everything != NEVER)

    @property
    def single(self) -> bool:
        """Whether every punctuation binds one column."""
        return not self.wide and self.everything == NEVER

    @property
    def only_constants(self) -> str | None:
        """The column of which it says some constants, no null among them, if it says nothing else."""
        if len(self.constants) != 1 or self.ranges or not self.single:
            return None
        ((name, part),) = self.constants.items()
        return name if part.null == NEVER else None

    @property
    def bound(self) -> set[str]:
        """The columns that are bound."""
        return {*self.constants, *self.ranges, *(name for promise in self.wide for name in promise.match)}

    # -- times ----------------------------------------------------------------------------------------------------

    @property
    def span(self) -> tuple[int, int]:
        """A time that none is smaller than, and the largest."""
        if self._span is None:
            parts = (*self.constants.values(), *self.ranges.values())
            found = [promise.t for promise in self.wide]
            found += [t for t in (self.everything, *[part.null for part in parts]) if t != NEVER]
            for part in parts:
                if len(part.times):
                    found += least_and_most(part.times)
            self._span = (min(found), max(found)) if found else (INF, NEVER)
        return self._span

    def after(self, t: int) -> PunctuationTable:
        """What it says of later times."""
        if t == NEVER or t < self.span[0]:
            return self
        if t >= self.span[1]:
            return PunctuationTable(self.schema)
        return PunctuationTable(
            self.schema,
            {name: part.after(t) for name, part in self.constants.items()},
            {name: part.after(t) for name, part in self.ranges.items()},
            [promise for promise in self.wide if promise.t > t],
            self.everything if self.everything > t else NEVER,
        )

    def moved(self, to: Callable[[int], int]) -> PunctuationTable:
        """The same with other times."""
        return PunctuationTable(
            self.schema,
            {name: part.moved(to) for name, part in self.constants.items()},
            {name: part.moved(to) for name, part in self.ranges.items()},
            [Punctuation(promise.match, to(promise.t)) for promise in self.wide],
            self.everything if self.everything == NEVER else to(self.everything),
        )

    def until(self, t: int) -> PunctuationTable:
        """The same with times of at most `t`."""
        return self if t >= self.span[1] else self.moved(lambda other: min(t, other))

    # -- columns ----------------------------------------------------------------------------------------------------

    def renamed(self, names: Mapping[str, str], schema: Schema) -> PunctuationTable:
        """The same over columns that have other names; all that it binds are among them."""
        wide = (
            Punctuation({names[name]: pattern for name, pattern in promise.match.items()}, promise.t)
            for promise in self.wide
        )
        found = PunctuationTable(
            schema,
            {names[name]: part for name, part in self.constants.items()},
            {names[name]: part for name, part in self.ranges.items()},
            [_in_order(promise, schema) for promise in wide],
            self.everything,
        )
        return self._with_span(found)

    def split(self, columns: Collection[str]) -> tuple[PunctuationTable, PunctuationTable]:
        """What binds only these columns, and the rest."""
        inside, outside = (
            PunctuationTable(
                self.schema,
                {name: part for name, part in self.constants.items() if (name in columns) is which},
                {name: part for name, part in self.ranges.items() if (name in columns) is which},
                [promise for promise in self.wide if all(name in columns for name in promise.match) is which],
                self.everything if which else NEVER,
            )
            for which in (True, False)
        )
        return inside, outside

    def split_keys(self, names: Sequence[str]) -> tuple[list[pa.Array], np.ndarray, PunctuationTable]:
        """What binds all of these columns to constants, and no others: the constants by columns and their times; and
        the rest."""
        if len(names) == 1:
            part = self.constants.get(names[0])
            if part is None:
                return [], NO_INTS, self
            rest = {name: other for name, other in self.constants.items() if name != names[0]}
            column, times = part.column()
            return [column], times, PunctuationTable(self.schema, rest, self.ranges, self.wide, self.everything)
        found: list[Punctuation] = []
        others: list[Punctuation] = []
        for promise in self.wide:
            shape = shape_of(promise.match)
            whole = shape is not None and not shape.ranges and {*shape.constants} == {*names}
            (found if whole else others).append(promise)
        if not found:
            return [], NO_INTS, self
        columns = [
            constants([promise.match[name].values[0] for promise in found], self.schema.field(name).type)  # type: ignore[union-attr]
            for name in names
        ]
        rest_of = PunctuationTable(self.schema, self.constants, self.ranges, others, self.everything)
        return columns, np.array([promise.t for promise in found], np.int64), rest_of

    def spelled_out(self, name: str, most: int) -> PunctuationTable:
        """The same with ranges of up to `most` ranks of a column as lists of their constants."""
        part = self.ranges.get(name)
        if part is None or part.order.kind is not Kind.RANK:
            return self
        lows, highs, _ = part.keys.T
        short = (highs < lows + most) & (lows < part.order.hi - most)
        if not short.any():
            return self
        sizes = (highs - lows + 1)[short]
        keys = np.repeat(lows[short] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        spelled = {name: Part(part.order, keys, np.repeat(part.times[short], sizes))}
        ranges = {**self.ranges, name: part.taken(np.flatnonzero(~short))}
        rest = PunctuationTable(self.schema, self.constants, ranges, self.wide, self.everything)
        return joined([PunctuationTable(self.schema, spelled), rest])

    def narrowed(self, *sources: PunctuationTable) -> PunctuationTable:
        """The same without some of those that bind several columns, if they are many: no more than one of the sources
        has.  Those that bind fewest columns stay.  Promises of two ports multiply otherwise, from operator to operator,
        and what binds many columns is of little use."""
        if len(self.wide) <= MOST_WIDE:
            return self
        most = max(MOST_WIDE, *(len(source.wide) for source in sources))
        kept = sorted(self.wide, key=lambda promise: (len(promise.match), -promise.t))[:most]
        return PunctuationTable(self.schema, self.constants, self.ranges, kept, self.everything)

    def united(self) -> PunctuationTable:
        """The same with ranges that meet or touch as one."""
        if not any(len(part.times) > 1 for part in self.ranges.values()):
            return self
        ranges = {name: _united(part) for name, part in self.ranges.items()}
        return self._with_span(PunctuationTable(self.schema, self.constants, ranges, self.wide, self.everything))

    def _with_span(self, other: PunctuationTable) -> PunctuationTable:
        other._span = self._span
        return other

    def pieces(self, most: int) -> dict[str, tuple[np.ndarray, np.ndarray]] | None:
        """By column: pieces (a first and a last rank, a time) and which punctuation says each, in this order.

        None: that is not all it says, or there are more than `most` of a column.
        """
        if not self.single:
            return None
        found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for part, name in ((part, name) for parts in (self.constants, self.ranges) for name, part in parts.items()):
            pieces, of = part.pieces(), part.of
            if pieces is None or len(pieces) > most:
                return None
            if name in found:
                of = np.concatenate((found[name][1], of))
                order = of.argsort(kind="stable")
                pieces, of = np.concatenate((found[name][0], pieces))[order], of[order]
            found[name] = pieces, of
        return found

    # -- for people ---------------------------------------------------------------------------------------------------

    @property
    def words(self) -> tuple[Punctuation, ...]:
        """Punctuations that say the same, as few as there are entries or fewer."""
        if self._words is None:
            self._words = tuple(self._said())
        return self._words

    def _said(self) -> Iterator[Punctuation]:
        if self.everything != NEVER:
            yield Punctuation({}, self.everything)
        constants, ranges = self.constants, self.ranges
        if sum(len(part.times) for part in (*constants.values(), *ranges.values())) >= FEW:
            stores = {name: ColumnStore(self.schema.field(name).type) for name in (*constants, *ranges)}
            for name, store in stores.items():
                store.add(constants.get(name), ranges.get(name))
            constants = {name: store.constants() for name, store in stores.items()}
            ranges = {name: store.ranges() for name, store in stores.items()}
        for name, part in constants.items():
            yield from (Punctuation({name: pattern}, t) for pattern, t in constant_patterns(part))
        for name, part in ranges.items():
            yield from (Punctuation({name: pattern}, t) for pattern, t in range_patterns(part))
        yield from self.wide

    def __len__(self) -> int:
        if self._words is None and self.single:  # mostly nobody reads them
            counts = [part.pattern_count() for parts in (self.constants, self.ranges) for part in parts.values()]
            if 0 not in counts:
                return sum(counts)
        return len(self.words)

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
    constants: dict[str, list[Part]] = {}
    ranges: dict[str, list[Part]] = {}
    for table in some:
        for name, part in table.constants.items():
            constants.setdefault(name, []).append(part)
        for name, part in table.ranges.items():
            ranges.setdefault(name, []).append(part)
    return PunctuationTable(
        some[0].schema,
        {name: joined_parts(these) for name, these in constants.items()},
        {name: joined_parts(these) for name, these in ranges.items()},
        [promise for table in some for promise in table.wide],
        max(table.everything for table in some),
    )


def _united(part: Part) -> Part:
    if len(part.times) < 2:
        return part
    if part.order.kind is Kind.RANK:
        return pieces_part(part.order, normal(part.keys))
    by_time: dict[int, list] = {}
    for run, t in zip(part.keys, part.times.tolist(), strict=True):
        by_time.setdefault(t, []).append(run)
    said = [(run, t) for t in sorted(by_time, reverse=True) for run in union(by_time[t])]
    return Part(part.order, [run for run, _ in said], np.array([t for _, t in said], np.int64))


def _in_order(promise: Punctuation, schema: Schema) -> Punctuation:
    """The patterns in the order of the schema."""
    return Punctuation({name: promise.match[name] for name in schema.names if name in promise.match}, promise.t)

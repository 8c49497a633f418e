"""Histories: what a stream says once all its adjusts are applied, whatever the order of arrival.

The history of a stream is the multiset of its events `(vs, ve, row)`; its snapshot at `t` is the multiset of rows alive
at `t`.  Two streams are equal when their snapshots are equal at every instant (`same_history`), however the lifetimes
are cut into events; `History.coalesced` is the one representative that all equal streams share: canonical level form,
in which level k of a row consists of the maximal intervals with at least k copies of it (Krämer, 8.2; semantics.md, 2).

Everything works on the edges of lifetimes, never tick by tick, so that infinite and very long lifetimes cost nothing.
Rows are tuples of Python values in the order of the schema; NaN equals NaN here, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import nan
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import from_python, python_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF, show
from everwhen.errors import InputError
from everwhen.stream.element import Adjust, Element, Insert
from everwhen.stream.element_batch import ADJUST, INSERT, ElementBatch, batch_of
from everwhen.stream.history_diff import Difference, first_difference, same_history

__all__ = ["Difference", "Event", "History", "RowTuple", "first_difference", "same_history"]

RowTuple = tuple[Any, ...]
Event = tuple[int, int, RowTuple]
Elements = ElementBatch | Iterable[Element | ElementBatch]


@dataclass(frozen=True, eq=False)
class History:
    """A multiset of events.  `==` compares the events themselves; `same_history` compares what they mean.

    >>> a = History.of([Insert(0, 5, {"x": 1}), Insert(5, 9, {"x": 1})])
    >>> b = History.of([Insert(0, 7, {"x": 1}), Adjust(0, 7, 9, {"x": 1})])
    >>> a == b, same_history(a, b), a.coalesced() == b
    (False, True, True)
    >>> print(first_difference(a, History.of([Insert(0, 8, {"x": 1})])))
    differ first at instant 8
      missing: x=1
    """

    schema: Schema
    multiset: Mapping[Event, int]
    """Every event and how often it is there."""

    @classmethod
    def of(cls, elements: Elements, schema: Schema | None = None) -> History:
        """The history of a stream; an adjust whose event is not there is an `InputError`.

        Without a schema the elements' batches give it, or the values of the rows (an attribute that some rows lack
        is null there).  Promises do not matter here: `everwhen.stream.validity` checks them.
        """
        batches = batches_of(elements, schema)
        first = next(batches, None)
        if first is None:
            return cls(Schema(()) if schema is None else schema, MappingProxyType({}))
        schema = first.schema if schema is None else schema
        events: dict[Event, int] = {}
        for batch in chain([first], batches):
            _apply(events, _conform(batch, schema))
        return cls(schema, MappingProxyType(events))

    def __len__(self) -> int:
        return sum(self.multiset.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return self.schema == other.schema and self.multiset == other.multiset

    def __hash__(self) -> int:
        return hash(frozenset(self.multiset.items()))

    def __str__(self) -> str:
        lines = [f"[{show(vs)}, {show(ve)}) {self.show(row)}" for vs, ve, row in self.events()]
        return "\n".join(lines) or "(empty)"

    def show(self, row: RowTuple) -> str:
        """A row for people."""
        return " ".join(f"{name}={value!r}" for name, value in zip(self.schema.names, row, strict=True))

    def events(self) -> Iterator[Event]:
        """The events in canonical order: by start, end, row (nulls first), copies one after the other."""
        for event in self._ordered:
            for _ in range(self.multiset[event]):
                yield event

    @cached_property
    def _ordered(self) -> list[Event]:
        return sorted(self.multiset, key=_order)

    def snapshot(self, t: int) -> Counter[RowTuple]:
        """The rows alive at the instant `t`, with their multiplicities.  Looks at every event."""
        alive: Counter[RowTuple] = Counter()
        for (vs, ve, row), count in self.multiset.items():
            if vs <= t < ve:
                alive[row] += count
        return alive

    def instants(self) -> tuple[int, ...]:
        """All finite edges in order: between two of them the snapshot does not change."""
        edges = {vs for vs, _, _ in self.multiset} | {ve for _, ve, _ in self.multiset}
        return tuple(sorted(edges - {INF}))

    @cached_property
    def level_form(self) -> Mapping[RowTuple, tuple[tuple[int, int, int], ...]]:
        """For every row its levels as `(level, lo, hi)`: the maximal intervals with at least so many copies."""
        edges: dict[RowTuple, dict[int, int]] = {}
        for (vs, ve, row), count in self.multiset.items():
            of_row = edges.setdefault(row, {})
            of_row[vs] = of_row.get(vs, 0) + count
            of_row[ve] = of_row.get(ve, 0) - count
        return MappingProxyType({row: _levels(of_row) for row, of_row in edges.items()})

    def coalesced(self) -> History:
        """The same snapshots in canonical level form: equal for all streams that are equal."""
        events: Counter[Event] = Counter()
        for row, levels in self.level_form.items():
            for _, lo, hi in levels:
                events[lo, hi, row] += 1
        return History(self.schema, MappingProxyType(dict(events)))

    def at(self, t: int) -> History:
        """The snapshot at `t` as a history of its own: every row during `[t, t + 1)`."""
        return History(self.schema, MappingProxyType({(t, t + 1, row): n for row, n in self.snapshot(t).items()}))

    def batch(self) -> ElementBatch:
        """The events in canonical order as inserts."""
        events = list(self.events())
        n = len(events)
        vs = np.fromiter((event[0] for event in events), np.int64, n)
        ve = np.fromiter((event[1] for event in events), np.int64, n)
        columns = tuple(from_python([e[2][j] for e in events], type_) for j, type_ in enumerate(self.schema.types))
        return ElementBatch(self.schema, np.full(n, INSERT, np.uint8), vs, ve, np.zeros(n, np.int64), columns)


def _order(event: Event) -> tuple[Any, ...]:
    vs, ve, row = event
    return vs, ve, [_rank(value) for value in row]


def _rank(value: Any) -> tuple[Any, ...]:
    """A key under which nulls come first, then NaN, then the values."""
    if value is None:
        return (0,)
    if value != value:
        return (1,)
    return (2, tuple(map(_rank, value))) if isinstance(value, tuple) else (2, value)


def _levels(edges: Mapping[int, int]) -> tuple[tuple[int, int, int], ...]:
    """The highest level is the youngest to begin and the first to end: a stack of starts."""
    found: list[tuple[int, int, int]] = []
    starts: list[int] = []
    for t in sorted(edges):
        change = edges[t]
        if change >= 0:
            starts.extend([t] * change)
        for _ in range(-change):
            found.append((len(starts), starts.pop(), t))
    return tuple(sorted(found))


def batches_of(elements: Elements, schema: Schema | None) -> Iterator[ElementBatch]:
    """The elements as batches; a run of single elements becomes one, whose schema its rows give if there is none."""
    if isinstance(elements, ElementBatch):
        elements = (elements,)
    single: list[Element] = []
    count = 1
    for element in elements:
        if not isinstance(element, ElementBatch):
            single.append(element)
            continue
        if single:
            yield _batch(single, schema, count)
            count += len(single)
            single = []
        count += len(element)
        yield element
    if single:
        yield _batch(single, schema, count)


def _batch(elements: list[Element], schema: Schema | None, first: int) -> ElementBatch:
    names = None if schema is None else set(schema.names)
    for i, element in enumerate(elements):
        if names is not None and isinstance(element, Insert | Adjust) and not element.row.keys() <= names:
            extra = min(element.row.keys() - names)
            raise InputError(f"the row has the attribute {extra!r}, which the schema {schema} lacks", line=first + i)
    batch = batch_of(elements, _schema_of(elements) if schema is None else schema)
    return ElementBatch(
        batch.schema, batch.op, batch.vs, batch.ve, batch.vnew, batch.columns, batch.promises, None, first
    )


def _conform(batch: ElementBatch, schema: Schema) -> ElementBatch:
    if batch.schema == schema:
        return batch
    extra = [name for name in batch.schema.names if name not in schema]
    if extra:
        raise _wrong(batch, 0, f"a column {extra[0]!r} that the schema {schema} lacks", "batches of one stream agree")
    columns = tuple(
        batch.columns[batch.schema.index(field.name)].cast(field.type)
        if field.name in batch.schema
        else pa.nulls(len(batch), field.type)
        for field in schema
    )
    return ElementBatch(
        schema,
        batch.op,
        batch.vs,
        batch.ve,
        batch.vnew,
        columns,
        batch.promises,
        batch.source,
        batch.first_line,
        batch.lines,
    )


def _schema_of(elements: list[Element]) -> Schema:
    """The types of Python rows, by Arrow's rules; always null is a string."""
    rows = [element.row for element in elements if isinstance(element, Insert | Adjust)]
    found: list[tuple[str, pa.DataType]] = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(name) for row in rows]
        if len({isinstance(value, bool) for value in values if value is not None}) > 1:
            raise InputError(f"the attribute {name!r} is true or false in some rows and something else in others")
        try:
            type_ = pa.array(values).type
        except (pa.ArrowException, OverflowError) as bad:
            raise InputError(f"the values of attribute {name!r} have no common type: {bad}") from None
        found.append((name, pa.string() if pa.types.is_null(type_) else type_))
    return Schema.of(found)


def canonical_rows(batch: ElementBatch) -> list[RowTuple]:
    """The payloads of a batch as tuples that compare as payloads do: one NaN, one zero."""
    columns = [_canonical(column) for column in batch.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * len(batch)


def _canonical(column: pa.Array) -> list[Any]:
    values = python_values(column)
    if pa.types.is_floating(column.type):
        return [value if value is None else nan if value != value else value + 0.0 for value in values]
    return [_one_nan(value) for value in values] if pa.types.is_nested(column.type) else values


def _one_nan(value: Any) -> Any:
    """One NaN object for all: tuples compare and hash a NaN by identity."""
    if isinstance(value, tuple):
        return tuple(map(_one_nan, value))
    return (nan if value != value else value + 0.0) if isinstance(value, float) else value


def _apply(events: dict[Event, int], batch: ElementBatch) -> None:
    rows = canonical_rows(batch)
    times = zip(batch.op.tolist(), batch.vs.tolist(), batch.ve.tolist(), batch.vnew.tolist(), rows, strict=True)
    for i, (op, vs, ve, vnew, row) in enumerate(times):
        if op > ADJUST:
            continue
        event = (vs, ve, row)
        if op == INSERT:
            if vs >= ve:
                raise _wrong(
                    batch, i, f"the lifetime [{show(vs)}, {show(ve)}) is empty", "the end comes after the start"
                )
            events[event] = events.get(event, 0) + 1
            continue
        there = events.get(event, 0)
        if not there:
            problem = f"adjusts an event that is not there: {batch_element(batch, i)}"
            raise _wrong(batch, i, problem, "its start, end and row must be those of an earlier event")
        if there == 1:
            del events[event]
        else:
            events[event] = there - 1
        if vnew > vs:
            moved = (vs, vnew, row)
            events[moved] = events.get(moved, 0) + 1
        elif vnew < vs:
            raise _wrong(batch, i, f"the new end {vnew} lies before the start {vs}", "vnew = vs removes the event")


def batch_element(batch: ElementBatch, index: int) -> Element:
    """One element of a batch, for a message."""
    return next(batch.slice(index, 1).elements())


def _wrong(batch: ElementBatch, index: int, problem: str, remedy: str) -> InputError:
    return InputError(problem, source=batch.source, line=batch.line(index), remedy=remedy)

"""Promises read by their form: which columns they bind, by constants or by ranges, as columns and runs of keys.

All of a batch is read before any of it is kept, so a pattern that does not fit its column leaves nothing half-done.  A
list is its constants; a range with one value is a constant; what matches nothing is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.scalars import show_value
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.errors import QueryError
from everwhen.punctuation.columns.boxes import Entries, Shape
from everwhen.punctuation.columns.column import ColumnPunctuation
from everwhen.punctuation.table import PunctuationTable
from everwhen.punctuation.table_parts import Listed, Ranged, WidePromise, listed_of
from everwhen.punctuation.values.order import Kind, ValueOrder, constants, order_of
from everwhen.punctuation.values.sets import Run, no_order, range_of, run_of, run_of_integers

WIDE: Final = 4096
"""A promise over several columns that has more combinations of constants is kept as lists."""
NO_PATTERN: Final = (
    "write OneOf((value, …)), Range(ge=…, lt=…) or Nothing(); Punctuation.constants({name: value}) binds constants"
)


class _Rows:
    """Entries of one shape, under way."""

    def __init__(self, shape: Shape) -> None:
        self.values: list[list[Any]] = [[] for _ in shape.constants]
        self.runs: list[list[Run]] = [[] for _ in shape.ranges]
        self.times: list[int] = []


def read_promises(promises: Iterable[Punctuation], schema: Schema, strict: bool = False) -> PunctuationTable:
    """Promises by form; an unknown attribute or a constant that is not of its type is a `QueryError`.

    `strict`: so is a range that holds no value, which somebody has written by mistake.  Those that have been read stay
    as they are: they are about columns of these names and types.
    """
    if isinstance(promises, PunctuationTable):
        return promises
    everything = NEVER
    lists: dict[str, tuple[list[Any], list[int], list[int]]] = {}
    runs: dict[str, tuple[list[Run], list[int], list[int]]] = {}
    tables: dict[Shape, _Rows] = {}
    wide: list[WidePromise] = []
    orders: dict[str, ValueOrder] = {}
    for i, promise in enumerate(promises):
        match, t = promise.match, promise.t
        if t == NEVER:
            continue
        if len(match) == 1:
            ((name, pattern),) = match.items()
            order = orders.get(name)
            if order is None:
                order = orders[name] = order_of(schema.field(name, "a pattern").type)
            if isinstance(pattern, OneOf):
                found = lists.get(name)
                if found is None:
                    found = lists[name] = ([], [], [])
                values = pattern.values
                if len(values) == 1:
                    found[0].append(values[0])
                    found[1].append(t)
                    found[2].append(i)
                else:
                    found[0].extend(values)
                    found[1].extend([t] * len(values))
                    found[2].extend([i] * len(values))
            elif isinstance(pattern, Range):
                run = _run(name, pattern, order)
                if run is not None:
                    spans = runs.get(name)
                    if spans is None:
                        spans = runs[name] = ([], [], [])
                    spans[0].append(run)
                    spans[1].append(t)
                    spans[2].append(i)
                elif strict:
                    raise _no_value(name, pattern)
            elif not isinstance(pattern, Nothing):
                raise no_pattern(name, pattern)
        elif not match:
            everything = max(everything, t)
        else:
            _several(promise, schema, tables, wide, strict)
    span = [t for found in (*lists.values(), *runs.values()) for t in found[1]]
    span += [t for rows in tables.values() for t in rows.times] + [each.promise.t for each in wide]
    span += [everything] if everything != NEVER else []
    return PunctuationTable(
        schema,
        {name: _listed(name, orders[name], *found) for name, found in lists.items() if found[0]},
        {name: _ranged(orders[name], *found) for name, found in runs.items()},
        {shape: _entries(schema, shape, rows) for shape, rows in tables.items()},
        wide,
        everything,
        (min(span), max(span)) if span else None,
    )


def _listed(name: str, order: ValueOrder, values: list[Any], times: list[int], of: list[int]) -> Listed:
    until, said_by = np.array(times, np.int64), np.array(of, np.int64)
    if order.whole and set(map(type, values)) == {int}:
        try:
            keys = np.array(values, np.int64)
        except OverflowError:
            keys = None
        if keys is not None and (order.plain or (order.lo <= int(keys.min()) and int(keys.max()) <= order.hi)):
            return Listed(order, keys, until, NEVER, said_by)
    return listed_of(order, constants(values, order.type, name), until, said_by)


def _ranged(order: ValueOrder, runs: list[Run], times: list[int], of: list[int]) -> Ranged:
    until, said_by = np.array(times, np.int64), np.array(of, np.int64)
    if order.kind is not Kind.RANK:
        return Ranged(order, runs, until, said_by)
    end = order.hi
    return Ranged(order, np.array([(lo, end if hi is None else hi - 1) for lo, hi in runs], np.int64), until, said_by)


def _entries(schema: Schema, shape: Shape, rows: _Rows) -> Entries:
    columns = [
        constants(values, schema.field(name).type, name)
        for name, values in zip(shape.constants, rows.values, strict=True)
    ]
    return Entries(columns, rows.runs, np.array(rows.times, np.int64))


def wide_promise(promise: Punctuation, schema: Schema) -> WidePromise:
    """A promise to be kept as it is."""
    columns: dict[str, ColumnPunctuation] = {}
    for name, pattern in promise.match.items():
        columns |= read_promises([Punctuation({name: pattern}, promise.t)], schema).columns()
    return WidePromise(promise, columns)


def no_pattern(name: str, pattern: object) -> QueryError:
    return QueryError(f"{pattern!r} is no pattern for {name!r}; {NO_PATTERN}")


def _no_value(name: str, pattern: Range) -> QueryError:
    bounds = {bound: getattr(pattern, bound) for bound in ("ge", "gt", "le", "lt")}
    shown_ = ", ".join(f"{bound}={show_value(value)}" for bound, value in bounds.items() if value is not None)
    return QueryError(f"the range ({shown_}) of {name!r} holds no value; Nothing() is the empty pattern")


def _run(name: str, pattern: Range, order: ValueOrder) -> Run | None:
    if order.plain:
        run = run_of_integers(pattern)
        if run is not None:
            return None if run[1] is not None and run[0] >= run[1] else run
    if order.kind is Kind.OPAQUE:
        raise no_order(order.type, name)
    return run_of(pattern, order, name)


def _several(
    promise: Punctuation, schema: Schema, tables: dict[Shape, _Rows], wide: list[WidePromise], strict: bool
) -> None:
    """A promise that binds several columns: one entry for each combination of its constants."""
    lists: list[tuple[str, tuple[Any, ...]]] = []
    runs: list[tuple[str, Run]] = []
    for name, pattern in sorted(promise.match.items(), key=lambda bound: schema.index(bound[0], "a pattern")):
        read = _read(name, pattern, schema)
        if isinstance(read, OneOf):
            lists.append((name, read.values))
        elif read is not None:
            runs.append((name, read))
        elif strict and isinstance(pattern, Range):
            raise _no_value(name, pattern)
        else:
            return
    if prod(len(values) for _, values in lists) > WIDE:
        wide.append(wide_promise(promise, schema))
        return
    shape = Shape(tuple(name for name, _ in lists), tuple(name for name, _ in runs))
    rows = tables.get(shape)
    if rows is None:
        rows = tables[shape] = _Rows(shape)
    for combination in product(*(values for _, values in lists)):
        for column, value in zip(rows.values, combination, strict=True):
            column.append(value)
        for held, (_, run) in zip(rows.runs, runs, strict=True):
            held.append(run)
        rows.times.append(promise.t)


def _read(name: str, pattern: AttributePattern, schema: Schema) -> OneOf | Run | None:
    match pattern:
        case Nothing() | OneOf(()):
            return None
        case OneOf():
            return pattern
        case Range():
            run = _run(name, pattern, order_of(schema.field(name).type))
            if run is None or run[1] is None:
                return run
            single = range_of(*run, schema.field(name).type) if _may_be_one(run) else None
            return single if isinstance(single, OneOf) else run
        case _:
            raise no_pattern(name, pattern)


def _may_be_one(run: Run) -> bool:
    """Whether a run may hold a single value: only then it is worth a closer look."""
    lo, hi = run
    return bool(hi == lo + (1 if isinstance(lo, int) else b"\0"))

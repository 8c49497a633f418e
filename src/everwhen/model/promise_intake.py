"""Promises read by their form: which columns they bind, by constants or by ranges, as columns and runs of keys.

All of a batch is read before any of it is kept, so a pattern that does not fit its column leaves nothing half-done.  A
list is its constants; a range with one value is a constant; what matches nothing is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.model.box_table import Entries, Shape
from everwhen.model.column_promises import ColumnPromises
from everwhen.model.punctuation import AttributePattern, Nothing, OneOf, Promise, Range
from everwhen.model.schema import Schema
from everwhen.model.time import NEVER
from everwhen.model.value_order import Kind, constants, order_of
from everwhen.model.value_spans import Run, no_order, range_of, run_of

WIDE: Final = 4096
"""A promise over several columns that has more combinations of constants is kept as lists."""


@dataclass(frozen=True)
class WidePromise:
    """A promise that is kept as it is, with each of its patterns as a set of its own."""

    promise: Promise
    columns: Mapping[str, ColumnPromises]

    @classmethod
    def of(cls, promise: Promise, schema: Schema) -> WidePromise:
        columns: dict[str, ColumnPromises] = {}
        for name, pattern in promise.match.items():
            found = read_promises([Promise({name: pattern}, promise.t)], schema)
            columns |= found.columns()
        return cls(promise, columns)

    def raise_to(self, columns: Mapping[str, pa.Array], out: np.ndarray) -> None:
        inside = np.full(len(out), self.promise.t, np.int64)
        for name, column in self.columns.items():
            matched = np.full(len(out), NEVER, np.int64)
            column.raise_to(columns[name], matched)
            np.minimum(inside, matched, out=inside)
        np.maximum(out, inside, out=out)


@dataclass
class Intake:
    """What a batch of promises says."""

    schema: Schema
    everything: int = NEVER
    constants: dict[str, tuple[pa.Array, np.ndarray]] = field(default_factory=dict)
    ranges: dict[str, tuple[list[Run], np.ndarray]] = field(default_factory=dict)
    tables: dict[Shape, Entries] = field(default_factory=dict)
    wide: list[WidePromise] = field(default_factory=list)

    def columns(self) -> dict[str, ColumnPromises]:
        """The promises of single columns as sets of their own."""
        found = {name: ColumnPromises(self.schema.field(name).type) for name in (*self.constants, *self.ranges)}
        for name, (values, times) in self.constants.items():
            found[name].add_constants(values, times)
        for name, (runs, times) in self.ranges.items():
            found[name].add_runs(runs, times)
        return found


class _Rows:
    """Entries of one shape, under way."""

    def __init__(self, shape: Shape) -> None:
        self.values: list[list[Any]] = [[] for _ in shape.constants]
        self.runs: list[list[Run]] = [[] for _ in shape.ranges]
        self.times: list[int] = []


def read_promises(promises: Iterable[Promise], schema: Schema) -> Intake:
    """Promises by form; an unknown attribute or a constant that is not of its type is a `QueryError`."""
    found = Intake(schema)
    constants_: dict[str, tuple[list[Any], list[int]]] = {}
    ranges: dict[str, tuple[list[Run], list[int]]] = {}
    tables: dict[Shape, _Rows] = {}
    known = frozenset(schema.names)
    for promise in promises:
        match, t = promise.match, promise.t
        if t == NEVER:
            continue
        if len(match) == 1:
            ((name, pattern),) = match.items()
            if name not in known:
                schema.index(name, "a pattern")  # says what there is
            if isinstance(pattern, OneOf):
                values, times = constants_.setdefault(name, ([], []))
                values.extend(pattern.values)
                times.extend([t] * len(pattern.values))
            elif isinstance(pattern, Range):
                run = _run(name, pattern, schema)
                if run is not None:
                    runs, times = ranges.setdefault(name, ([], []))
                    runs.append(run)
                    times.append(t)
        elif not match:
            found.everything = max(found.everything, t)
        else:
            _several(promise, schema, tables, found.wide)
    for name, (values, times) in constants_.items():
        if values:
            type_ = schema.field(name, "a pattern").type
            found.constants[name] = constants(values, type_, name), np.array(times, np.int64)
    found.ranges = {name: (runs, np.array(times, np.int64)) for name, (runs, times) in ranges.items()}
    for shape, rows in tables.items():
        columns = [
            constants(values, schema.field(name).type, name)
            for name, values in zip(shape.constants, rows.values, strict=True)
        ]
        found.tables[shape] = Entries(columns, rows.runs, np.array(rows.times, np.int64))
    return found


def _run(name: str, pattern: Range, schema: Schema) -> Run | None:
    type_ = schema.field(name, "a pattern").type
    order = order_of(type_)
    if order.kind is Kind.OPAQUE:
        raise no_order(type_, name)
    return run_of(pattern, order, name)


def _several(promise: Promise, schema: Schema, tables: dict[Shape, _Rows], wide: list[WidePromise]) -> None:
    """A promise that binds several columns: one entry for each combination of its constants."""
    lists: list[tuple[str, tuple[Any, ...]]] = []
    runs: list[tuple[str, Run]] = []
    for name, pattern in sorted(promise.match.items(), key=lambda bound: schema.index(bound[0], "a pattern")):
        read = _read(name, pattern, schema)
        if isinstance(read, OneOf):
            lists.append((name, read.values))
        elif read is not None:
            runs.append((name, read))
        else:
            return
    if prod(len(values) for _, values in lists) > WIDE:
        wide.append(WidePromise.of(promise, schema))
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
            run = _run(name, pattern, schema)
            if run is None or run[1] is None:
                return run
            single = range_of(*run, schema.field(name).type) if _may_be_one(run) else None
            return single if isinstance(single, OneOf) else run


def _may_be_one(run: Run) -> bool:
    """Whether a run may hold a single value: only then it is worth a closer look."""
    lo, hi = run
    return bool(hi == lo + (1 if isinstance(lo, int) else b"\0"))

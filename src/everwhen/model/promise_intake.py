"""Promises read by their form: which columns they bind, by constants or by ranges, as columns and runs of keys.

All of a batch is read before any of it is kept, so a pattern that does not fit its column leaves nothing half-done.  A
list is its constants; a range with one value is a constant; what matches nothing is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.errors import QueryError
from everwhen.model.box_table import Entries, Shape, promises_of
from everwhen.model.column_promises import ColumnPromises, shown
from everwhen.model.punctuation import AttributePattern, Nothing, OneOf, Promise, Range
from everwhen.model.scalars import python_values, show_value
from everwhen.model.schema import Schema
from everwhen.model.time import INF, NEVER
from everwhen.model.value_order import Kind, ValueOrder, constants, order_of
from everwhen.model.value_spans import Run, no_order, range_of, run_of, run_of_integers, union

WIDE: Final = 4096
"""A promise over several columns that has more combinations of constants is kept as lists."""
FEW: Final = 64
"""So few constants and ranges are put together one by one."""
_NO_INTS: Final = np.empty(0, np.int64)
NO_PATTERN: Final = (
    "write OneOf((value, …)), Range(ge=…, lt=…) or Nothing(); Promise.constants({name: value}) binds constants"
)


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


@dataclass(frozen=True, slots=True)
class Listed:
    """Constants of one column, their times, and which promise said each."""

    values: pa.Array
    times: np.ndarray
    of: list[int]

    def after(self, t: int) -> Listed | None:
        """Those with a later time."""
        if int(self.times.min()) > t:
            return self
        at = np.flatnonzero(self.times > t)
        if not len(at):
            return None
        return Listed(self.values.take(pa.array(at)), self.times[at], [self.of[i] for i in at.tolist()])


@dataclass(frozen=True, slots=True)
class Ranged:
    """Ranges of one column, their times, and which promise said each."""

    runs: list[Run]
    times: np.ndarray
    of: list[int]

    def after(self, t: int) -> Ranged | None:
        """Those with a later time."""
        if int(self.times.min()) > t:
            return self
        at = np.flatnonzero(self.times > t)
        if not len(at):
            return None
        return Ranged([self.runs[i] for i in at.tolist()], self.times[at], [self.of[i] for i in at.tolist() if self.of])


@dataclass
class Intake:
    """What a batch of promises says."""

    schema: Schema
    first: int = INF  # the smallest and the largest time
    last: int = NEVER
    everything: int = NEVER
    constants: dict[str, Listed] = field(default_factory=dict)
    ranges: dict[str, Ranged] = field(default_factory=dict)
    tables: dict[Shape, Entries] = field(default_factory=dict)
    wide: list[WidePromise] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.constants or self.ranges or self.tables or self.wide or self.everything != NEVER)

    @property
    def only_constants(self) -> str | None:
        """The column of which it says some constants, no null among them, if it says nothing else."""
        if len(self.constants) != 1 or self.ranges or self.tables or self.wide or self.everything != NEVER:
            return None
        ((name, listed),) = self.constants.items()
        return None if listed.values.null_count else name

    def after(self, t: int) -> Intake:
        """What it says of later times."""
        if t < self.first or t >= self.last:
            return self if t < self.first else Intake(self.schema)
        constants_ = {name: later for name, listed in self.constants.items() if (later := listed.after(t)) is not None}
        ranges = {name: rest for name, ranged in self.ranges.items() if (rest := ranged.after(t)) is not None}
        tables = {shape: entries.filter(entries.times > t) for shape, entries in self.tables.items()}
        return Intake(
            self.schema,
            t + 1,
            self.last,
            self.everything if self.everything > t else NEVER,
            constants_,
            ranges,
            {shape: entries for shape, entries in tables.items() if len(entries)},
            [wide for wide in self.wide if wide.promise.t > t],
        )

    def united(self) -> Intake:
        """The same with ranges that touch as one."""
        ranges = dict(self.ranges)
        for name, ranged in self.ranges.items():
            if len(ranged.runs) > 1:
                by_time = _by_time(zip(ranged.runs, ranged.times.tolist(), strict=True))
                said = [(run, t) for t, runs in by_time for run in union(runs)]
                ranges[name] = Ranged([run for run, _ in said], np.array([t for _, t in said], np.int64), [])
        return replace(self, ranges=ranges) if ranges else self

    def columns(self) -> dict[str, ColumnPromises]:
        """The promises of single columns as sets of their own."""
        found = {name: ColumnPromises(self.schema.field(name).type) for name in (*self.constants, *self.ranges)}
        for name, listed in self.constants.items():
            found[name].add_constants(listed.values, listed.times)
        for name, ranged in self.ranges.items():
            found[name].add_runs(ranged.runs, ranged.times)
        return found

    def pieces(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """What is said of one column as intervals of ranks: first, last, time, which promise; None: it has none."""
        order = order_of(self.schema.field(name).type)
        listed, ranged = self.constants.get(name), self.ranges.get(name)
        if order.kind is not Kind.RANK or (listed is not None and listed.values.null_count):
            return None
        lows, highs, times = _NO_INTS, _NO_INTS, _NO_INTS
        of: list[int] = []
        if listed is not None:
            lows = highs = np.ascontiguousarray(order.ranks(listed.values))
            times, of = listed.times, listed.of
        if ranged is not None:
            bounds = np.array([(lo, order.hi if hi is None else hi - 1) for lo, hi in ranged.runs], np.int64)
            lows, highs = np.concatenate((lows, bounds[:, 0])), np.concatenate((highs, bounds[:, 1]))
            times, of = np.concatenate((times, ranged.times)), [*of, *ranged.of]
        return lows, highs, times, np.array(of, np.int64)

    @property
    def few(self) -> bool:
        """Whether it says so little that it is put in few words one by one."""
        if any(pa.types.is_nested(listed.values.type) for listed in self.constants.values()):
            return False
        single = sum(len(listed.times) for listed in self.constants.values())
        single += sum(len(ranged.times) for ranged in self.ranges.values())
        return single + sum(map(len, self.tables.values())) < FEW

    def in_few_words(self) -> list[Promise]:
        """Promises that say the same, if it is little: constants of one time as a list."""
        found = [Promise({}, self.everything)] if self.everything != NEVER else []
        for name, listed in self.constants.items():
            until: dict[Any, int] = {}
            for value, t in zip(python_values(listed.values), listed.times.tolist(), strict=True):
                until[value] = max(t, until.get(value, NEVER))
            for t, values in _by_time(until.items()):
                values.sort(key=lambda value: (value is not None, value))
                found.append(Promise({name: OneOf(tuple(values))}, t))
        for name, ranged in self.ranges.items():
            type_ = self.schema.field(name).type
            for run, t in zip(ranged.runs, ranged.times.tolist(), strict=True):
                found += [Promise({name: pattern}, t) for pattern in shown(run, type_)]
        for shape, entries in self.tables.items():
            found += promises_of(entries, shape, self.schema)
        return found + [wide.promise for wide in self.wide]


def _by_time(said: Iterable[tuple[Any, int]]) -> list[tuple[int, list[Any]]]:
    """What is said by its time, the latest first."""
    found: dict[int, list[Any]] = {}
    for value, t in said:
        found.setdefault(t, []).append(value)
    return sorted(found.items(), key=itemgetter(0), reverse=True)


class _Rows:
    """Entries of one shape, under way."""

    def __init__(self, shape: Shape) -> None:
        self.values: list[list[Any]] = [[] for _ in shape.constants]
        self.runs: list[list[Run]] = [[] for _ in shape.ranges]
        self.times: list[int] = []


def read_promises(promises: Iterable[Promise], schema: Schema, strict: bool = False) -> Intake:
    """Promises by form; an unknown attribute or a constant that is not of its type is a `QueryError`.

    `strict`: so is a range that holds no value, which somebody has written by mistake.
    """
    found = Intake(schema)
    constants_: dict[str, tuple[list[Any], list[int], list[int]]] = {}
    ranges: dict[str, tuple[list[Run], list[int], list[int]]] = {}
    tables: dict[Shape, _Rows] = {}
    known = frozenset(schema.names)
    orders: dict[str, tuple[ValueOrder, bool]] = {}
    for i, promise in enumerate(promises):
        match, t = promise.match, promise.t
        if t == NEVER:
            continue
        if t < found.first:
            found.first = t
        if t > found.last:
            found.last = t
        if len(match) == 1:
            ((name, pattern),) = match.items()
            if name not in known:
                schema.index(name, "a pattern")  # says what there is
            if isinstance(pattern, OneOf):
                values, times, of = constants_.setdefault(name, ([], [], []))
                values.extend(pattern.values)
                times.extend([t] * len(pattern.values))
                of.extend([i] * len(pattern.values))
            elif isinstance(pattern, Range):
                if name not in orders:
                    type_ = schema.field(name).type
                    orders[name] = order_of(type_), pa.types.is_int64(type_)
                order, plain = orders[name]
                run = run_of_integers(pattern) if plain else None
                if run is None:
                    run = _run(name, pattern, order)
                elif run[1] is not None and run[0] >= run[1]:
                    run = None
                if run is None and strict:
                    raise _no_value(name, pattern)
                if run is not None:
                    runs, times, of = ranges.setdefault(name, ([], [], []))
                    runs.append(run)
                    times.append(t)
                    of.append(i)
            elif not isinstance(pattern, Nothing):
                raise no_pattern(name, pattern)
        elif not match:
            found.everything = max(found.everything, t)
        else:
            _several(promise, schema, tables, found.wide, strict)
    for name, (values, times, of) in constants_.items():
        if values:
            type_ = schema.field(name, "a pattern").type
            found.constants[name] = Listed(constants(values, type_, name), np.array(times, np.int64), of)
    found.ranges = {name: Ranged(runs, np.array(times, np.int64), of) for name, (runs, times, of) in ranges.items()}
    for shape, rows in tables.items():
        columns = [
            constants(values, schema.field(name).type, name)
            for name, values in zip(shape.constants, rows.values, strict=True)
        ]
        found.tables[shape] = Entries(columns, rows.runs, np.array(rows.times, np.int64))
    return found


def no_pattern(name: str, pattern: object) -> QueryError:
    return QueryError(f"{pattern!r} is no pattern for {name!r}; {NO_PATTERN}")


def _no_value(name: str, pattern: Range) -> QueryError:
    bounds = {bound: getattr(pattern, bound) for bound in ("ge", "gt", "le", "lt")}
    shown_ = ", ".join(f"{bound}={show_value(value)}" for bound, value in bounds.items() if value is not None)
    return QueryError(f"the range ({shown_}) of {name!r} holds no value; Nothing() is the empty pattern")


def _run(name: str, pattern: Range, order: ValueOrder) -> Run | None:
    if order.kind is Kind.OPAQUE:
        raise no_order(order.type, name)
    return run_of(pattern, order, name)


def _several(
    promise: Promise, schema: Schema, tables: dict[Shape, _Rows], wide: list[WidePromise], strict: bool
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

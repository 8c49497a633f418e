"""Schemes of order as state machines: rows in, promises out, and the first row that breaks one.

`observe` takes the rows of a batch in arrival order, also comparing them with each other, so that cutting the input
into batches otherwise finds the same row.  With `ordered=False` the rows are a set without order (an epoch inside a
plan): only what earlier batches had promised can be broken.  Nothing is taken until `settle`.

What each keeps: `SortedBy` one value; `Bounds` nothing; `ClusteredBy` the open value and those that are over.  Where a
`host` keeps and checks all promises itself, as the guard of a source does, those that are over are not kept twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation, Range
from everwhen.core.scalars import python_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.punctuation.api import PunctuationStore
from everwhen.punctuation.schemes import Bounds, ClusteredBy, SortedBy, slack_of
from everwhen.values.columns import comparable, joined, numbered
from everwhen.values.order import Kind, constants, order_of, plain

Columns = Mapping[str, pa.Array]
DECLARED: Final = "the data is wrong, or the declaration is; take it away if the stream does not keep it"


@dataclass(frozen=True, slots=True)
class Broken:
    """The first row that breaks a promise: its position, what is wrong with it, what to do."""

    at: int
    problem: str
    remedy: str = DECLARED


@dataclass(frozen=True, slots=True)
class Observed:
    """What follows from a batch: promises that hold behind it, or the row that breaks one."""

    promises: list[Punctuation] = field(default_factory=list)
    broken: Broken | None = None


class Machine(ABC):
    """One scheme; see the module's docstring."""

    def start(self) -> list[Punctuation]:
        """What is promised before any row."""
        return []

    @abstractmethod
    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        """What follows from the rows; the state is as before until `settle`."""

    def settle(self) -> None:  # noqa: B027  (a machine may keep nothing)
        """The rows observed last stay."""

    @property
    def nbytes(self) -> int:
        return 0

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue from a snapshot."""


class SaidMachine(Machine):
    """Promises that are known from the start and kept by whoever is below: nothing has to be checked."""

    def __init__(self, promises: Sequence[Punctuation] = ()) -> None:
        self._promises = promises

    def start(self) -> list[Punctuation]:
        return list(self._promises)

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        return Observed()


class SortedMachine(Machine):
    """Keeps the largest value so far (the smallest, if it descends)."""

    def __init__(self, scheme: SortedBy, schema: Schema) -> None:
        self._scheme = scheme
        self._type = schema.field(scheme.column).type
        self._order = order_of(self._type)
        self._slack = slack_of(scheme, self._type)
        self._top = self._next = pa.array([], self._type)

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        self._next = self._top
        known, down = len(self._top), self._scheme.descending
        column = joined(self._top, columns[self._scheme.column])
        ranks, missing = comparable(column)
        at = np.flatnonzero(~missing)
        if len(at) <= known:
            return Observed()
        ranks = ranks[at]
        run = (np.minimum if down else np.maximum).accumulate(ranks)
        if ordered or known:
            before = run[:-1] if ordered else np.broadcast_to(run[:1], len(run) - 1)
            limits = self._limits(np.ascontiguousarray(before))
            wrong = ranks[1:] > limits if down else ranks[1:] < limits
            if wrong.any():
                j = int(np.argmax(wrong))
                reached = int(at[np.argmax(ranks == before[j])])
                return Observed(broken=self._broken(column, int(at[j + 1]), reached, known))
        best = int(at[np.argmax(ranks == run[-1])])
        self._next = column.slice(best, 1)
        return Observed([] if known and best == 0 else self._promises(run[-1:]))

    def _limits(self, tops: np.ndarray) -> np.ndarray:
        """The ranks beyond which nothing comes behind these."""
        down, slack, order = self._scheme.descending, self._slack, self._order
        if not slack:
            return tops
        if pa.types.is_floating(self._type):
            values = order.column(tops).to_numpy(zero_copy_only=False).astype(np.float64)
            moved = _rounded(values + slack if down else values - slack, self._type, down)
            return order.ranks(pa.array(moved, self._type, from_pandas=False))
        if slack > order.hi - order.lo:
            return np.full(len(tops), order.hi if down else order.lo)
        step = np.uint64(slack)  # what wraps around is not used
        if down:
            return np.where(tops > order.hi - slack, order.hi, (tops.view(np.uint64) + step).view(np.int64))
        return np.where(tops < order.lo + slack, order.lo, (tops.view(np.uint64) - step).view(np.int64))

    def _promises(self, top: np.ndarray) -> list[Punctuation]:
        if self._order.kind is not Kind.RANK:
            value = python_values(self._next)[0]
        else:
            limit = self._limits(np.ascontiguousarray(top))
            if limit[0] == (self._order.hi if self._scheme.descending else self._order.lo):
                return []  # nothing is ruled out
            value = self._order.values(limit)[0]
        return [Punctuation({self._scheme.column: Range(gt=value) if self._scheme.descending else Range(lt=value)})]

    def _broken(self, column: pa.Array, at: int, reached: int, known: int) -> Broken:
        name, scheme = self._scheme.column, self._scheme
        came, top = (python_values(column.slice(i, 1))[0] for i in (at, reached))
        wider = "write WITHIN with a larger distance" if scheme.slack else "write WITHIN if rows may lag a little"
        return Broken(
            at - known,
            f"{name} = {came!r} behind {name} = {top!r} on a stream that is {scheme}",
            f"{wider}; {DECLARED}",
        )

    def settle(self) -> None:
        self._top = self._next

    def snapshot(self) -> dict[str, Any]:
        return {"top": self._top}

    def restore(self, state: dict[str, Any]) -> None:
        self._top = self._next = state["top"]


class BoundsMachine(Machine):
    """Keeps nothing."""

    def __init__(self, scheme: Bounds, schema: Schema) -> None:
        self._scheme = scheme
        self._type = schema.field(scheme.column).type

    def start(self) -> list[Punctuation]:
        column, low, high = self._scheme.column, self._scheme.low, self._scheme.high
        ranges = [*([] if low is None else [Range(lt=low)]), *([] if high is None else [Range(gt=high)])]
        return [Punctuation({column: each}) for each in ranges]

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        column = plain(columns[self._scheme.column])
        limits = [each for each in (self._scheme.low, self._scheme.high) if each is not None]
        ranks, missing = comparable(joined(constants(limits, self._type), column))
        rows = ranks[len(limits) :]
        wrong = np.zeros(length, np.bool_)
        if self._scheme.low is not None:
            wrong |= rows < ranks[0]
        if self._scheme.high is not None:
            wrong |= rows > ranks[len(limits) - 1]
        wrong &= ~missing[len(limits) :]
        if not wrong.any():
            return Observed()
        at = int(np.argmax(wrong))
        came = python_values(column.slice(at, 1))[0]
        return Observed(broken=Broken(at, f"{self._scheme.column} = {came!r} on a stream where {self._scheme}"))


class Over:
    """Values or keys that are over: a set of promises, or nothing where a host keeps them."""

    def __init__(self, schema: Schema, columns: Sequence[str], hosted: bool) -> None:
        self._columns = tuple(columns)
        self._set = None if hosted else PunctuationStore(schema.select(dict.fromkeys(columns)))

    def first(self, columns: Columns, length: int) -> int:
        """The position of the first row that is over (`length`: none is)."""
        if self._set is None or not length:
            return length
        over = self._set.upto({name: plain(columns[name]) for name in self._columns}, length) == INF
        return int(np.argmax(over)) if over.any() else length

    def add(self, promises: Sequence[Punctuation]) -> None:
        if self._set is not None:
            self._set.add(promises)

    @property
    def nbytes(self) -> int:
        return 0 if self._set is None else self._set.nbytes

    def snapshot(self) -> Any:
        return None if self._set is None else self._set.snapshot()

    def restore(self, state: Any) -> None:
        if self._set is not None:
            self._set.restore(state)


class ClusteredMachine(Machine):
    """Keeps the open value (several, if the order within a batch is not known) and, without a host, those over."""

    def __init__(self, scheme: ClusteredBy, schema: Schema, hosted: bool) -> None:
        self._scheme = scheme
        self._open = self._next = pa.array([], schema.field(scheme.column).type)
        self._over = Over(schema, scheme.columns, hosted)
        self._fresh: list[Punctuation] = []

    def observe(self, columns: Columns, length: int, ordered: bool) -> Observed:
        column = plain(columns[self._scheme.column])
        self._fresh, self._next = [], self._open
        if not length:
            return Observed()
        at = self._over.first(columns, length)
        closed, again = self._runs(column) if ordered else self._sets(column)
        at = min(at, again)
        if at < length:
            came, name = python_values(column.slice(at, 1))[0], self._scheme.column
            return Observed(
                broken=Broken(at, f"{name} = {came!r} again, after other values, on a stream {self._scheme}")
            )
        self._fresh = key_promises([self._scheme.column], [closed])
        return Observed(self._fresh)

    def _runs(self, column: pa.Array) -> tuple[pa.Array, int]:
        """The values that are over, and where one of them comes again."""
        known = len(self._open)
        column = joined(self._open, column)
        ids = numbered([column], len(column))
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        _, first = np.unique(ids[starts], return_index=True)
        again = np.ones(len(starts), np.bool_)
        again[first] = False
        self._next = column.slice(starts[-1], 1)
        return column.take(pa.array(starts[:-1])), int(starts[np.argmax(again)]) - known if again.any() else len(column)

    def _sets(self, column: pa.Array) -> tuple[pa.Array, int]:
        """Of a batch without order: when new values come, all that were open are over."""
        came = column.unique()
        known = joined(self._open, came)
        ids = numbered([known], len(known))
        old, new = ids[: len(self._open)], ids[len(self._open) :]
        fresh = ~np.isin(new, old)
        if fresh.any():
            self._next = came.filter(pa.array(fresh))
            return self._open, len(column)
        self._next = came
        return self._open.filter(pa.array(~np.isin(old, new))), len(column)

    def settle(self) -> None:
        self._open = self._next
        self._over.add(self._fresh)
        self._fresh = []

    @property
    def nbytes(self) -> int:
        return self._over.nbytes

    def snapshot(self) -> dict[str, Any]:
        return {"open": self._open, "over": self._over.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self._open = self._next = state["open"]
        self._over.restore(state["over"])


# -- promises of values ------------------------------------------------------------------------------------------------


def key_promises(names: Sequence[str], columns: Sequence[pa.Array]) -> list[Punctuation]:
    """That nothing with one of these keys comes any more: one promise per value of all columns but the last."""
    if not len(columns[0]):
        return []
    if len(columns) == 1:
        return [Punctuation({names[0]: pattern}) for pattern in _patterns(columns[0])]
    heads = numbered(columns[:-1], len(columns[0]))
    order = np.argsort(heads, kind="stable")
    found: list[Punctuation] = []
    for _, group in groupby(order.tolist(), key=lambda i: int(heads[i])):
        rows = pa.array(list(group))
        first = rows[:1]
        head = {n: OneOf(tuple(python_values(c.take(first)))) for n, c in zip(names[:-1], columns[:-1], strict=True)}
        found += [Punctuation({**head, names[-1]: pattern}) for pattern in _patterns(columns[-1].take(rows))]
    return found


def _patterns(values: pa.Array) -> list[AttributePattern]:
    """Values as patterns: a range where whole numbers stand without a gap, else a list."""
    values = values.unique()
    if pa.types.is_integer(values.type) and not values.null_count and len(values) > 2:
        ends = pc.min_max(values).as_py()
        if ends["max"] - ends["min"] + 1 == len(values):
            return [Range(ge=ends["min"], le=ends["max"])]
    return [OneOf(tuple(python_values(values)))]


def _rounded(values: np.ndarray, type_: pa.DataType, up: bool) -> np.ndarray:
    """Floats of the type, away from the numbers that they would else rule out."""
    kind = np.dtype(f"float{type_.bit_width}").type
    near = values.astype(kind)
    over = near < values if up else near > values
    return np.where(over, np.nextafter(near, kind(np.inf if up else -np.inf)), near).astype(kind)

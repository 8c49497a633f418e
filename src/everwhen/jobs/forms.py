"""The forms of an answer: what a query says, element by element, as rows that other systems can read.

**append**: rows that are final, once each, with `valid_from` and `valid_to` (null: for ever).  A row is final when its
end lies before what is promised; at its end it may still be prolonged.  A query that says only what is final (STRONG)
corrects nothing, so there the end may be the promise itself.  Kept: rows that were said and are not final.

**upsert** and **retract**: the answer as of *now*.  Now is an instant of application time, the latest at which the
answer is known: the largest start of a row said so far, or the end that closed a row which was open until then, or the
last instant before what is promised, whichever is latest.  It never goes back.  The rows are those alive at now.  When
everything is promised, they are those that live for ever.  After each epoch, the changes said so far give exactly the
snapshot at now of what was said so far.  Kept: rows alive at now that have an end, because they go when now gets there;
a row without an end goes only by an element that names it.

An upsert has a key that the plan proves: no two rows of one instant agree on it.  A retract may have one; then a row
that takes the place of another one of its key is told as such.

    >>> import everwhen as ew
    >>> schema = ew.source("S", {"k": "string", "n": "int64"}).schema
    >>> form = AsOfNow(schema, ("k",), "upsert")
    >>> for elements in ([ew.Insert(1, 9, {"k": "a", "n": 1})], [ew.Adjust(1, 9, 4, {"k": "a", "n": 1}),
    ...                   ew.Insert(4, 9, {"k": "a", "n": 2})], [ew.Cti(30)]):
    ...     said = form.step(ew.ElementBatch.of(elements, schema))
    ...     print(said.now, said.op.tolist(), said.rows.to_pylist())
    1 [0] [{'k': 'a', 'n': 1}]
    4 [0] [{'k': 'a', 'n': 2}]
    29 [1] [{'k': 'a', 'n': None}]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Field, Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.errors import QueryError, SinkError
from everwhen.jobs.waiting import Entries, Waiting, coded, groups, netted, together
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

TIMES: Final = ("valid_from", "valid_to")


class Form(ABC):
    """Epoch after epoch of elements in, changes of rows out.  `schema`: the columns of the rows."""

    def __init__(self, payload: Schema, schema: Schema) -> None:
        self.payload, self.schema = payload, schema
        self.waiting = Waiting(payload)

    @abstractmethod
    def step(self, batch: ElementBatch) -> RowChanges:
        """The changes that the elements of an epoch make."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """The state, as plain data."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


def form_of(name: str, payload: Schema, key: tuple[str, ...], final: bool, tick: int | None = None) -> Form:
    """The form of that name.  `final`: the query says only what is final.  `tick`: nanoseconds of a tick, if times are
    told as timestamps."""
    if name == "append":
        return Append(payload, final, tick)
    return AsOfNow(payload, key, name)


def _entries(batch: ElementBatch) -> tuple[Entries, Entries]:
    """What the elements take away, and what they bring."""
    data = np.flatnonzero(batch.op <= ADJUST)
    moved = data[batch.op[data] == ADJUST]
    ends = np.where(batch.op == ADJUST, batch.vnew, batch.ve)
    left = data[ends[data] > batch.vs[data]]
    return _at(batch, moved, batch.ve, -1), _at(batch, left, ends, 1)


def _at(batch: ElementBatch, at: np.ndarray, ends: np.ndarray, weight: int) -> Entries:
    places = pa.array(at)
    columns = tuple(column.take(places) for column in batch.columns)
    return Entries(columns, batch.vs[at], ends[at], np.full(len(at), weight, np.int64))


def _where(entries: Entries, chosen: np.ndarray) -> Entries:
    return entries if chosen.all() else entries.take(np.flatnonzero(chosen))


# -- append ----------------------------------------------------------------------------------------------------------


class Append(Form):
    """Rows that are final."""

    def __init__(self, payload: Schema, final: bool, tick: int | None = None) -> None:
        for name in TIMES:
            if name in payload:
                raise QueryError(f"form append adds a column {name}, and the query has one of that name; rename it")
        self._type, self._factor = (pa.int64(), 0) if tick is None else _stamps(tick)
        fields = tuple(Field(name, self._type) for name in TIMES)
        super().__init__(payload, Schema((*payload.fields, *fields)))
        self._final = final
        self.promise = NEVER

    def step(self, batch: ElementBatch) -> RowChanges:
        gone, came = _entries(batch)
        self.waiting.add(netted(self.payload, together(self.payload, [gone, came]), times=True))
        promised = int(batch.vs[batch.op == CTI].max(initial=NEVER))
        self.promise = max(self.promise, promised)
        reach = self.promise if self._final or self.promise in (INF, NEVER) else self.promise - 1
        found = self.waiting.due(reach)
        if (found.weight < 0).any():
            raise SinkError("a row that was final was corrected; this is an error of the query's level")
        found = found.take(np.repeat(np.arange(len(found)), found.weight)[_by_start(found)])
        columns = [*found.columns, self._times(found.vs), self._times(found.ve)]
        rows = pa.RecordBatch.from_arrays(columns, names=list(self.schema.names))
        return RowChanges("append", np.full(len(found), PUT, np.uint8), rows, self.promise)

    def _times(self, ticks: np.ndarray) -> pa.Array:
        endless = ticks == INF
        if not self._factor:
            return pa.array(ticks, mask=endless)
        values = np.where(endless, 0, ticks)
        scaled = values * self._factor if self._factor > 0 else values // -self._factor
        return pa.array(scaled, mask=endless).cast(self._type)

    def snapshot(self) -> dict[str, Any]:
        return {"promise": self.promise, "waiting": self.waiting.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.promise = state["promise"]
        self.waiting.restore(state["waiting"])


def _by_start(found: Entries) -> np.ndarray:
    starts = np.repeat(found.vs, found.weight)
    return np.argsort(starts, kind="stable")


def _stamps(tick: int) -> tuple[pa.DataType, int]:
    """The type of timestamps for ticks of so many nanoseconds, and the factor; negative: a divisor."""
    for unit, length in (("us", 1_000), ("ns", 1)):
        if tick % length == 0:
            return pa.timestamp(unit), tick // length
    raise AssertionError(tick)


# -- as of now ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Net:
    """Rows that went and rows that came."""

    gone: Entries
    came: Entries


class AsOfNow(Form):
    """The rows alive now: `upsert` by key, or `retract`."""

    def __init__(self, payload: Schema, key: tuple[str, ...], form: str) -> None:
        super().__init__(payload, payload)
        self.form, self.key, self.now = form, key, NEVER
        self._keys = Schema(tuple(payload.fields[payload.index(name)] for name in key))
        self._places = [payload.index(name) for name in key]

    def step(self, batch: ElementBatch) -> RowChanges:
        self.now = max(self.now, _latest(batch))
        gone, came = _entries(batch)
        gone = _where(gone, self._alive(gone.ve))
        came = _where(came, self._alive(came.ve))
        expired = self.waiting.due(self.now) if self.now < INF else self.waiting.due(INF - 1)
        both = together(self.payload, [gone, came])
        self.waiting.add(netted(self.payload, _where(both, both.ve < INF), times=True))
        over = Entries(expired.columns, expired.vs, expired.ve, -expired.weight)
        changed = netted(self.payload, together(self.payload, [over, both]), times=False)
        net = _Net(_repeated(changed, -1), _repeated(changed, 1))
        op, rows = self._upserted(net) if self.form == "upsert" else self._retracted(net)
        return RowChanges(self.form, op, rows, self.now)

    def _alive(self, ends: np.ndarray) -> np.ndarray:
        return (ends > self.now) | (ends == INF)

    def _upserted(self, net: _Net) -> tuple[np.ndarray, pa.RecordBatch]:
        left, _, _ = self._paired(net)
        gone = net.gone.take(left)
        blank = [
            column if name in self.key else pa.nulls(len(left), column.type)
            for name, column in zip(self.payload.names, gone.columns, strict=True)
        ]
        op = np.repeat(np.array([DELETE, PUT], np.uint8), [len(left), len(net.came)])
        return op, self._batch([blank, net.came.columns])

    def _retracted(self, net: _Net) -> tuple[np.ndarray, pa.RecordBatch]:
        if not self.key:
            op = np.repeat(np.array([DELETE, PUT], np.uint8), [len(net.gone), len(net.came)])
            return op, self._batch([net.gone.columns, net.came.columns])
        left, before, after = self._paired(net)
        new = np.setdiff1d(np.arange(len(net.came)), after)
        pairs = np.arange(len(before) * 2)
        order = pa.array(np.where(pairs % 2 == 0, pairs // 2, len(before) + pairs // 2))
        both = zip(net.gone.take(before).columns, net.came.take(after).columns, strict=True)
        updates = [pa.concat_arrays([a, b]).take(order) for a, b in both]
        ops = [np.full(len(left), DELETE), np.where(pairs % 2 == 0, BEFORE, AFTER), np.full(len(new), PUT)]
        rows = self._batch([net.gone.take(left).columns, updates, net.came.take(new).columns])
        return np.concatenate(ops).astype(np.uint8), rows

    def _paired(self, net: _Net) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places of rows that went without another one of their key, and places of those that were replaced, and by
        which."""
        entries = together(self.payload, [net.gone, net.came])
        n = len(net.gone)
        codes = coded(self._keys, [entries.columns[j] for j in self._places], len(entries))
        order, begins = groups(codes)
        sizes = np.diff(np.append(begins, len(order)))
        is_new = (order >= n).astype(np.int64)
        came = np.add.reduceat(is_new, begins) if len(begins) else sizes
        if ((came > 1) | (sizes - came > 1)).any():
            self._not_a_key(entries, order, begins, came, sizes)
        firsts = order[begins]  # the order is stable, so a row that went stands before the one that came
        paired = sizes == 2
        seconds = order[np.minimum(begins + 1, max(len(order) - 1, 0))] if len(order) else order
        return firsts[(sizes == 1) & (came == 0)], firsts[paired], seconds[paired] - n

    def _not_a_key(
        self, entries: Entries, order: np.ndarray, begins: np.ndarray, came: np.ndarray, sizes: np.ndarray
    ) -> None:
        first = int(np.argmax((came > 1) | (sizes - came > 1)))
        at = int(order[begins[first]])
        values = {name: entries.columns[j][at].as_py() for name, j in zip(self.key, self._places, strict=True)}
        shown = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise SinkError(
            f"two rows with the key {shown} at {show(self.now)}: it is no key of the answer (give another key, or form "
            "= 'retract' without one)"
        )

    def _batch(self, parts: list[Any]) -> pa.RecordBatch:
        columns = [pa.concat_arrays(list(each)) for each in zip(*parts, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=list(self.schema.names))

    def snapshot(self) -> dict[str, Any]:
        return {"now": self.now, "waiting": self.waiting.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.now = state["now"]
        self.waiting.restore(state["waiting"])


def _latest(batch: ElementBatch) -> int:
    """The latest instant that the elements tell of."""
    starts = int(batch.vs[batch.op == INSERT].max(initial=NEVER))
    closing = (batch.op == ADJUST) & (batch.ve == INF) & (batch.vnew < INF)
    ends = int(batch.vnew[closing].max(initial=NEVER))
    promised = int(batch.vs[batch.op == CTI].max(initial=NEVER))
    return max(starts, ends, promised if promised in (INF, NEVER) else promised - 1)


def _repeated(entries: Entries, sign: int) -> Entries:
    """The entries of one sign, each as often as its weight says."""
    chosen = np.flatnonzero(entries.weight * sign > 0)
    return entries.take(np.repeat(chosen, np.abs(entries.weight[chosen])))

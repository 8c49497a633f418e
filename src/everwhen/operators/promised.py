"""Promises about data, as operators use them: the few rules from which every operator's behaviour follows.

A frontier carries a time and the promises that are new (Tucker et al., section 3; `model/punctuation.py`).  An operator
does three things with a new one.  It finds the keys of its state that the promise reaches (`concerned`) and treats
them as it treats all keys when time moves on: says what is settled, forgets what can't change.  It carries the promise
over to its own columns (`Projection`), or puts together what its ports have said (`Meeting`).  And it passes on what is
left, where a promise about everything is progress in time (`settled`).

What no rule carries over is dropped: less is promised, never too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from everwhen.model.promise_intake import read_promises
from everwhen.model.promise_set import PromiseSet, in_few_words
from everwhen.model.punctuation import Frontier, OneOf, Promise
from everwhen.model.rows import RowCodec
from everwhen.model.scalars import from_python
from everwhen.model.schema import Schema
from everwhen.model.time import NEVER
from everwhen.operators.kernels.tables import KeyTable, grown

MOST_RESTATED: Final = 10_000
"""When the other port's time moves on, so many standing promises are said again with it, not more."""

MOST_CONSTANTS: Final = 100_000
"""So many constants are looked up one by one; beyond, all keys are compared."""

_NO_INTS: Final = np.empty(0, np.int64)

NONE: Final = (_NO_INTS, _NO_INTS)
"""No keys are concerned."""


def settled(time: int, promises: Iterable[Promise]) -> Frontier:
    """A frontier with new promises: one about everything is progress in time, and what time has passed goes."""
    found = tuple(promises)
    if not found:
        return Frontier(time)
    time = max([time, *(promise.t for promise in found if not promise.match)])
    return Frontier(time, tuple(promise for promise in found if promise.match and promise.t > time))


def moved(frontier: Frontier, to: Callable[[int], int]) -> Frontier:
    """The promises of an operator that maps lifetimes and leaves payloads alone."""
    if not frontier.promises:
        return Frontier(to(frontier.time))
    promises = tuple(Promise(promise.match, to(promise.t)) for promise in frontier.promises)
    return settled(to(frontier.time), promises)


def renamed(promises: Iterable[Promise], names: Mapping[str, str]) -> list[Promise]:
    """Promises whose columns have other names; all that they bind are there."""
    return [Promise({names[name]: pattern for name, pattern in p.match.items()}, p.t) for p in promises]


def compacted(promises: Sequence[Promise], schema: Schema) -> tuple[Promise, ...]:
    """The same said in fewer promises."""
    if len(promises) < 2:
        return tuple(promises)
    return tuple(in_few_words(read_promises(promises, schema).united()))


def constants(promise: Promise, names: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The rows that a promise matches, if it binds all of `names`, and nothing else, by constants."""
    patterns = [promise.match.get(name) for name in names]
    if len(promise.match) != len(names) or not names:
        return None
    values = [pattern.values for pattern in patterns if isinstance(pattern, OneOf)]
    if len(values) != len(names):
        return None
    count = 1
    for some in values:
        count *= len(some)
    return list(product(*values)) if count <= MOST_CONSTANTS else None


def coded_constants(rows: Sequence[tuple[Any, ...]], codec: RowCodec) -> np.ndarray:
    """Rows of Python values, coded."""
    columns = [
        from_python(column, type_) for column, type_ in zip(zip(*rows, strict=True), codec.schema.types, strict=True)
    ]
    return codec.encode(columns, len(rows))


def concerned(promises: Sequence[Promise], codec: RowCodec, keys: KeyTable) -> tuple[np.ndarray, np.ndarray]:
    """The keys that promises about key columns reach, each once, and until when.

    Constants are looked up; anything else is compared with all keys, by columns.
    """
    names = codec.schema.names
    listed: list[tuple[Any, ...]] = []
    until: list[int] = []
    others: list[Promise] = []
    for promise in promises:
        rows = constants(promise, names)
        if rows is None:
            others.append(promise)
        else:
            listed += rows
            until += [promise.t] * len(rows)
    found, times = _NO_INTS, _NO_INTS
    if listed:
        found = keys.find(coded_constants(listed, codec))
        there = found >= 0
        found, times = found[there], np.array(until, np.int64)[there]
    if others:
        ids = keys.ids()
        t = promised(others, codec, keys.codes[ids])
        reached = t > NEVER
        found, times = np.concatenate([found, ids[reached]]), np.concatenate([times, t[reached]])
    if listed and len(found) > 1:  # keys that are looked through come once, and in order
        order = np.lexsort((times, found))
        last = np.append(found[order][1:] != found[order][:-1], True)
        found, times = found[order][last], times[order][last]
    return found, times


def promised(promises: Iterable[Promise] | PromiseSet, codec: RowCodec, rows: np.ndarray) -> np.ndarray:
    """Until when promises hold for each of these coded rows."""
    if not isinstance(promises, PromiseSet):
        listed, promises = promises, PromiseSet(codec.schema)
        promises.add(listed)
    columns = {name: codec.column(rows, codec.schema.index(name)) for name in promises.bound}
    return promises.promised(columns, len(rows))


class Meeting:
    """Two ports with the same columns: what both have promised, each by a pattern or by its time.

    Columns meet by position, as in SQL's sets: the second port may have other names for them (`second`).  Kept are both
    ports' promises, until both times have passed them.
    """

    def __init__(self, schema: Schema, second: Schema | None = None) -> None:
        self._names = {} if second is None else dict(zip(second.names, schema.names, strict=True))
        self._said = (PromiseSet(schema), PromiseSet(schema))
        self._times = [NEVER, NEVER]

    def take(self, frontiers: Sequence[Frontier]) -> list[Promise]:
        """What holds on both ports now and did not before."""
        one, two = frontiers
        if not (one.promises or two.promises or len(self._said[0]) or len(self._said[1])):
            return []
        if self._names and two.promises:
            two = Frontier(two.time, tuple(renamed(two.promises, self._names)))
            frontiers = (one, two)
        m = min(one.time, two.time)
        schema = self._said[0].schema
        first, second = read_promises(one.promises, schema), read_promises(two.promises, schema)
        found = self._said[0].meet(second)
        self._said[1].take(second)
        found += self._said[1].meet(first)
        for port, frontier in enumerate(frontiers):
            other = frontiers[1 - port].time
            if other > m:
                again = other > self._times[1 - port] and len(self._said[port]) <= MOST_RESTATED
                said = [*self._said[port], *frontier.promises] if again and port == 0 else frontier.promises
                if again and port == 1:
                    said = tuple(self._said[1])  # its new ones have been added already
                found += [Promise(p.match, min(p.t, other)) for p in said]
        self._said[0].take(first)
        for said_by in self._said:
            said_by.forget(m)
        self._times = [one.time, two.time]
        return [promise for promise in found if promise.t > m]

    def __len__(self) -> int:
        return sum(map(len, self._said))

    @property
    def nbytes(self) -> int:
        return sum(said.nbytes for said in self._said)

    def snapshot(self) -> dict[str, Any]:
        return {"said": [said.snapshot() for said in self._said], "times": list(self._times)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._times = list(state["times"])
        for said, part in zip(self._said, state["said"], strict=True):
            said.restore(part)


class Floors:
    """How far each key has been promised beyond time, for state that is kept by key id."""

    def __init__(self) -> None:
        self.before = np.full(0, NEVER, np.int64)
        self.now = np.full(0, NEVER, np.int64)
        self._raised = _NO_INTS

    @property
    def any(self) -> bool:
        return len(self.now) > 0

    def grow(self, capacity: int) -> None:
        if len(self.now) < capacity:
            self.before, self.now = grown(self.before, capacity, NEVER), grown(self.now, capacity, NEVER)

    def raise_to(self, ids: np.ndarray, times: np.ndarray, capacity: int) -> np.ndarray:
        """Raise the floors of keys; returns those for which that is news."""
        self.grow(capacity)
        news = times > self.now[ids]
        ids, times = ids[news], times[news]
        self.now[ids] = times
        self._raised = np.concatenate([self._raised, ids])
        return ids

    def then(self, ids: np.ndarray, promise: int) -> np.ndarray:
        """How far keys had been promised before this step, if all were to `promise`."""
        return _floored(self.before, ids, promise)

    def until(self, ids: np.ndarray, promise: int) -> np.ndarray:
        """How far keys are promised, if all are to `promise`."""
        return _floored(self.now, ids, promise)

    def settle(self, gone: np.ndarray) -> None:
        """The raised floors stand; keys that are gone have none."""
        self.before[self._raised] = self.now[self._raised]
        self._raised = _NO_INTS
        gone = gone[gone < len(self.now)]
        self.before[gone] = self.now[gone] = NEVER

    def snapshot(self, ids: np.ndarray) -> np.ndarray | None:
        """The floors of these keys."""
        return self.now[ids] if self.any else None

    def restore(self, ids: np.ndarray, floors: np.ndarray | None, capacity: int) -> None:
        if floors is not None:
            self.raise_to(ids, floors, capacity)
            self.settle(_NO_INTS)


def _floored(floors: np.ndarray, ids: np.ndarray, promise: int) -> np.ndarray:
    everywhere = np.full(len(ids), promise, np.int64)
    return np.maximum(everywhere, floors[ids]) if len(floors) else everywhere

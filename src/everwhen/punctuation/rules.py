"""Promises about data, as operators use them: the few rules from which every operator's behaviour follows.

A frontier carries a time and the promises that are new (Tucker et al., section 3; `core/punctuation.py`).  An
operator does three things with a new one.  It finds the keys of its state that the promise reaches (`concerned`) and
treats them as it treats all keys when time moves on: says what is settled, forgets what can't change.  It carries the
promise over to its own columns (`Projection`), or puts together what its ports have said (`TwoPortIntersection`).
And it passes on what is left, where a promise about everything is progress in time (`settled`).

What no rule carries over is dropped: less is promised, never too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.punctuation.first_violation import FEW, once, raise_floors, settle_floors
from everwhen.punctuation.read import read_promises
from everwhen.punctuation.store import PunctuationStore
from everwhen.punctuation.table import PunctuationTable, joined
from everwhen.rows import restored
from everwhen.rows.codec import RowCodec

MOST_RESTATED: Final = 10_000
"""When the other port's time moves on, so many standing promises are said again with it, not more."""

_NO_INTS: Final = np.empty(0, np.int64)

NONE: Final = (_NO_INTS, _NO_INTS)
"""No keys are concerned."""


def settled(time: int, promises: Iterable[Punctuation]) -> Frontier:
    """A frontier with new promises: one about everything is progress in time, and what time has passed goes."""
    if isinstance(promises, PunctuationTable):
        time = max(time, promises.everything)
        promises = promises.after(time)
        return Frontier(time, promises) if promises else Frontier(time)
    found = tuple(promises)
    if not found:
        return Frontier(time)
    time = max([time, *(promise.t for promise in found if not promise.match)])
    return Frontier(time, tuple(promise for promise in found if promise.match and promise.t > time))


def moved(frontier: Frontier, to: Callable[[int], int]) -> Frontier:
    """The promises of an operator that maps lifetimes and leaves payloads alone."""
    promises = frontier.promises
    if not promises:
        return Frontier(to(frontier.time))
    if isinstance(promises, PunctuationTable):
        return settled(to(frontier.time), promises.moved(to))
    return settled(to(frontier.time), tuple(Punctuation(promise.match, to(promise.t)) for promise in promises))


def compacted(promises: Sequence[Punctuation], schema: Schema) -> Sequence[Punctuation]:
    """The same said in fewer promises."""
    return read_promises(promises, schema).united() if promises else ()


def keys_listed(
    said: PunctuationTable, codec: RowCodec, names: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray, PunctuationTable]:
    """The keys that are promised by constants of all key columns, coded, until when each is, and what else is said.

    `names`: what the key columns are called in the promises, if not as in the codec."""
    names = names or codec.schema.names
    if len(names) == 1:
        listed = said.constants.get(names[0])
        if listed is None:
            return codec.empty(), _NO_INTS, said
        rest = said.without_list(names[0])
        if listed.order.whole and listed.null == NEVER:  # a whole number is its own rank, and its own code
            rows = np.zeros((len(listed.times), codec.width), np.int64)
            rows[:, 1] = listed.keys
            return rows, listed.times, rest
        column, times = listed.column()
        return codec.encode([column], len(times)), times, rest
    for shape, entries in said.tables.items():
        if not shape.ranges and len(shape.constants) == len(names) and set(shape.constants) == set(names):
            columns = dict(zip(shape.constants, entries.columns, strict=True))
            rows = codec.encode([columns[name] for name in names], len(entries))
            return rows, entries.times, said.without_table(shape)
    return codec.empty(), _NO_INTS, said


def concerned(promises: Sequence[Punctuation], codec: RowCodec, keys: KeyTable) -> tuple[np.ndarray, np.ndarray]:
    """The keys that promises about key columns reach, each once, and until when.

    Constants are looked up; anything else is compared with all keys, by columns.
    """
    rows, times, others = keys_listed(read_promises(promises, codec.schema), codec)
    found = _NO_INTS
    if len(rows):
        found = keys.find(rows)
        n, times = _once(found, times)
        found, times = found[:n], times[:n]
    if others:
        ids = keys.ids()
        t = promised(others, codec, keys.codes[ids])
        reached = t > NEVER
        found, times = np.concatenate([found, ids[reached]]), np.concatenate([times, t[reached]])
        if len(rows):
            n, times = _once(found, times)
            found, times = found[:n], times[:n]
    return found, times


def _once(ids: np.ndarray, times: np.ndarray) -> tuple[int, np.ndarray]:
    """Puts ids in order, each that is there (not -1) once; how many, and the largest time of each."""
    if len(ids) <= FEW:
        times = times.copy()
    else:
        times = times[ids.argsort()]
        ids.sort()
    return int(once(ids, times)), times


def promised(promises: Iterable[Punctuation] | PunctuationStore, codec: RowCodec, rows: np.ndarray) -> np.ndarray:
    """Until when promises hold for each of these coded rows."""
    if not isinstance(promises, PunctuationStore):
        listed, promises = promises, PunctuationStore(codec.schema)
        promises.add(listed)
    name = promises.whole
    if name is not None:  # a whole number is its own code, and its own rank
        at = codec.schema.index(name)
        if codec.valid(rows, at) is None:
            return promises.of_ranks(np.ascontiguousarray(rows[:, codec.words + at]))
    columns = {name: codec.column(rows, codec.schema.index(name)) for name in promises.bound}
    return promises.promised(columns, len(rows))


class TwoPortIntersection:
    """Two ports with the same columns: what both have promised, each by a pattern or by its time.

    Columns meet by position, as in SQL's sets: the second port may have other names for them (`second`).  Kept are both
    ports' promises, until both times have passed them.
    """

    def __init__(self, schema: Schema, second: Schema | None = None) -> None:
        self._second = schema if second is None else second
        self._names = {} if second is None else dict(zip(second.names, schema.names, strict=True))
        self._said = (PunctuationStore(schema), PunctuationStore(schema))
        self._nothing = PunctuationTable(schema)
        self._times = [NEVER, NEVER]

    def take(self, frontiers: Sequence[Frontier]) -> PunctuationTable:
        """What holds on both ports now and did not before."""
        one, two = frontiers
        if not (one.promises or two.promises or self._said[0] or self._said[1]):
            return self._nothing
        if self._names and two.promises:
            second_named = read_promises(two.promises, self._second)
            two = Frontier(two.time, second_named.renamed(self._names, self._said[0].schema))
            frontiers = (one, two)
        m = min(one.time, two.time)
        schema = self._said[0].schema
        first, second = read_promises(one.promises, schema), read_promises(two.promises, schema)
        found = [self._said[0].meet(second)]
        self._said[1].take(second)
        found.append(self._said[1].meet(first))
        for port, fresh in enumerate((first, second)):
            other = frontiers[1 - port].time
            if other > m:
                again = other > self._times[1 - port] and len(self._said[port]) <= MOST_RESTATED
                said = [fresh, self._said[port].said()] if again else [fresh]
                found += [each.until(other) for each in said if each]
        self._said[0].take(first)
        for said_by in self._said:
            said_by.forget(m)
        self._times = [one.time, two.time]
        return joined(found).after(m).united()

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


class KeyFrontiers:
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
        found = np.empty(len(ids), np.int64)
        found = found[: raise_floors(self.now, ids, times, found)]
        self._raised = np.concatenate([self._raised, found]) if len(self._raised) else found
        return found

    def then(self, ids: np.ndarray, promise: int) -> np.ndarray:
        """How far keys had been promised before this step, if all were to `promise`."""
        return _floored(self.before, ids, promise)

    def until(self, ids: np.ndarray, promise: int) -> np.ndarray:
        """How far keys are promised, if all are to `promise`."""
        return _floored(self.now, ids, promise)

    def settle(self, gone: np.ndarray) -> None:
        """The raised floors stand; keys that are gone have none."""
        settle_floors(self.before, self.now, self._raised, gone)
        self._raised = _NO_INTS

    def snapshot(self, ids: np.ndarray) -> np.ndarray | None:
        """The floors of these keys."""
        return self.now[ids] if self.any else None

    def restore(self, ids: np.ndarray, floors: np.ndarray | None, capacity: int) -> None:
        if floors is not None:
            restored.ints(len(ids), floors)
            self.raise_to(ids, floors, capacity)
            self.settle(_NO_INTS)


def _floored(floors: np.ndarray, ids: np.ndarray, promise: int) -> np.ndarray:
    everywhere = np.full(len(ids), promise, np.int64)
    return np.maximum(everywhere, floors[ids]) if len(floors) else everywhere

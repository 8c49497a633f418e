"""What punctuation says about the keys that an operator keeps state by: which it reaches, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.compiled.njit import loop
from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import NEVER
from everwhen.punctuation.api import PunctuationStore, PunctuationTable, read_promises
from everwhen.rows import restored
from everwhen.rows.codec import RowCodec
from everwhen.values.order import order_of

_NO_INTS: Final = np.empty(0, np.int64)
_NEVER: Final = np.int64(NEVER)

NONE: Final = (_NO_INTS, _NO_INTS)
"""No keys are reached."""


def constant_keys(
    said: PunctuationTable, codec: RowCodec, names: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray, PunctuationTable]:
    """The keys that are promised by constants of all key columns, coded, until when each is, and what else is said.

    `names`: what the key columns are called in the table, if not as in the codec."""
    names = names or codec.schema.names
    part = said.constants.get(names[0]) if len(names) == 1 and said.only_constants else None
    if part is not None and part.order.whole:  # ranks are codes
        rows = np.zeros((len(part.times), codec.width), np.int64)
        rows[:, codec.words] = part.keys
        return rows, part.times, PunctuationTable(said.schema)
    columns, times, rest = said.split_keys(names)
    return codec.encode(columns, len(times)) if len(times) else codec.empty(), times, rest


def keys_covered(promises: Sequence[Punctuation], codec: RowCodec, keys: KeyTable) -> tuple[np.ndarray, np.ndarray]:
    """The keys that punctuation about key columns reaches, each once and in order, and until when.

    Constants are looked up; anything else is compared with all keys, by columns.
    """
    if not promises:
        return NONE
    rows, times, others = constant_keys(read_promises(promises, codec.schema), codec)
    found = keys.find(rows) if len(rows) else _NO_INTS
    if others:
        ids = keys.ids()
        found = np.concatenate([found, ids])
        times = np.concatenate([times, upto(others, codec, keys.codes[ids])])
    ids, until = np.empty(len(found), np.int64), np.empty(len(found), np.int64)
    n = _each_once(found, times, found.argsort(), ids, until)
    return ids[:n], until[:n]


@loop
def _each_once(found: Any, times: Any, order: Any, ids: Any, until: Any) -> Any:
    """Write ids in order, each that is there (not -1) and has a time once, with its largest time; how many."""
    n = 0
    for i in order:
        if found[i] < 0 or times[i] == _NEVER:
            continue
        if n > 0 and ids[n - 1] == found[i]:
            until[n - 1] = max(until[n - 1], times[i])
        else:
            ids[n], until[n] = found[i], times[i]
            n += 1
    return n


def upto(promises: Iterable[Punctuation] | PunctuationStore, codec: RowCodec, rows: np.ndarray) -> np.ndarray:
    """Until when punctuation holds for each of these coded rows."""
    if not isinstance(promises, PunctuationStore):
        listed, promises = promises, PunctuationStore(codec.schema)
        promises.add(listed)
    columns = {name: _values(codec, rows, codec.schema.index(name)) for name in promises.bound}
    return promises.upto(columns, len(rows))


def _values(codec: RowCodec, rows: np.ndarray, j: int) -> pa.Array | np.ndarray:
    """A column of coded rows; its ranks, where these are the codes and none is null."""
    if order_of(codec.schema.types[j]).whole and codec.valid(rows, j) is None:
        return np.ascontiguousarray(rows[:, codec.words + j])
    return codec.column(rows, j)


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
        """Raise the floors of keys, each once; returns those for which that is news."""
        self.grow(capacity)
        news = times > self.now[ids]
        found = ids[news]
        self.now[found] = times[news]
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
        self.before[self._raised] = self.now[self._raised]
        gone = gone[gone < len(self.now)]
        self.before[gone] = self.now[gone] = NEVER
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

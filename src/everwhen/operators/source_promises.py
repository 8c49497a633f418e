"""What a source has promised about data, and the check that it keeps its word (grammatical: Tucker et al., 3.1).

Each element is compared with all promises that came before it, also within its batch, by columns.  A promise forbids
inserts and adjusts of the payloads that it matches alike, if they change an instant before its time.  Kept are the
promises that the CTI has not overtaken, in compact form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.errors import QueryError
from everwhen.model.element import Punct
from everwhen.model.elements import ADJUST, PUNCT, ElementBatch
from everwhen.model.patterns import show_promise
from everwhen.model.promise_set import PromiseSet
from everwhen.model.punctuation import AttributePattern, Promise
from everwhen.model.schema import Schema
from everwhen.model.time import INF, NEVER
from everwhen.operators.punctuator import Broken, Punctuator

RULED_OUT: Final = "an element that an earlier promise of the source has ruled out"
KEEP_YOUR_WORD: Final = "a promise says that no matching insert or adjust follows; correct the source"

NO_PATTERN: Final = (
    "write OneOf((value, …)), Range(ge=…, lt=…) or Nothing(); Promise.constants({name: value}) binds constants"
)


class SourcePromises:
    """One source's promises.  `check` a batch; then `settle` or forget about it."""

    def __init__(self, schema: Schema, punctuator: Punctuator | None = None) -> None:
        self._schema = schema
        self._punctuator = punctuator
        self._said = PromiseSet(schema)
        self._checked = PromiseSet(schema)  # what the batch at hand promises
        self.fresh: tuple[Promise, ...] = ()
        """What the last settled batch has promised, in few words."""

    @property
    def silent(self) -> bool:
        """Whether nothing has been promised, and nothing that is declared has to be looked after."""
        return self._punctuator is None and not self._said and not self._checked

    def unknown(self, batch: ElementBatch) -> tuple[int, str] | None:
        """The first promise about a column that is not there, and its name."""
        for i, said in sorted(batch.promises.items()):
            if isinstance(said, Punct):
                for name in said.promise.match:
                    if name not in self._schema:
                        return i, name
        return None

    def check(self, batch: ElementBatch) -> Broken | None:
        """The first element that breaks a promise that was made or that follows from what is declared."""
        broken = self._check_said(batch)
        if self._punctuator is None:
            return broken
        data = np.flatnonzero(batch.op <= ADJUST)
        columns = {name: batch.columns[self._schema.index(name)] for name in self._punctuator.reads}
        if len(data) < len(batch):
            columns = {name: column.take(pa.array(data)) for name, column in columns.items()}
        seen = self._punctuator.observe(columns, len(data))
        self._checked.add(seen.promises)
        if seen.broken is None or (broken is not None and broken.at < data[seen.broken.at]):
            return broken
        return replace(seen.broken, at=int(data[seen.broken.at]))

    def _check_said(self, batch: ElementBatch) -> Broken | None:
        said = [
            (i, p.promise) for i, p in sorted(batch.promises.items()) if isinstance(p, Punct) and batch.op[i] == PUNCT
        ]
        if len(self._checked):
            self._checked = PromiseSet(self._schema)
        unreadable = self._read(said) if said else None
        if unreadable is not None:
            return unreadable
        if not said and not len(self._said):
            return None
        data = np.flatnonzero(batch.op <= ADJUST)
        if not len(data):
            return None
        sync = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
        broken = np.zeros(len(batch), np.bool_)
        if len(self._said):
            broken |= sync < self._promised(self._said, batch.columns, len(batch))
        broken |= self._broken_inside(batch, sync, [(i, promise) for i, promise in said if i < data[-1]])
        broken &= batch.op <= ADJUST
        if not broken.any():
            return None
        at = int(np.argmax(broken))
        promise = self._breaks(batch, at, int(sync[at]), [promise for i, promise in said if i < at])
        return Broken(at, f"{RULED_OUT}: {show_promise(promise)}", KEEP_YOUR_WORD)

    def _broken_inside(self, batch: ElementBatch, sync: np.ndarray, inside: list[tuple[int, Promise]]) -> np.ndarray:
        """Which elements are ruled out by a promise of the same batch that stands before them."""
        n = len(batch)
        broken = np.zeros(n, np.bool_)
        times = {promise.t for _, promise in inside}
        rows = np.arange(n)
        columns = batch.columns
        if len(times) > 1:  # mostly nothing stands behind one promise and before the time of another
            every, any_time = PromiseSet(self._schema), PromiseSet(self._schema)
            every.add(promise for _, promise in inside)
            any_time.add(Promise(promise.match, n - i) for i, promise in inside)
            late = n - np.maximum(self._promised(any_time, columns, n), 0) < rows
            rows = np.flatnonzero(late & (sync < self._promised(every, columns, n)))
            if not len(rows):
                return broken
            columns = tuple(column.take(pa.array(rows)) for column in columns)
        for t in times:
            # promises for the same time, by place: of those that match, the first counts
            by_place = PromiseSet(self._schema)
            by_place.add(Promise(promise.match, n - i) for i, promise in inside if promise.t == t)
            place = n - np.maximum(self._promised(by_place, columns, len(rows)), 0)
            broken[rows] |= (place < rows) & (sync[rows] < t)
        return broken

    def _read(self, said: Sequence[tuple[int, Promise]]) -> Broken | None:
        """Read the batch's promises, before anything of it is taken; the first with a pattern that does not fit."""
        for i, promise in said:
            for name, pattern in promise.match.items():
                if not isinstance(pattern, AttributePattern):
                    return Broken(i, f"{pattern!r} is no pattern for {name!r}", NO_PATTERN)
        try:
            self._checked.add(promise for _, promise in said)
        except QueryError:
            for i, promise in said:
                try:
                    PromiseSet(self._schema).add([promise])
                except QueryError as bad:
                    return Broken(i, str(bad), "a pattern holds values of its column's type")
            raise
        return None

    def _promised(self, promises: PromiseSet, columns: Sequence[pa.Array], n: int) -> np.ndarray:
        return promises.promised({name: columns[self._schema.index(name)] for name in promises.bound}, n)

    def _breaks(self, batch: ElementBatch, at: int, sync: int, inside: Sequence[Promise]) -> Promise:
        row = {name: column[at].as_py() for name, column in zip(self._schema.names, batch.columns, strict=True)}
        found = (p for p in (*inside, *self._said) if p.t > sync and p.matches(row))
        return next(found, Promise({}, NEVER))

    def settle(self, cti: int) -> None:
        """The checked batch stays."""
        if self.silent:
            self.fresh = ()
            return
        if self._punctuator is not None:
            self._punctuator.settle()
        fresh = list(self._checked)
        if fresh:
            self._checked = PromiseSet(self._schema)
            self._said.add(fresh)
        self.fresh = tuple(promise for promise in fresh if promise.t > cti)
        if len(self._said):
            if cti == INF:
                self._said = PromiseSet(self._schema)
            else:
                self._said.forget(cti)

    def undo(self) -> None:
        self._checked = PromiseSet(self._schema)

    def __iter__(self) -> Iterator[Promise]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    @property
    def nbytes(self) -> int:
        return self._said.nbytes

    def snapshot(self) -> Any:
        said = self._said.snapshot() if len(self._said) else None
        return said if self._punctuator is None else {"said": said, "punctuator": self._punctuator.snapshot()}

    def restore(self, state: Any) -> None:
        if self._punctuator is not None and state is not None:
            self._punctuator.restore(state["punctuator"])
            state = state["said"]
        if state is not None:
            self._said.restore(state)

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
from everwhen.model.promise_intake import NO_PATTERN, Intake, read_promises
from everwhen.model.promise_set import PromiseSet, in_few_words
from everwhen.model.punctuation import AttributePattern, Promise
from everwhen.model.schema import Schema
from everwhen.model.time import INF, NEVER
from everwhen.model.value_order import Kind, order_of, plain
from everwhen.operators.kernels.arrivals import first_broken
from everwhen.operators.punctuator import Broken, Punctuator

RULED_OUT: Final = "an element that an earlier promise of the source has ruled out"
KEEP_YOUR_WORD: Final = "a promise says that no matching insert or adjust follows; correct the source"
_COMPARED: Final = 1 << 21
"""So many pairs of an element and a promise are compared one by one; beyond, promises are looked up."""

Said = Sequence[tuple[int, Promise]]
"""Promises with their places in the batch, in order."""


class SourcePromises:
    """One source's promises.  `check` a batch; then `settle` or forget about it."""

    def __init__(self, schema: Schema, punctuator: Punctuator | None = None) -> None:
        self._schema = schema
        self._punctuator = punctuator
        self._said = PromiseSet(schema)
        self._checked: Intake | None = None  # what the batch at hand promises
        self.fresh: tuple[Promise, ...] = ()
        """What the last settled batch has promised, in few words."""

    def check(self, batch: ElementBatch) -> Broken | None:
        """The first element that breaks a promise that was made or that follows from what is declared."""
        self._checked = None
        said = [
            (i, p.promise) for i, p in sorted(batch.promises.items()) if isinstance(p, Punct) and batch.op[i] == PUNCT
        ]
        if said:
            unreadable = self._read(said)
            if unreadable is not None:
                return unreadable
        broken = self._check_said(batch, said)
        if self._punctuator is None:
            return broken
        data = np.flatnonzero(batch.op <= ADJUST)
        columns = {name: batch.columns[self._schema.index(name)] for name in self._punctuator.reads}
        if len(data) < len(batch):
            columns = {name: column.take(pa.array(data)) for name, column in columns.items()}
        seen = self._punctuator.observe(columns, len(data))
        if seen.promises:
            self._checked = read_promises([*(promise for _, promise in said), *seen.promises], self._schema)
        if seen.broken is None or (broken is not None and broken.at < data[seen.broken.at]):
            return broken
        return replace(seen.broken, at=int(data[seen.broken.at]))

    def _check_said(self, batch: ElementBatch, said: Said) -> Broken | None:
        """The first element that breaks what an earlier batch has promised, or an earlier element of this one."""
        if not said and not self._said:
            return None
        n, gaps, sync = len(batch), np.flatnonzero(batch.op > ADJUST), batch.vs
        if len(gaps) == n:
            return None
        if (batch.op == ADJUST).any():
            sync = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
        at = n
        if self._said:
            broken = sync < self._promised(self._said, batch.columns, n)
            broken[gaps] = False
            at = int(np.argmax(broken)) if broken.any() else n
        if said:
            at = min(at, self._broken_inside(batch, gaps, sync, said))
        if at == n:
            return None
        promise = self._breaks(batch, at, int(sync[at]), [promise for i, promise in said if i < at])
        (element,) = batch.slice(at, 1).elements()
        return Broken(at, f"{RULED_OUT}: {show_promise(promise)}; it is {element}", KEEP_YOUR_WORD)

    def _broken_inside(self, batch: ElementBatch, gaps: np.ndarray, sync: np.ndarray, said: Said) -> int:
        """The first element that a promise before it in the same batch rules out; if there is none, the length."""
        compared = self._compared(batch, gaps, sync, [i for i, _ in said])
        if compared is not None:
            return compared
        rows = np.flatnonzero(batch.op <= ADJUST)
        return min(self._behind(batch.columns, sync, rows[rows > said[0][0]], said).tolist(), default=len(batch))

    def _compared(
        self, batch: ElementBatch, gaps: np.ndarray, sync: np.ndarray, places: Sequence[int]
    ) -> int | None:
        """The same for few promises about single columns that have ranks and no nulls; None: there are others."""
        read = self._checked
        if read is None or read.tables or read.wide or read.everything != NEVER:
            return None
        if len(places) * len(batch) > _COMPARED:
            return None
        at = np.array(places, np.int64)
        first = len(batch)
        for name in {**read.constants, **read.ranges}:
            column = plain(batch.columns[self._schema.index(name)])
            pieces = read.pieces(name)
            if pieces is None or column.null_count > len(gaps):
                return None
            lows, highs, times, of = pieces
            found = first_broken(gaps, order_of(column.type).ranks(column), sync, at[of], lows, highs, times)
            first = min(first, int(found)) if found >= 0 else first
        return first

    def _behind(self, columns: Sequence[pa.Array], sync: np.ndarray, rows: np.ndarray, said: Said) -> np.ndarray:
        """Which rows, all behind the first promise, break a promise before them: by halves of the promises."""
        if not len(rows):
            return rows
        every = PromiseSet(self._schema)
        every.add(promise for _, promise in said)
        taken = pa.array(rows)
        bound = {name: columns[self._schema.index(name)].take(taken) for name in every.bound}
        rows = rows[sync[rows] < every.promised(bound, len(rows))]
        behind = rows > said[-1][0]
        among, half = rows[~behind], len(said) // 2
        if not len(among):
            return rows[behind]
        left = self._behind(columns, sync, among, said[:half])
        right = self._behind(columns, sync, among[among > said[half][0]], said[half:])
        return np.concatenate([rows[behind], left, right])

    def _read(self, said: Said) -> Broken | None:
        """Read the batch's promises, before anything of it is taken; the first with a pattern that does not fit."""
        try:
            self._checked = read_promises((promise for _, promise in said), self._schema)
        except QueryError:
            for i, promise in said:
                for name, pattern in promise.match.items():
                    if name not in self._schema:
                        problem = f"a punctuation on the unknown attribute {name!r}"
                        return Broken(i, problem, f"there is {self._schema}")
                    if not isinstance(pattern, AttributePattern):
                        return Broken(i, f"{pattern!r} is no pattern for {name!r}", NO_PATTERN)
                try:
                    read_promises([promise], self._schema)
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
        if self._punctuator is not None:
            self._punctuator.settle()
        self.fresh = ()
        if self._checked is not None:
            checked, self._checked = self._checked.after(cti), None
            if checked:
                self._said.take(checked)
                self.fresh = tuple(in_few_words(checked))
        if self._said:
            if cti == INF:
                self._said = PromiseSet(self._schema)
            else:
                self._said.forget(cti)

    def undo(self) -> None:
        self._checked = None

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

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

from everwhen.core.punctuation import AttributePattern, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.operators.ingress.checked_batch import Arrived
from everwhen.operators.punctuate.punctuator import Broken, Punctuator
from everwhen.punctuation.api import (
    NO_PATTERN,
    NO_PIECES,
    PunctuationStore,
    PunctuationTable,
    first_before,
    first_violation,
    joined,
    read_promises,
    show_promise,
)
from everwhen.stream.batch_punctuation import BatchPunctuation
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import PUNCT, ElementBatch
from everwhen.values.order import order_of, plain

RULED_OUT: Final = "an element that an earlier promise of the source has ruled out"
KEEP_YOUR_WORD: Final = "a promise says that no matching insert or adjust follows; correct the source"
_COMPARED: Final = 256
"""So many constants and ranges of a batch are compared with its elements one by one; more are looked up."""
_STANDING: Final = 8
"""So many standing promises of a column are compared one by one."""

_NO_PLACES: Final = np.empty(0, np.int64)

Said = Sequence[tuple[int, Punctuation]]
"""Promises with their places, in order."""


class SourcePromises:
    """One source's promises.  `check` a batch; then `settle` or forget about it."""

    def __init__(self, schema: Schema, punctuator: Punctuator | None = None) -> None:
        self._schema = schema
        self._at = {name: i for i, name in enumerate(schema.names)}
        self._orders = [order_of(type_) for type_ in schema.types]
        self._punctuator = punctuator
        self._said = PunctuationStore(schema)
        self._checked: PunctuationTable | None = None  # what the batch at hand promises
        self.fresh: Sequence[Punctuation] = ()
        """What the last settled batch has promised."""

    def check(self, batch: ElementBatch, data: Arrived) -> Broken | None:
        """The first element that breaks a promise that was made or that follows from what is declared."""
        self._checked = None
        given = batch.promises
        if isinstance(given, BatchPunctuation) and (batch.op[given.places] == PUNCT).all():
            self._checked, places = given.said, given.places
        elif given:
            said = _listed(batch)
            unreadable = self._read(said)
            if unreadable is not None:
                return unreadable
            places = np.array([i for i, _ in said], np.int64)
        else:
            places = _NO_PLACES
        broken = self._check_said(data, places, batch) if len(data) and (len(places) or self._said) else None
        if self._punctuator is None:
            return broken
        columns = {name: data.column(self._schema.index(name)) for name in self._punctuator.reads}
        seen = self._punctuator.observe(columns, len(data))
        if seen.promises:
            self._checked = joined(
                [self._checked or PunctuationTable(self._schema), read_promises(seen.promises, self._schema)]
            )
        if seen.broken is None:
            return broken
        at = data.place(seen.broken.at)
        return broken if broken is not None and broken.at < at else replace(seen.broken, at=at)

    def _check_said(self, data: Arrived, places: np.ndarray, batch: ElementBatch) -> Broken | None:
        """The first element that breaks what an earlier batch has promised, or an earlier element of this one."""
        n, sync = len(data.op), data.sync
        inside = len(places) > 0 and int(places[0]) < n
        at = self._first(data, sync, places if inside else _NO_PLACES, batch)
        if at == n:
            return None
        said = _listed(batch)
        element = data.element(at, self._schema)
        before = (*(promise for i, promise in said if i < at), *self._said)
        broken = (promise for promise in before if promise.t > element.sync and promise.matches(element.row))
        promise = next(broken, Punctuation({}, NEVER))
        return Broken(at, f"{RULED_OUT}: {show_promise(promise)}; it is {element}", KEEP_YOUR_WORD)

    def _first(self, data: Arrived, sync: np.ndarray, places: np.ndarray, batch: ElementBatch) -> int:
        """The first broken one; how many there are if none is.  Few promises about single columns that have ranks are
        compared with the elements; others are looked up."""
        first = n = len(data.op)
        standing = self._said.pieces(_STANDING)
        fresh = self._checked.pieces(_COMPARED) if len(places) and self._checked is not None else {}
        known = all(data.known(self._at[name]) for name in {**(standing or {}), **(fresh or {})})
        if standing is None or not known:
            first, standing = self._standing(data, sync), {}
        if fresh is None or not known:
            first, fresh = min(first, self._among(data, sync, [each for each in _listed(batch) if each[0] < n])), {}
        for name in standing | fresh:
            at = self._at[name]
            ranks = self._orders[at].keys(plain(data.columns[at]))
            few, (new, of) = standing.get(name, NO_PIECES), fresh.get(name, (NO_PIECES, _NO_PLACES))
            first = min(first, first_violation(ranks, sync, data.gaps, few, new, places[of]))
        return first

    def _standing(self, data: Arrived, sync: np.ndarray) -> int:
        """The first that breaks a promise of an earlier batch."""
        columns = {name: data.complete(self._at[name]) for name in self._said.bound}
        return int(first_before(sync, self._said.upto(columns, len(data.op)), data.gaps))

    def _among(self, data: Arrived, sync: np.ndarray, inside: Said) -> int:
        """The first that breaks a promise among the elements."""
        n = len(data.op)
        # Mostly no element stands behind a promise that it matches, whatever its time.
        places = PunctuationStore(self._schema)
        places.add(Punctuation(promise.match, n - i) for i, promise in inside)
        columns = {name: data.complete(self._schema.index(name)) for name in places.bound}
        late = n - np.maximum(places.upto(columns, n), 0) < np.arange(n)
        late[data.gaps] = False
        return min([n, *self._behind(data, sync, np.flatnonzero(late), inside).tolist()])

    def _behind(self, data: Arrived, sync: np.ndarray, at: np.ndarray, said: Said) -> np.ndarray:
        """Which elements, all behind the first promise, break a promise before them: by halves of the promises."""
        if not len(at):
            return at
        every = PunctuationStore(self._schema)
        every.add(promise for _, promise in said)
        taken = pa.array(at)
        columns = {name: data.columns[self._schema.index(name)].take(taken) for name in every.bound}
        at = at[sync[at] < every.upto(columns, len(at))]
        behind = at > said[-1][0]
        among, half = at[~behind], len(said) // 2
        if not len(among):
            return at[behind]
        left = self._behind(data, sync, among, said[:half])
        right = self._behind(data, sync, among[among > said[half][0]], said[half:])
        return np.concatenate([at[behind], left, right])

    def _read(self, said: Said) -> Broken | None:
        """Read the batch's promises, before anything of it is taken; the first with a pattern that does not fit."""
        try:
            self._checked = read_promises((promise for _, promise in said), self._schema, strict=True)
        except QueryError:
            for i, promise in said:
                for name, pattern in promise.match.items():
                    if name not in self._schema:
                        problem = f"a punctuation on the unknown attribute {name!r}"
                        return Broken(i, problem, f"there is {self._schema}")
                    if not isinstance(pattern, AttributePattern):
                        return Broken(i, f"{pattern!r} is no pattern for {name!r}", NO_PATTERN)
                try:
                    read_promises([promise], self._schema, strict=True)
                except QueryError as bad:
                    return Broken(i, str(bad), "a pattern holds some values, of its column's type")
            raise
        return None

    def settle(self, cti: int) -> None:
        """The checked batch stays."""
        if self._punctuator is not None:
            self._punctuator.settle()
        self.fresh = ()
        if self._checked is not None:
            checked, self._checked = self._checked.after(cti).united(), None
            if checked:
                self._said.add(checked)
                self.fresh = checked
        if self._said:
            if cti == INF:
                self._said = PunctuationStore(self._schema)
            else:
                self._said.forget(cti)

    def undo(self) -> None:
        self._checked = None

    def __iter__(self) -> Iterator[Punctuation]:
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


def _listed(batch: ElementBatch) -> Said:
    """The promises of a batch with their places."""
    return [(i, p.promise) for i, p in sorted(batch.promises.items()) if isinstance(p, Punct) and batch.op[i] == PUNCT]

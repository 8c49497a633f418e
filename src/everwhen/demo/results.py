"""What a query of the demo has said: the rows that hold now, and counts of what was said, ended and corrected."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import numpy as np

from everwhen.core.time import NEVER
from everwhen.demo.view import QueryView, show_row
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

_PLAYED: Final = 300
"""About so many of the events that live within an epoch are kept to be shown."""


@dataclass
class Results:
    """What a query's output says: the rows alive at the latest instant, and counts of what was said.

    Only events that reach the latest instant are looked at one by one, so that a busy query costs no more than a
    quiet one; those that have ended go when the table has doubled.  Who shows an epoch bit by bit (`is_played`) also
    gets some of those that live within it.  An adjust counts as a correction if it changes an instant that had been
    answered before its epoch; the others end a result because time went on.
    """

    rows: dict[tuple[int, int, tuple[Any, ...]], int] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    inserts: int = 0
    ended: int = 0
    corrected: int = 0
    last: tuple[Any, ...] | None = None
    final: int = NEVER
    purged_to: int = 0
    is_played: bool = False

    def take(self, batch: ElementBatch, before: int, now: int) -> None:
        """One epoch's output; `before` and `now` are the latest instants before and after it."""
        self.columns = batch.schema.names
        inserts, adjusts, promises = batch.op == INSERT, batch.op == ADJUST, batch.op == CTI
        if promises.any():
            self.final = max(self.final, int(batch.vs[promises].max()))
        sync = np.minimum(batch.ve, batch.vnew)
        corrected = int(np.count_nonzero(adjusts & (sync <= before)))
        self.inserts += int(np.count_nonzero(inserts))
        self.corrected += corrected
        self.ended += int(np.count_nonzero(adjusts)) - corrected
        if inserts.any():
            self.last = self._row(batch, int(np.flatnonzero(inserts)[-1]))
        reaching = (inserts & (batch.ve > now)) | (adjusts & (np.maximum(batch.ve, batch.vnew) > now))
        if self.is_played:
            within = np.flatnonzero(inserts & ~reaching & (batch.ve > before))
            reaching[within[:: len(within) // _PLAYED + 1]] = True
        for i in np.flatnonzero(reaching).tolist():
            vs, ve, row = int(batch.vs[i]), int(batch.ve[i]), self._row(batch, i)
            if inserts[i]:
                self._add((vs, ve, row), 1)
            else:
                self._add((vs, ve, row), -1)
                if batch.vnew[i] > vs:
                    self._add((vs, int(batch.vnew[i]), row), 1)
        if len(self.rows) > 2 * self.purged_to + 100:
            since = before if self.is_played else now
            self.rows = {key: copies for key, copies in self.rows.items() if key[1] > since}
            self.purged_to = len(self.rows)

    def alive(self, now: int) -> list[tuple[int, tuple[Any, ...]]]:
        """The starts and rows of what is alive at `now`."""
        return [(vs, row) for (vs, ve, row), copies in self.rows.items() if vs <= now < ve for _ in range(copies)]

    def view(self, name: str, title: str, now: int, depth: int = 1) -> QueryView:
        """The `depth` newest rows alive stand for all; where none is, the last ones said."""
        alive = sorted(self.alive(now), key=itemgetter(0), reverse=True)
        rows = [row for _, row in alive[:depth]] or self._ended(now, depth)
        texts = tuple(show_row(zip(self.columns, row, strict=True)) for row in rows)
        counts = len(alive), self.inserts, self.ended, self.corrected
        return QueryView(name, title, *counts, texts, bool(alive), self.final)

    def _ended(self, now: int, depth: int) -> list[tuple[Any, ...]]:
        """The last rows said, where none is alive."""
        known = sorted(((vs, row) for vs, _, row in self.rows if vs <= now), key=itemgetter(0), reverse=True)
        return [row for _, row in known[:depth]] or ([] if self.last is None else [self.last])

    def _add(self, key: tuple[int, int, tuple[Any, ...]], copies: int) -> None:
        left = self.rows.get(key, 0) + copies
        if left:
            self.rows[key] = left
        else:
            self.rows.pop(key, None)

    @staticmethod
    def _row(batch: ElementBatch, i: int) -> tuple[Any, ...]:
        return tuple(column[i].as_py() for column in batch.columns)

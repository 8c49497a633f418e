"""The head of a set loop (UNION): derivations counted by birth, so that no cycle keeps itself alive.

Each row has pieces of time; each piece has its birth, the round in which the row came, and two counts: all
derivations, and those whose premises are all older.  A piece goes when nothing older supports it, and comes when there
is a derivation.  Nothing comes while anything goes: so a row and its retraction do not chase each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.key_table import KeyTable, Regions
from everwhen.containers.live_runs import group_rows
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.contract import StateSize
from everwhen.operators.loop import support_loops as kernel
from everwhen.operators.loop.head import LoopHead, join_birth, split_birth
from everwhen.operators.loop.support_loops import BIRTH, DELETE, HI, HOLD, INSERT, LO, PIECE
from everwhen.rows import restored
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

_NO_INTS = np.empty(0, np.int64)


class SetHead(LoopHead):
    """Rows by number, their pieces, and which of them are due.  `sent` has the column of births, or is `codec` where
    nothing is ever taken back."""

    keeps = "per row its birth and its derivations, over time from the promise on"

    def __init__(self, codec: RowCodec, sent: RowCodec) -> None:
        self.codec = codec
        self.sent = sent
        self._births = sent is not codec
        self._keys = KeyTable(codec.width, codec.pooled)
        codec.pool.register(self._keys)
        self._pieces = Regions(PIECE)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._round = 0
        self._promise = NEVER
        self._due: list[np.ndarray] = []  # rows that may be due
        self._touched: list[np.ndarray] = []  # rows touched in this epoch

    def retract(self, derived: Changes) -> Changes:
        if not len(derived):
            return no_changes(self.sent)
        return self._take(derived, DELETE)

    def insert(self, derived: Changes | None) -> Changes:
        waiting, self._due = self._due, []
        if derived is None or not len(derived):
            ids = np.unique(np.concatenate(waiting)) if waiting else _NO_INTS
            return self._take_ids(ids) if len(ids) else no_changes(self.sent)
        self._round += 1
        batch = self._take(derived, INSERT)
        assert not waiting, "what is due comes before more is derived"
        return batch

    def hold(self, derived: Changes) -> None:
        if len(derived):
            self._take(derived, HOLD)

    @property
    def due(self) -> bool:
        return bool(self._due)

    def _take(self, derived: Changes, phase: int) -> Changes:
        rows, premise = derived.rows, np.zeros(len(derived), np.int64)
        if self._births:
            rows, premise = split_birth(self.codec, rows)
        ids = self._keys.intern(rows)
        self._grow()
        keys, given, order = group_rows(ids, self._slot)
        return self._visit(keys, given, order, (derived.lo, derived.hi, derived.weight, premise), phase)

    def _take_ids(self, ids: np.ndarray) -> Changes:
        self._round += 1
        nothing = np.zeros(len(ids) + 1, np.int64)
        return self._visit(ids, nothing, _NO_INTS, (_NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS), INSERT)

    def _visit(
        self, keys: np.ndarray, given: np.ndarray, order: np.ndarray, derived: Sequence[np.ndarray], phase: int
    ) -> Changes:
        old, offsets = self._pieces.gather(keys)
        new, ends, sent, due, legal = kernel.take(old, offsets, given, order, *derived, phase, self._round)
        if not legal:
            raise EverwhenError("a change takes back a derivation that is not there: the loop's input is not valid")
        self._pieces.put(keys, ends, new)
        self._touched.append(keys)
        if due.any():
            self._due.append(keys[due])
        if not len(sent):
            return no_changes(self.sent)
        rows = self._keys.codes[keys[sent[:, 0]]]
        if self._births:
            rows = join_birth(self.codec, self.sent, rows, sent[:, 4])
        lo, hi, weight = (np.ascontiguousarray(sent[:, column]) for column in (1, 2, 3))
        return Changes(self.sent, lo, hi, weight, rows)

    def answer(self, sent: Changes) -> Changes:
        return sent.with_rows(self.codec, split_birth(self.codec, sent.rows)[0]) if self._births else sent

    def expire(self, promise: int) -> None:
        touched = np.unique(np.concatenate(self._touched)) if self._touched else _NO_INTS
        self._touched = []
        if promise == INF:
            self._keys.remove(self._keys.ids())
            self._pieces.clear()
            self._due = []
            self._promise = promise
            return
        if promise > self._promise:
            self._promise = promise
            over = self._ends.before(promise + 1)
            touched = np.union1d(touched, over) if len(over) else touched
            if len(touched):
                old, offsets = self._pieces.gather(touched)
                if len(old) and int(old[:, HI].min()) <= promise:
                    new, ends = kernel.drop_ended(old, offsets, promise)
                    self._pieces.put(touched, ends, new)
        if len(touched):
            self._schedule(touched)

    def _schedule(self, ids: np.ndarray) -> None:
        """Note when the first piece of each row ends; forget rows without pieces."""
        empty = self._pieces.length[ids] == 0
        ends = np.full(len(ids), INF, np.int64)
        kept = ids[~empty]
        ends[~empty] = self._pieces.pool[self._pieces.start[kept], HI]
        self._ends.schedule(ids, ends)
        if empty.any():
            self._keys.remove(ids[empty])

    def _grow(self) -> None:
        capacity = self._keys.capacity
        if capacity > len(self._slot):
            self._slot = grown(self._slot, capacity, -1)
            self._pieces.grow(capacity)
            self._ends.grow(capacity)

    def standing(self) -> Changes:
        ids = self._keys.ids()
        pieces, offsets = self._pieces.gather(ids)
        present = pieces[:, BIRTH] > 0
        of = np.repeat(ids, np.diff(offsets))[present]
        lo, hi = (np.ascontiguousarray(pieces[present, column]) for column in (LO, HI))
        return Changes(self.codec, lo, hi, np.ones(len(lo), np.int64), self._keys.codes[of])

    def state_size(self) -> StateSize:
        kept = self._pieces.nbytes + self._keys.nbytes + self._ends.nbytes + self._slot.nbytes
        return StateSize(self._pieces.rows, kept)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        pieces, offsets = self._pieces.gather(ids)
        return {
            "rows": self.codec.decode(self._keys.codes[ids]), "pieces": pieces, "offsets": offsets,
            "round": self._round, "promise": self._promise,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        pieces, offsets = state["pieces"], state["offsets"]
        n = len(offsets) - 1
        restored.runs(np.arange(n), offsets, pieces, PIECE)
        ids = self._keys.intern(restored.rows(self.codec, state["rows"], n))
        self._grow()
        self._pieces.put(ids, offsets, pieces)
        self._round, self._promise = state["round"], state["promise"]
        if n:
            self._schedule(ids)
            of = np.repeat(ids, np.diff(offsets))
            waiting = np.unique(of[(pieces[:, BIRTH] == 0)])
            self._due = [waiting] if len(waiting) else []

"""The head of a set loop (UNION): derivations counted by birth, so that no cycle keeps itself alive.

Each row has pieces of time; each piece has its birth, the round in which the row came, and two counts: all
derivations, and those whose premises are all older.  A piece goes when nothing older supports it, and comes when there
is a derivation.  Nothing comes while anything goes: so a row and its retraction do not chase each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.containers.regions import Regions
from everwhen.errors import EverwhenError
from everwhen.operators.loop import support_loops as kernel
from everwhen.operators.loop.head import join_birth, split_birth
from everwhen.operators.loop.keyed_head import NO_INTS, KeyedHead
from everwhen.operators.loop.support_loops import BIRTH, HI, INSERT, LO, PIECE
from everwhen.rows import restored
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

_NO_BIRTHS = "no births: nothing is ever taken back"


class SetHead(KeyedHead):
    """Rows with their pieces.  `sent` has the column of births, or is `codec` where nothing is ever taken back."""

    keeps = "per row how it is derived, until ve ≤ c"

    def __init__(self, codec: RowCodec, sent: RowCodec) -> None:
        self._pieces = Regions(PIECE)
        super().__init__(codec, sent, codec, [self._pieces])
        self._births = sent is not codec
        self.counts = "births: a row needs a derivation older than itself" if self._births else _NO_BIRTHS

    def _take(self, derived: Changes, phase: int) -> Changes:
        rows, premise = derived.rows, np.zeros(len(derived), np.int64)
        if self._births:
            rows, premise = split_birth(self.codec, rows)
        found = (derived.lo, derived.hi, derived.weight, premise)
        return self._visit(*self._grouped(rows), found, phase)

    def _come(self, ids: np.ndarray) -> Changes:
        return self._visit(ids, np.zeros(len(ids) + 1, np.int64), NO_INTS, [NO_INTS] * 4, INSERT)

    def _visit(
        self, keys: np.ndarray, given: np.ndarray, order: np.ndarray, derived: Sequence[np.ndarray], phase: int
    ) -> Changes:
        old, offsets = self._pieces.gather(keys)
        new, ends, sent, due, legal = kernel.take(old, offsets, given, order, *derived, phase, self._round)
        if not legal:
            raise EverwhenError("a change takes back a derivation that is not there: the loop's input is not valid")
        self._pieces.put(keys, ends, new)
        self._visited(keys, due)
        if not len(sent):
            return no_changes(self.sent)
        rows = self._keys.codes[keys[sent[:, 0]]]
        if self._births:
            rows = join_birth(self.codec, self.sent, rows, sent[:, 4])
        lo, hi, weight = (np.ascontiguousarray(sent[:, column]) for column in (1, 2, 3))
        return Changes(self.sent, lo, hi, weight, rows)

    def answer(self, sent: Changes) -> Changes:
        return sent.with_rows(self.codec, split_birth(self.codec, sent.rows)[0]) if self._births else sent

    def standing(self) -> Changes:
        ids = self._keys.ids()
        pieces, offsets = self._pieces.gather(ids)
        present = pieces[:, BIRTH] > 0
        of = np.repeat(ids, np.diff(offsets))[present]
        lo, hi = (np.ascontiguousarray(pieces[present, column]) for column in (LO, HI))
        return Changes(self.codec, lo, hi, np.ones(len(lo), np.int64), self._keys.codes[of])

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
        self._schedule(ids)
        waiting = self._distinct([np.repeat(ids, np.diff(offsets))[pieces[:, BIRTH] == 0]])
        self._due = [waiting] if len(waiting) else []

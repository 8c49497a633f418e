"""GroupChain: the sink's memory for answers that are made of groups with one row each at any instant.

Such an answer needs no search by row: the group says which events a segment may concern, and time says which of these
it is.  Kept are, per group, the lifetimes said whose end is after the CTI; rows come with the segments.  What has ended
is dropped when its group is touched, or in bulk when as much again has been said.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everwhen.errors import EverwhenError
from everwhen.model.changes import Changes
from everwhen.model.elements import ADJUST, CTI, ElementBatch
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import StateSize
from everwhen.operators.kernels import said as kernel
from everwhen.operators.kernels.runs import LENGTH, Runs


class GroupChain:
    """Changes of groups and a promise in, elements out, the CTI last.

    `ordered`: elements of a step come in the order of their sync times.
    """

    def __init__(self, codec: RowCodec, ordered: bool = True) -> None:
        self.codec = codec
        self.cti = NEVER
        self._ordered = ordered
        self._said = Runs(2)

    def step(self, batch: Changes, promise: int) -> ElementBatch:
        said_cti = promise > self.cti
        records, rows = self._elements(batch, promise)
        n = len(records)
        if self._ordered and n > 1:
            op, vs, ve, vnew = (records[:, j] for j in range(4))
            sync = np.where(op == ADJUST, np.minimum(ve, vnew), vs)
            if (sync[1:] < sync[:-1]).any():
                order = np.argsort(sync, kind="stable")
                records, rows = records[order], rows[order]
        head = np.empty((4, n + said_cti), np.int64)
        head[:, :n] = records[:, :4].T
        if said_cti:
            head[:, n] = CTI, promise, promise, 0
            self.cti = promise
            if promise == INF:  # nothing can be taken back any more, however long it lives
                self._said.clear()
        columns = self.codec.decode(rows, nulls=int(said_cti))
        return ElementBatch(self.codec.schema, head[0].astype(np.uint8), head[1], head[2], head[3], columns)

    def _elements(self, batch: Changes, promise: int) -> tuple[np.ndarray, np.ndarray]:
        """Records op, vs, ve, vnew and the row of each."""
        if not len(batch):
            return np.empty((0, 5), np.int64), batch.rows
        assert batch.group is not None, "a chain of groups is fed by an operator that knows groups"
        said = self._said
        said.grow(int(batch.group.max()) + 1)
        records, said.pool, said.end, missing = kernel.chain(
            batch.group, batch.lo, batch.hi, batch.weight, said.place, said.pool, said.end, self.cti, promise
        )
        if missing >= 0:
            raise EverwhenError("the output takes back what it never said: please report this as a defect")
        self._tidy()
        at = records[:, 4]
        unmoved = len(at) == len(batch) and at[0] == 0 and at[-1] == len(at) - 1 and bool((np.diff(at) == 1).all())
        return records, batch.rows if unmoved else batch.rows[at]

    def _tidy(self, force: bool = False) -> None:
        if force or self._said.crowded:
            kernel.forget(self._said.place, self._said.pool, self.cti)
            self._said.tidy()

    def state_size(self) -> StateSize:
        """Events that can still be named."""
        return StateSize(int((self._said.records[:, kernel.VE] > self.cti).sum()), self._said.nbytes)

    def snapshot(self) -> dict[str, Any]:
        self._tidy(force=True)
        groups = np.flatnonzero(self._said.place[:, LENGTH])
        said, offsets = self._said.gather(groups)
        return {"cti": self.cti, "groups": groups, "said": said, "offsets": offsets}

    def restore(self, state: dict[str, Any]) -> None:
        self.cti = state["cti"]
        self._said.put(state["groups"], state["offsets"], state["said"])

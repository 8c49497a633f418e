"""Chain: the sink's memory.  It turns signed segments back into inserts and adjusts that name events exactly.

A negative segment shortens an event said before (or removes it, or cuts a piece out of its middle: an adjust and an
insert of the rest).  Kept are events said whose end is after the CTI.  A positive segment is always a new insert:
chains never grow, so an event that has ended before the CTI can be forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.errors import EverwhenError
from everwhen.model.changes import Changes
from everwhen.model.elements import ADJUST, CTI, INSERT, ElementBatch
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import StateSize
from everwhen.operators.kernels import events as kernel
from everwhen.operators.kernels.live import group_rows
from everwhen.operators.kernels.tables import Calendar, KeyTable, Regions, grown
from everwhen.operators.net import cancelled


class Chain:
    """Changes and a promise in, elements out, the CTI last.

    `disjoint`: within a step no two segments of a row overlap (so it is after a sweep); then they need no netting,
    and what has ended before the promise needs no memory at all.  `ordered`: elements of a step come in the order of
    their sync times.
    """

    def __init__(self, codec: RowCodec, disjoint: bool = False, ordered: bool = True) -> None:
        self.codec = codec
        self.cti = NEVER
        self._disjoint = disjoint
        self._ordered = ordered
        self._keys = KeyTable(codec.width, codec.pooled)
        codec.pool.register(self._keys)
        self._said = Regions(2)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)

    def step(self, batch: Changes, promise: int) -> ElementBatch:
        said_cti = promise > self.cti
        over, rest = None, batch
        if self._disjoint and len(batch):
            over, times, rows = kernel.partition(batch.lo, batch.hi, batch.weight, batch.rows, promise)
            rest = Changes(self.codec, times[0], times[1], times[2], rows)
        records = self._elements(rest, promise) if len(rest) else np.empty((0, 5), np.int64)
        if over is not None and len(rest) < len(batch):
            n = len(records) + len(batch) - len(rest)
            head, rows = kernel.assemble(records, self._keys.codes, over, batch.lo, batch.hi, batch.rows, n + said_cti)
        else:
            n = len(records)
            head = np.zeros((n + said_cti, 4), np.int64)
            head[:n, 0], head[:n, 1:] = records[:, 4] > 0, records[:, 1:4]
            rows = self._keys.codes[records[:, 0]]
        if self._ordered and n > 1:
            sync = np.where(head[:n, 0] == ADJUST, np.minimum(head[:n, 2], head[:n, 3]), head[:n, 1])
            if (sync[1:] < sync[:-1]).any():
                order = np.argsort(sync, kind="stable")
                head[:n], rows = head[order], rows[order]
        columns = self.codec.decode(rows)
        if said_cti:
            head[n] = CTI, promise, promise, 0
            columns = tuple(_with_null(column) for column in columns)
            self._forget(promise)
        op, vs, ve, vnew = head[:, 0].astype(np.uint8), head[:, 1].copy(), head[:, 2].copy(), head[:, 3].copy()
        return ElementBatch(self.codec.schema, op, vs, ve, vnew, columns)

    def _elements(self, batch: Changes, promise: int) -> np.ndarray:
        keys_table, said = self._keys, self._said
        ids = keys_table.intern(batch.rows)
        capacity = keys_table.capacity
        said.grow(capacity)
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)
        keys, offsets, order = group_rows(ids, self._slot)
        lo, hi, weight = batch.lo, batch.hi, batch.weight
        if not self._disjoint and len(keys) < len(ids) and weight.min() < 0:
            lo, hi, weight, offsets, order = self._net_corrected(keys, offsets, order, lo, hi, weight)
        before = int(said.length[keys].sum())
        said.reserve(2 * (before + int(np.abs(weight).sum())))
        out, said.end, missing = kernel.chain(
            keys, offsets, order, lo, hi, weight, said.start, said.length, said.pool, said.end, promise
        )
        if missing >= 0:
            raise EverwhenError("the output takes back what it never said: please report this as a defect")
        said.rows += int(said.length[keys].sum()) - before
        self._ends.schedule(keys, self._soonest(keys, self.cti))
        gone = keys[said.length[keys] == 0]
        out = out.copy()
        if len(gone):
            keys_table.remove(gone)  # the codes stay readable until the next batch
        return out

    def _net_corrected(
        self,
        keys: np.ndarray,
        offsets: np.ndarray,
        order: np.ndarray,
        lo: np.ndarray,
        hi: np.ndarray,
        weight: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Net the rows of which something is taken back; pieces of the others stay as they are."""
        group = np.repeat(np.arange(len(keys)), np.diff(offsets))
        corrected = np.zeros(len(keys), np.bool_)
        corrected[group[weight[order] < 0]] = True
        corrected &= np.diff(offsets) > 1
        if not corrected.any():
            return lo, hi, weight, offsets, order
        inside = corrected[group]
        which = np.flatnonzero(corrected)
        sub_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets)[which])])
        out = kernel.net(which, sub_offsets, order[inside], lo, hi, weight)
        kept = order[~inside]
        group = np.concatenate([group[~inside], out[:, 0]])
        lo, hi = np.concatenate([lo[kept], out[:, 1]]), np.concatenate([hi[kept], out[:, 2]])
        weight = np.concatenate([weight[kept], out[:, 3]])
        order = np.argsort(group, kind="stable")
        offsets = np.searchsorted(group[order], np.arange(len(keys) + 1))
        return lo, hi, weight, offsets, order

    def _soonest(self, keys: np.ndarray, cti: int) -> np.ndarray:
        soonest = np.empty(len(keys), np.int64)
        said = self._said
        said.rows -= kernel.drop_ended(keys, said.start, said.length, said.pool, 1, cti, soonest)
        return soonest

    def _forget(self, promise: int) -> None:
        self.cti = promise
        if promise == INF:  # nothing can be taken back any more, however long it lives
            self._keys.remove(self._keys.ids())
            self._said.clear()
            return
        due = self._ends.before(promise + 1)
        if len(due):
            self._ends.schedule(due, self._soonest(due, promise))
            self._keys.remove(due[self._said.length[due] == 0])

    def state_size(self) -> StateSize:
        return StateSize(self._said.rows, self._said.nbytes + self._keys.nbytes + self._ends.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        said, offsets = self._said.gather(ids)
        return {"cti": self.cti, "rows": self.codec.decode(self._keys.codes[ids]), "said": said, "offsets": offsets}

    def restore(self, state: dict[str, Any]) -> None:
        self.cti = state["cti"]
        ids = self._keys.intern(self.codec.encode(state["rows"], len(state["offsets"]) - 1))
        self._said.grow(self._keys.capacity)
        self._ends.grow(self._keys.capacity)
        self._said.put(ids, state["offsets"], state["said"])
        self._ends.schedule(ids, self._soonest(ids, self.cti))


class EventChain:
    """The sink of a plan in event form: an event taken back and said again with the same start is one adjust.

    Nothing is kept: the changes name whole events, and may also prolong them.
    """

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self.cti = NEVER

    def step(self, batch: Changes, promise: int) -> ElementBatch:
        lo, hi, weight, rows = batch.lo, batch.hi, batch.weight, batch.rows
        op = np.full(len(lo), INSERT, np.uint8)
        vnew = np.zeros(len(lo), np.int64)
        if len(lo) and (weight != 1).any():
            net = cancelled(self.codec, [batch])
            lo, hi, vnew, op, rows = self._paired(net.lo, net.hi, net.weight, net.rows)
        sync = np.where(op == ADJUST, np.minimum(hi, vnew), lo)
        if len(sync) > 1 and (sync[1:] < sync[:-1]).any():
            order = np.argsort(sync, kind="stable")
            op, lo, hi, vnew, rows = op[order], lo[order], hi[order], vnew[order], rows[order]
        columns = self.codec.decode(rows)
        if promise > self.cti:
            self.cti = promise
            op = np.append(op, np.uint8(CTI))
            lo, hi, vnew = np.append(lo, promise), np.append(hi, promise), np.append(vnew, 0)
            columns = tuple(_with_null(column) for column in columns)
        return ElementBatch(self.codec.schema, op, lo, hi, vnew, columns)

    def _paired(self, lo: np.ndarray, hi: np.ndarray, weight: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Match what is taken back with what is said of the same row and start."""
        times = np.abs(weight)
        if (times != 1).any():
            at = np.repeat(np.arange(len(lo)), times)
            lo, hi, weight, rows = lo[at], hi[at], np.sign(weight[at]), rows[at]
        table = KeyTable(1 + self.codec.width)
        ids = table.intern(np.concatenate([lo[:, None], rows], axis=1))
        said, taken = weight > 0, weight < 0
        order_said = np.flatnonzero(said)[np.lexsort((hi[said], ids[said]))]
        order_taken = np.flatnonzero(taken)[np.lexsort((hi[taken], ids[taken]))]
        rank_said, rank_taken = _rank(ids[order_said]), _rank(ids[order_taken])
        pairs = KeyTable(2)
        a = pairs.intern(np.stack([ids[order_taken], rank_taken], axis=1))
        partner = np.full(pairs.capacity + len(order_said), -1, np.int64)
        b = pairs.find(np.stack([ids[order_said], rank_said], axis=1))
        matched = b >= 0
        partner[b[matched]] = order_said[matched]
        new_end = partner[a]
        ends = np.where(new_end >= 0, hi[new_end], lo[order_taken])
        adjusts, inserts = order_taken, order_said[~matched]
        at = np.concatenate([adjusts, inserts])
        op = np.concatenate([np.full(len(adjusts), ADJUST, np.uint8), np.full(len(inserts), INSERT, np.uint8)])
        vnew = np.concatenate([ends, np.zeros(len(inserts), np.int64)])
        return lo[at], hi[at], vnew, op, rows[at]

    def state_size(self) -> StateSize:
        return StateSize()

    def snapshot(self) -> dict[str, Any]:
        return {"cti": self.cti}

    def restore(self, state: dict[str, Any]) -> None:
        self.cti = state["cti"]


def _rank(ids: np.ndarray) -> np.ndarray:
    """The position of each entry among equal ones, for sorted ids."""
    return np.arange(len(ids)) - np.searchsorted(ids, ids)


def _with_null(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(1, column.type)])

"""The changelog encoder: the sink's memory.  It turns segments into inserts and adjusts that name events exactly.

A negative segment shortens an event said before (or removes it, or cuts a piece out of its middle: an adjust and an
insert of the rest).  Kept are events said whose end is after the CTI.  A positive segment is always a new insert:
chains never grow, so an event that has ended before the CTI can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.containers.sort_by_time import by_time, pick
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.contract import StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.net import cancelled, net_rows
from everwhen.operators.output import changelog_loops as kernel
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.batch_punctuation import TrailingPunctuation
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, PUNCT, ElementBatch, coded_elements


class ChangelogEncoder:
    """Changes and a promise in, elements out, the CTI last.

    `disjoint`: within a step no two segments of a row overlap (so it is after a sweep); then they need no netting.
    `ordered`: elements of a step come in the order of their sync times.
    """

    def __init__(self, codec: RowCodec, disjoint: bool = False, ordered: bool = True) -> None:
        self.codec = codec
        self.cti = NEVER
        self._disjoint = disjoint
        self._ordered = ordered
        self._heads = np.full(256, -1, np.int64)
        self._log = np.empty((256, kernel.ROW + codec.width), np.int64)
        self._count = 0
        self._tidy_at = 256
        self._over = PunctuationStore(codec.schema)  # what was promised since the dead went last
        self._forgotten = NEVER  # the largest end of events that went because their row is promised
        codec.pool.register(self)

    @classmethod
    def going_on(cls, codec: RowCodec, cti: int, said: Changes, ordered: bool) -> ChangelogEncoder:
        """The chain of an output that another one served so far: it has promised `cti` and said these events."""
        chain = cls(codec, ordered=ordered)
        chain.cti = cti
        chain._elements(said, cti)
        return chain

    def takes_all(self, ordered: bool) -> None:
        """Segments of a row may overlap from now on; `ordered`: and elements must come in order."""
        self._disjoint = False
        self._ordered |= ordered

    def takes_as(self, other: ChangelogEncoder) -> None:
        """Take segments as another one does from now on."""
        self._disjoint, self._ordered = other._disjoint, other._ordered

    def step(self, batch: Changes, promise: int, promises: Sequence[Punctuation] = ()) -> ElementBatch:
        """Elements; `promises` about data are said behind what they cover."""
        said_cti = promise > self.cti
        out, n = self._elements(batch, promise)
        if promises:  # not before: the batch may take back what they cover
            self._over.add(promises)
        if self._ordered and n > 1:
            sync = np.where(out[0, :n] == ADJUST, np.minimum(out[2, :n], out[3, :n]), out[1, :n])
            if (sync[1:] < sync[:-1]).any():
                out[:, :n] = out[:, np.argsort(sync, kind="stable")]
        if said_cti:
            self._forget(promise)
        return coded_elements(
            self.codec, out[0], out[1:4], batch.rows[out[4, :n]], promises, promise if said_cti else None
        )

    def _elements(self, batch: Changes, promise: int) -> tuple[np.ndarray, int]:
        """Rows op, vs, ve, vnew and position of the payload, with room for one more element, and how many there are."""
        lo, hi, weight, of = (
            (batch.lo, batch.hi, batch.weight, np.arange(len(batch))) if self._disjoint else net_rows(batch)
        )
        self._reserve(int(np.abs(weight).sum()))
        out, n, self._log, self._count, missing = kernel.say(
            lo, hi, weight, of, batch.rows, self._heads, self._log, self._count, promise
        )
        if missing >= 0:
            raise EverwhenError("the output takes back what it never said: please report this as a defect")
        return out, n

    def _reserve(self, more: int) -> None:
        """Room for so many events; the dead go when as many have been said as were left the last time."""
        if self._count >= self._tidy_at:
            self._tidy()
        if self._count + more > len(self._log):
            self._log = grown(self._log, 2 * (self._count + more), 0)
        if len(self._heads) < self._count + more:
            self._heads = np.full(1 << (2 * (self._count + more)).bit_length(), -1, np.int64)
            self._tidy()

    def _tidy(self) -> None:
        """Drop events that nothing can change any more: by time, or because their row is promised."""
        if len(self._over):
            log = self._log[: self._count]
            over = log[:, kernel.VE] <= upto(self._over, self.codec, log[:, kernel.ROW :])
            self._forgotten = max(self._forgotten, int(log[over, kernel.VE].max(initial=NEVER)))
            log[over, kernel.VE] = NEVER
            self._over = PunctuationStore(self.codec.schema)
        self._count = kernel.tidy(self._heads, self._log, self._count, self.cti)
        self._tidy_at = max(256, 2 * self._count)

    def _forget(self, promise: int) -> None:
        self.cti = promise
        if promise == INF:  # nothing can be taken back any more, however long it lives
            self._heads[:] = -1
            self._count = 0

    def state_size(self) -> StateSize:
        """Events said that can still be taken back."""
        if len(self._over):
            self._tidy()
        rows = int((self._log[: self._count, kernel.VE] > self.cti).sum())
        return StateSize(rows, self._log.nbytes + self._heads.nbytes)

    def standing(self) -> tuple[int, Changes]:
        """An instant, not before the CTI, and the events said that live then or later, under the names by which they
        may still be adjusted."""
        self._tidy()
        log = self._log[: self._count].copy()
        vs, ve, ones = log[:, kernel.VS].copy(), log[:, kernel.VE].copy(), np.ones(len(log), np.int64)
        return max(self.cti, self._forgotten), Changes(self.codec, vs, ve, ones, log[:, kernel.ROW :].copy())

    @property
    def known_from(self) -> int:
        """From when on `standing` is all that was said."""
        if len(self._over):
            self._tidy()
        return max(self.cti, self._forgotten)

    @property
    def length(self) -> int:
        """How many events `standing_of` looks at."""
        return self._count

    def standing_of(self, picked: Callable[[np.ndarray], np.ndarray]) -> Changes:
        """The events said whose rows are picked, and some that have ended; cost: a look at each event."""
        log = self._log[: self._count]
        some = log[picked(log[:, kernel.ROW :])]
        vs, ve, ones = some[:, kernel.VS].copy(), some[:, kernel.VE].copy(), np.ones(len(some), np.int64)
        return Changes(self.codec, vs, ve, ones, some[:, kernel.ROW :].copy())

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._tidy()
        return [(self._log[: self._count], [(kernel.ROW + j, t) for j, t in self.codec.pooled])]

    def recoded(self) -> None:
        self._heads[:] = -1
        self._tidy()

    def snapshot(self) -> dict[str, Any]:
        self._tidy()
        said = self._log[: self._count]
        return {
            "cti": self.cti,
            "forgotten": self._forgotten,
            "vs": said[:, kernel.VS].copy(),
            "ve": said[:, kernel.VE].copy(),
            "rows": self.codec.decode(said[:, kernel.ROW :]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.cti, self._forgotten = state["cti"], state["forgotten"]
        n = len(state["vs"])
        restored.ints(n, state["vs"], state["ve"])
        rows = restored.rows(self.codec, state["rows"], n)
        said = Changes(self.codec, state["vs"], state["ve"], np.ones(n, np.int64), rows)
        self._elements(said, self.cti)


class EventChangelogEncoder:
    """The sink of a plan in event form: an event taken back and said again with the same start is one adjust.

    Nothing is kept: the changes name whole events, and may also prolong them.
    """

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self.cti = NEVER

    def step(self, batch: Changes, promise: int, promises: Sequence[Punctuation] = ()) -> ElementBatch:
        lo, hi, weight, rows = batch.lo, batch.hi, batch.weight, batch.rows
        op = vnew = None  # where all are inserts
        sync = lo
        if len(lo) and (weight != 1).any():
            net = cancelled(self.codec, [batch])
            lo, hi, vnew, op, rows = self._paired(net.lo, net.hi, net.weight, net.rows)
            sync = np.where(op == ADJUST, np.minimum(hi, vnew), lo)
        cti = promise if promise > self.cti else None
        self.cti = max(self.cti, promise)
        n, size = len(lo), len(lo) + len(promises) + 1
        order = by_time(sync) if n > 1 and (sync[1:] < sync[:-1]).any() else np.arange(n)
        ops, times, said = np.full(size, INSERT, np.uint8), np.zeros((3, size), np.int64), np.empty_like(rows)
        pick(order, lo, hi, rows, times[0], times[1], said)
        if op is not None and vnew is not None:
            ops[:n], times[2, :n] = op[order], vnew[order]
        return coded_elements(self.codec, ops, times, said, promises, cti)

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


def with_punctuation(batch: ElementBatch, promises: Sequence[Punctuation]) -> ElementBatch:
    """Promises about data behind the elements of a batch, before its CTI."""
    if not promises:
        return batch
    k, n = len(promises), len(batch)
    last = n - 1 if n and batch.op[-1] == CTI else n
    op, vs, ve, vnew = (
        np.insert(column, last, np.zeros(k, column.dtype)) for column in (batch.op, batch.vs, batch.ve, batch.vnew)
    )
    op[last : last + k], ve[last : last + k] = PUNCT, INF
    columns = tuple(pa.concat_arrays([c[:last], pa.nulls(k, c.type), c[last:]]) for c in map(_plain, batch.columns))
    return ElementBatch(batch.schema, op, vs, ve, vnew, columns, TrailingPunctuation(promises, last), batch.source)


def without_punctuation(batch: ElementBatch) -> ElementBatch:
    """The elements of a batch that are no promises about data."""
    kept = np.flatnonzero(batch.op != PUNCT)
    at = pa.array(kept)
    op, vs, ve, vnew = (times[kept] for times in (batch.op, batch.vs, batch.ve, batch.vnew))
    columns = tuple(column.take(at) for column in batch.columns)
    return ElementBatch(batch.schema, op, vs, ve, vnew, columns, {}, batch.source)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _rank(ids: np.ndarray) -> np.ndarray:
    """The position of each entry among equal ones, for sorted ids."""
    return np.arange(len(ids)) - np.searchsorted(ids, ids)

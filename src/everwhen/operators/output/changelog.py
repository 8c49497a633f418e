"""The changelog encoder: the sink's memory.  It turns segments into inserts and adjusts that name events exactly.

A negative segment shortens an event said before (or removes it, or cuts a piece out of its middle: an adjust and an
insert of the rest).  Kept are events said whose end is after the CTI.  A positive segment is always a new insert:
chains never grow, so an event that has ended before the CTI can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

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

_MANY: Final = 1 << 14
"""To go through so many events takes no time worth sharing out."""
_PASSED: Final = 4
"""For each event that is said, so many are passed on."""


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
        self._first, self._end = 0, 0  # the numbers of the events in the log
        self._pass_until = 0  # events before are passed on
        self._tidy_at = 256
        self._over = PunctuationStore(codec.schema)  # what was promised since the dead went last
        self._forgotten = NEVER  # the largest end of events that went because their row is promised
        codec.pool.register(self)

    @classmethod
    def going_on(cls, codec: RowCodec, cti: int, said: Changes, ordered: bool, known: int = NEVER) -> ChangelogEncoder:
        """The chain of an output that another one served so far: it has promised `cti` and said these events, and from
        `known` on no others that stand."""
        chain = cls(codec, ordered=ordered)
        chain.cti, chain._forgotten = cti, known
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
        out, n, self._end, missing = kernel.say(
            lo, hi, weight, of, batch.rows, self._heads, self._log, self._first, self._end, promise
        )
        if missing >= 0:
            raise EverwhenError("the output takes back what it never said: please report this as a defect")
        return out, n

    def _reserve(self, more: int) -> None:
        """Room for so many events; the dead go when as many have been said as were left the last time.  Where there are
        many, some go in each step, from when on half as many have been said."""
        if self._length >= self._tidy_at or self._first < self._pass_until:
            self._let_go(more)
        if self._length + more > len(self._log):
            self._tidy()
            needed = 2 * self._length + more
            if needed > len(self._log):
                self._move(1 << (needed - 1).bit_length())
        if len(self._heads) < self._length + more:
            self._heads = np.full(1 << (2 * (self._length + more)).bit_length(), -1, np.int64)
            self._tidy()

    @property
    def _length(self) -> int:
        return self._end - self._first

    def _let_go(self, more: int) -> None:
        """Some of the dead go, or all, if there are few."""
        if self._length <= _MANY or len(self._over):
            self._tidy()
            return
        if self._first >= self._pass_until:
            self._pass_until = self._end
        until = min(self._pass_until, self._first + max(_PASSED * more, _MANY))
        self._end = kernel.pass_on(self._heads, self._log, self._first, until, self._end, self.cti)
        self._first = until
        if until == self._pass_until:
            self._tidy_at = self._length + self._length // 2

    def _tidy(self) -> None:
        """Drop events that nothing can change any more: by time, or because their row is promised."""
        if len(self._over):
            for log in self._spans():
                over = log[:, kernel.VE] <= upto(self._over, self.codec, log[:, kernel.ROW :])
                self._forgotten = max(self._forgotten, int(log[over, kernel.VE].max(initial=NEVER)))
                log[over, kernel.VE] = NEVER
            self._over = PunctuationStore(self.codec.schema)
        self._end = kernel.tidy(self._heads, self._log, self._first, self._end, self.cti)
        self._pass_until = self._first
        self._tidy_at = max(256, 2 * self._length if 2 * self._length <= _MANY else 3 * self._length // 2)

    def _spans(self) -> list[np.ndarray]:
        """The log as it stands in the ring: one piece, or two, the older one first."""
        first = self._first & (len(self._log) - 1)
        last = first + self._length
        return [self._log[first:last], *([self._log[: last - len(self._log)]] if last > len(self._log) else [])]

    def _move(self, length: int) -> None:
        """Let the log have another length, or the same, and begin at its beginning."""
        log, last = np.empty((length, self._log.shape[1]), np.int64), 0
        for each in self._spans():
            log[last : last + len(each)] = each
            last += len(each)
        self._log, self._first, self._end = log, 0, last
        self._heads[:] = -1  # also those of entries that have gone
        self._tidy()

    def _forget(self, promise: int) -> None:
        self.cti = promise
        if promise == INF:  # nothing can be taken back any more, however long it lives
            self._heads[:] = -1
            self._first = self._end = self._pass_until = 0

    def state_size(self) -> StateSize:
        """Events said that can still be taken back."""
        if len(self._over):
            self._tidy()
        rows = sum(int((log[:, kernel.VE] > self.cti).sum()) for log in self._spans())
        return StateSize(rows, self._log.nbytes + self._heads.nbytes)

    def standing(self) -> tuple[int, Changes]:
        """An instant, not before the CTI, and the events said that live then or later, under the names by which they
        may still be adjusted."""
        self._tidy()
        log = np.concatenate(self._spans())
        vs, ve, ones = log[:, kernel.VS].copy(), log[:, kernel.VE].copy(), np.ones(len(log), np.int64)
        return max(self.cti, self._forgotten), Changes(self.codec, vs, ve, ones, log[:, kernel.ROW :].copy())

    @property
    def known_from(self) -> int:
        """From when on `standing` is all that was said."""
        if len(self._over):
            self._tidy()
        return max(self.cti, self._forgotten)

    def standing_of(self, low: int, high: int, parts: int) -> Changes:
        """The events said, and some that have ended, of rows in the parts from `low` on and before `high`, of so many
        (a power of two); cost: a look at these events and at their share of the slots."""
        found = np.sort(kernel.of_parts(self._heads, self._log, self._first, low, high, parts))
        some = self._log[found & (len(self._log) - 1)]
        vs, ve, ones = some[:, kernel.VS].copy(), some[:, kernel.VE].copy(), np.ones(len(some), np.int64)
        return Changes(self.codec, vs, ve, ones, some[:, kernel.ROW :].copy())

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._move(len(self._log))
        return [(self._log[: self._length], [(kernel.ROW + j, t) for j, t in self.codec.pooled])]

    def recoded(self) -> None:
        self._heads[:] = -1
        self._tidy()

    def snapshot(self) -> dict[str, Any]:
        self._tidy()
        said = np.concatenate(self._spans())
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

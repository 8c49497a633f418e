"""Count-based and partitioned windows: the last N rows, per partition (Krämer, 11.6.2, 11.6.3, 17.1.2).

Rows of a partition are ranked by (instant, payload in column order, nulls first), never by arrival.  The row of rank r
lives from the instant of rank ⌈r/A⌉·A until that of the first multiple of A which is at least r+N (A: the slide, 1
unless given).  A late row shifts the ends of the N rows before it; with a slide, every later rank.

Kept are, per partition, rows at or after the CTI and earlier ones whose end may still move: whose output end is not
before the CTI; with a slide also how many were dropped, modulo A.  Partitions are not bounded by time.

With `ended` a row is said when it has left the window, or up to the CTI, because an open end would be taken back by
the N-th successor even in perfect input.  Rows leave in the order in which they came, so they are said in order.

When the row that drove it out is removed, a row is open again.  What has been said of it is still true, and stands:
of a payload that changes before the end of what was said, all is said up to there from then on, open rows too.  Each
kept row carries how far that is for its payload, so this memory goes with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import group_rows
from everwhen.containers.regions import Regions
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.contract import EVERYTHING, Output, Policy, StateSize
from everwhen.operators.key_frontiers import KeyFrontiers
from everwhen.operators.net import netted
from everwhen.operators.partitioned import ByPartition
from everwhen.operators.sweep.holistic import order_ranks
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec

_NO_KEYS = np.empty(0, np.int64)

TIME: Final = 0
UNTIL: Final = 1
ROW: Final = 2
"""A kept row: its instant, up to where its payload is said even while it is open, and the payload."""


Spans = tuple[np.ndarray, np.ndarray]
"""Starts and ends."""


def _share(records: np.ndarray) -> None:
    """Let all records of a payload stand as far as one of them does."""
    payloads = KeyTable(records.shape[1] - ROW)
    ids = payloads.intern(np.ascontiguousarray(records[:, ROW:]))
    until = np.full(payloads.capacity, NEVER, np.int64)
    np.maximum.at(until, ids, records[:, UNTIL])
    records[:, UNTIL] = until[ids]


def _late(lo: np.ndarray, group: np.ndarray, said: Spans, said_group: np.ndarray, groups: int) -> bool:
    """Whether a row comes or goes that could change what was said of its partition: not after the end of that."""
    until = np.full(groups, NEVER, np.int64)
    there = said[0] < said[1]
    np.maximum.at(until, said_group[there], said[1][there])
    return bool((lo <= until[group]).any())


def _let_stand(changes: Sequence[Changes], old: np.ndarray, said: Spans, new: np.ndarray, is_open: np.ndarray) -> bool:
    """Note in open rows up to where their payload stands, if it changes before the end of what was said of it.

    Returns whether there are any.
    """
    payloads = KeyTable(old.shape[1] - ROW)
    of = payloads.intern(np.ascontiguousarray(new[is_open, ROW:]))
    end = np.full(payloads.capacity + 1, NEVER, np.int64)  # the last is that of all other payloads
    there = said[0] < said[1]
    np.maximum.at(end, payloads.find(np.ascontiguousarray(old[there, ROW:])), said[1][there])
    end[-1] = NEVER
    stands = np.zeros(len(end), np.bool_)
    for changed in changes:
        early = changed.take(changed.lo < end.max())
        at = payloads.find(early.rows)
        stands[at[early.lo < end[at]]] = True
    raised = np.flatnonzero(is_open)[stands[of]]
    new[raised, UNTIL] = np.maximum(new[raised, UNTIL], end[of[stands[of]]])
    return bool(len(raised))


class RowsOperator(ByPartition):
    """ROWS N [SLIDE A] [PARTITION BY …] over chronons: the input's segments are single instants."""

    keeps = "per partition the rows at or after the CTI and earlier ones whose output end is at or after it"

    def __init__(
        self, rows: int, slide: int, partition: Sequence[str], codec: RowCodec, policy: Policy = EVERYTHING
    ) -> None:
        super().__init__(partition, codec, codec, codec)
        self._ended = policy.emit is Emit.ENDED
        self._n = rows
        self._slide = slide
        self._kept = Regions(ROW + codec.width, [(ROW + j, t) for j, t in codec.pooled])
        codec.pool.register(self._kept)
        self._dropped = np.zeros(64, np.int64)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        ids = self._intern(batch.rows)
        # which rows are in the window depends on the whole partition: only promises about partitions count
        frontier, reached = self._of_partitions(frontiers[0], max(frontiers[0].time, self._promise))
        promise = max(frontier.time, self._promise)
        touched, out = self._apply(batch, ids, promise) if len(batch) else (_NO_KEYS, no_changes(self.codec))
        if self._ended and (promise > self._promise or len(reached)):
            keys = self._keys.ids() if promise > self._promise else reached
            out = concat(out, self._cut(np.setdiff1d(keys, touched), promise))
        self._promise = promise
        self._forget(promise, reached)
        return Output(out, frontier)

    def _grow(self, capacity: int) -> None:
        self._kept.grow(capacity)
        self._ends.grow(capacity)
        self._dropped = grown(self._dropped, capacity, 0)
        self._slot = grown(self._slot, capacity, -1)

    def _cut(self, keys: np.ndarray, promise: int) -> Changes:
        """Rows of partitions that are still in the window, from the last promise to this one."""
        records, offsets = self._kept.gather(keys)
        group = np.repeat(np.arange(len(keys)), np.diff(offsets))
        lo, hi = self._windowed(records, group, offsets, keys)
        then, now = self._floors.then(keys, self._promise)[group], self._floors.until(keys, promise)[group]
        lo = np.maximum(lo, np.maximum(then, records[:, UNTIL]))
        inside = (hi == INF) & (lo < now)
        ones = np.ones(int(inside.sum()), np.int64)
        return Changes(self.codec, lo[inside], now[inside], ones, records[inside, ROW:])

    def _clipped(self, records: np.ndarray, hi: np.ndarray, promise: np.ndarray) -> np.ndarray:
        """How far rows are said: those that have not left the window up to the promise, or to where they stand."""
        return np.where(hi == INF, np.maximum(promise, records[:, UNTIL]), hi) if self._ended else hi

    def _apply(self, batch: Changes, ids: np.ndarray, promise: int) -> tuple[np.ndarray, Changes]:
        keys, _, _ = group_rows(ids, self._slot)
        local = np.empty(self._keys.capacity, np.int64)
        local[keys] = np.arange(len(keys))
        old, offsets = self._kept.gather(keys)
        old_group = np.repeat(np.arange(len(keys)), np.diff(offsets))
        before = self._windowed(old, old_group, offsets, keys)
        new, group, was = self._merged(old, old_group, batch, local[ids])
        new_offsets = np.searchsorted(group, np.arange(len(keys) + 1))
        after = self._windowed(new, group, new_offsets, keys)
        then, now = self._floors.then(keys, self._promise)[old_group], self._floors.until(keys, promise)[group]
        said = before[0], self._clipped(old, before[1], then)
        out = self._differences(old, said, new, (after[0], self._clipped(new, after[1], now)), was)
        if self._ended and _late(batch.lo, local[ids], said, old_group, len(keys)):
            answer = self._differences(old, before, new, after, was)
            if _let_stand((answer, out), old, said, new, after[1] == INF):
                out = self._differences(old, said, new, (after[0], self._clipped(new, after[1], now)), was)
        out = netted(out)
        self._kept.put(keys, new_offsets, new)
        self._schedule(keys, new_offsets, after[1])
        return keys, out

    def _differences(self, old: np.ndarray, before: Spans, new: np.ndarray, after: Spans, was: np.ndarray) -> Changes:
        """From what was said of the old records to what is said of the new ones.

        A row that is still there changes by the difference at its end; only else by the whole of it.
        """
        (old_lo, old_hi), (lo, hi) = before, after
        stays = (was >= 0) & (lo == old_lo[np.maximum(was, 0)]) if len(old) else np.zeros(len(new), np.bool_)
        said = np.where(stays, np.maximum(old_hi[was], lo), lo) if len(old) else lo
        hi = np.maximum(hi, lo)
        left = np.ones(len(old), np.bool_)
        left[was[stays]] = False
        changed = Changes(
            self.codec,
            np.concatenate([np.minimum(said, hi), old_lo[left]]),
            np.concatenate([np.maximum(said, hi), old_hi[left]]),
            np.concatenate([np.where(said > hi, -1, 1), np.full(int(left.sum()), -1, np.int64)]),
            np.concatenate([new[:, ROW:], old[left, ROW:]]),
        )
        return changed.take(changed.lo < changed.hi)

    def _merged(
        self, old: np.ndarray, old_group: np.ndarray, batch: Changes, batch_group: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kept rows and the batch's, in rank order, their partitions, and which kept row each was (-1: none).

        A row taken back cancels one that is there.
        """
        group = np.concatenate([old_group, batch_group])
        never = np.full(len(batch), NEVER, np.int64)
        records = np.concatenate([old, np.concatenate([np.stack([batch.lo, never], axis=1), batch.rows], axis=1)])
        if len(old) and old[:, UNTIL].max() > NEVER:
            _share(records)
        time, rows = records[:, TIME], records[:, ROW:]
        weight = np.concatenate([np.ones(len(old), np.int64), batch.weight])
        was = np.concatenate([np.arange(len(old)), np.full(len(batch), -1, np.int64)])
        order = np.lexsort((*self._tie_breakers(rows), time, group))
        group, records, weight, was = group[order], records[order], weight[order], was[order]
        same = (group[1:] == group[:-1]) & (records[1:] == records[:-1]).all(axis=1)
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        total = np.add.reduceat(weight, starts)
        if (total < 0).any():
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        at = np.repeat(starts, total)
        # of equal rows the kept ones come first (the sort is stable)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(total) - total, total)
        kept = np.add.reduceat((was >= 0).astype(np.int64), starts)
        found = np.where(nth < np.repeat(kept, total), was[np.minimum(at + nth, len(was) - 1)], -1)
        return records[at], group[at], found

    def _tie_breakers(self, rows: np.ndarray) -> list[np.ndarray]:
        """Sort keys of the payload, last column first, as lexsort wants them."""
        return [order_ranks(self.codec, rows, j) for j in reversed(range(len(self.codec.schema)))]

    def _windowed(self, records: np.ndarray, group: np.ndarray, offsets: np.ndarray, keys: np.ndarray) -> Spans:
        """Start and end of each kept row in the window (equal: it is never in it)."""
        n, a = self._n, self._slide
        if not len(records):
            return records[:, 0], records[:, 0]
        base = self._dropped[keys][group]
        rank = np.arange(len(records)) - offsets[group] + 1 + base
        enters, leaves = -(-rank // a) * a, -(-(rank + n) // a) * a
        return self._instant(records, offsets, group, enters - base), self._instant(
            records, offsets, group, leaves - base
        )

    def _instant(self, records: np.ndarray, offsets: np.ndarray, group: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """The instant at which a partition reaches a rank among its kept rows (not yet: infinity)."""
        at = offsets[group] + rank - 1
        there = at < offsets[group + 1]
        return np.where(there, records[np.minimum(at, len(records) - 1), 0], INF)

    def _schedule(self, keys: np.ndarray, offsets: np.ndarray, ends: np.ndarray) -> None:
        """A partition is due when its first row may be forgotten."""
        first = np.full(len(keys), INF, np.int64)
        some = np.diff(offsets) > 0
        first[some] = ends[offsets[:-1][some]]
        self._ends.schedule(keys, first)

    def _forget(self, promise: int, reached: np.ndarray) -> None:
        """Drop leading rows whose output end is before the promise.  They are a prefix: ends never decrease with
        rank.  A partition of which everything is promised goes as a whole."""
        if promise == INF:
            self._kept.clear()
            self._keys.remove(self._keys.ids())
            self._floors = KeyFrontiers()
            return
        keys = self._ends.before(promise)
        if len(reached):
            keys = np.union1d(keys, reached)
        if not len(keys):
            return
        until = self._floors.until(keys, promise)
        over = keys[until == INF]
        if len(over):
            self._forgotten = max(self._forgotten, self._last_end(over))
            self._kept.put(over, np.zeros(len(over) + 1, np.int64), np.empty((0, ROW + self.codec.width), np.int64))
            self._ends.schedule(over, np.full(len(over), INF, np.int64))
            self._dropped[over] = 0
            self._keys.remove(over)
            keys, until = keys[until < INF], until[until < INF]
        if self._floors.any:
            self._floors.settle(over)
        records, offsets = self._kept.gather(keys)
        group = np.repeat(np.arange(len(keys)), np.diff(offsets))
        _, ends = self._windowed(records, group, offsets, keys)
        gone = ends < until[group]
        self._forgotten = max(self._forgotten, int(ends[gone].max(initial=NEVER)))
        count = np.bincount(group, gone, len(keys)).astype(np.int64)
        self._dropped[keys] = (self._dropped[keys] + count) % self._slide
        left = ~gone
        new_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets) - count)])
        self._kept.put(keys, new_offsets, records[left])
        self._schedule(keys, new_offsets, ends[left])

    def _last_end(self, keys: np.ndarray) -> int:
        """When the last kept row of partitions leaves the window."""
        records, offsets = self._kept.gather(keys)
        _, ends = self._windowed(records, np.repeat(np.arange(len(keys)), np.diff(offsets)), offsets, keys)
        return int(ends.max(initial=NEVER))

    def exact_from(self, since: int) -> int:
        return INF  # the last rows may be as old as can be

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        if not self._ended or emit is Emit.ENDED:
            return None
        before = self._said()
        self._ended = False
        return netted(concat(before.negated(), self._said()))

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        return max(self._promise, self._forgotten), self._said()

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        """The rows from the promise on; without partitions also the last ones before it."""
        keys = self._keys.ids()
        records, _ = self._kept.gather(keys)
        since = self._promise
        if self._forgotten > self._promise:  # of a partition that is promised; its rows are not after the end
            since = min(self._forgotten, INF - 1) + 1
        elif not self._partition_at and len(records) and since > NEVER:
            since = min(since, int(records[0, TIME]) + 1)  # some of the same instant may have gone
        if since == INF:
            return None
        time = records[:, TIME].copy()
        return since, Changes(self.codec, time, time + 1, np.ones(len(time), np.int64), records[:, ROW:].copy())

    def _said(self) -> Changes:
        keys = self._keys.ids()
        records, offsets = self._kept.gather(keys)
        lo, hi = self._windowed(records, np.repeat(np.arange(len(keys)), np.diff(offsets)), offsets, keys)
        limit = self._floors.then(keys, self._promise)
        hi = self._clipped(records, hi, np.repeat(limit, np.diff(offsets)))
        said = Changes(self.codec, lo, hi, np.ones(len(lo), np.int64), records[:, ROW:])
        return said.take(lo < hi)

    def state_size(self) -> StateSize:
        return StateSize(self._kept.rows, self._kept.nbytes + self._keys.nbytes + self._ends.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        return {
            "keys": self._key_codec.decode(self._keys.codes[ids]), "time": records[:, TIME].copy(), "offsets": offsets,
            "until": records[:, UNTIL].copy(), "rows": self.codec.decode(records[:, ROW:]),
            "dropped": self._dropped[ids], "due": self._ends.due[ids],
            "promise": self._promise, "forgotten": self._forgotten,
            "floors": self._floors.snapshot(ids), "promises": self._promises.snapshot(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        ids = self._restored(state)
        restored.ints(len(state["time"]), state["time"], state["until"])
        rows = restored.rows(self.codec, state["rows"], len(state["time"]))
        times = np.stack([state["time"], state["until"]], axis=1)
        kept = np.concatenate([times, rows], axis=1)
        restored.runs(ids, state["offsets"], kept, self._kept.width)
        self._kept.put(ids, state["offsets"], kept)
        self._dropped[ids] = state["dropped"]
        restored.due(len(ids), state["due"], self._ends.due)
        self._ends.schedule(ids, state["due"])

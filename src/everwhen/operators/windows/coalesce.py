"""Coalesce: the canonical level form, in which a row's events are the maximal intervals of each multiplicity.

The output is in event form: a changed interval is taken back whole and said again.  With `current` every change is
said at once (the promise is the input's).  With `ended` and `final` an interval is held until nothing in order can
prolong it, and in `final` until all earlier ones are out as well; then the promise is held at the oldest held start,
and `longest` bounds how long that can take.  Kept are intervals until `ve < c`, strictly, because one that ends at
the CTI may still grow.

In `ended`, a row that is changed before the present is said at once from then on, until all its intervals have ended:
to take back what may grow again, and to say it anew when it has, would be to say more than who never waits.

With `longest`, an interval is said in pieces anchored at its start; kept is the whole interval, because which levels
a later change prolongs depends on where they started.  Whether a piece has been said follows from the promise and
the present, so it is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import group_rows
from everwhen.containers.regions import Regions
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, MAX_TIME, NEVER
from everwhen.errors import QueryError
from everwhen.operators import net_loops as kernel
from everwhen.operators.contract import Operator, Output, Policy, StateSize
from everwhen.operators.key_frontiers import keys_covered
from everwhen.operators.net import cancelled
from everwhen.operators.stateless.linear import MOST_LEVELS
from everwhen.punctuation.api import make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

Pieces = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Key ids, starts and ends."""

_NO_KEYS = np.empty(0, np.int64)


class CoalesceOperator(Operator):
    """Level form of the input; records are whole intervals `[lo, hi]` per row."""

    keeps = "per row the intervals until ve < c, and those held back"

    def __init__(self, longest: int | None, codec: RowCodec, policy: Policy) -> None:
        self.codec = codec
        self._longest = longest or 0
        self._policy = policy
        self._held = policy.emit in (Emit.ENDED, Emit.FINAL)
        self._ordered = policy.emit is Emit.FINAL
        self._promise = NEVER
        self._bound = NEVER
        self._forgotten = NEVER  # the largest end of intervals that went because their row is promised
        self._keys = KeyTable(codec.width, codec.pooled)
        codec.pool.register(self._keys)
        self._kept = Regions(2)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._late = np.zeros(64, np.bool_)  # rows that were changed before the present

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        cti = frontiers[0].time
        bound = max(cti, self._policy.ended_by(tau)) if self._held and not self._ordered else cti
        touched, parts = self._apply(batch) if len(batch) else (_NO_KEYS, [])
        promise = cti
        if self._held:
            pieces = self._pieces(self._keys.ids())
            key, lo, hi = pieces
            # what starts before the promise is out; if it grows again, it is adjusted at once
            held = self._growing(lo, hi, bound) & (lo >= self._promise)
            if held.any():
                promise = min(cti, int(lo[held].min()))
            said = self._is_said(pieces, promise, bound)
            fresh = np.ones(self._keys.capacity, np.bool_)
            fresh[touched] = False
            said &= ~(fresh[key] & self._is_said(pieces, self._promise, self._bound))
            parts.append(self._changes(pieces, said, 1))
        elif len(touched):
            pieces = self._pieces(touched)
            parts.append(self._changes(pieces, np.ones(len(pieces[0]), np.bool_), 1))
        if frontiers[0].promises:
            parts += self._close(*keys_covered(frontiers[0].promises, self.codec, self._keys), promise, bound)
        self._promise, self._bound = promise, bound
        if self._late.any():
            self._in_order_again()
        self._forget(cti)
        changes = cancelled(self.codec, parts) if parts else no_changes(self.codec)
        # an interval that is held may begin before a promised time: only promises for ever go on
        return Output(changes, make_frontier(promise, (p for p in frontiers[0].promises if p.t == INF)))

    def _in_order_again(self) -> None:
        """Rows of which nothing grows any more wait again."""
        pieces = self._pieces(np.flatnonzero(self._late))
        self._late[:] = False
        self._late[pieces[0][~self._is_said(pieces, self._promise, self._bound)]] = True

    def _close(self, keys: np.ndarray, until: np.ndarray, promise: int, bound: int) -> list[Changes]:
        """Intervals that end before the time promised for their row do not grow: say what is held, forget all."""
        if not len(keys):
            return []
        records, offsets = self._kept.gather(keys)
        group = np.repeat(np.arange(len(keys)), np.diff(offsets))
        over = (records[:, 1] < until[group]) | (until[group] == INF)
        self._forgotten = max(self._forgotten, int(records[over, 1].max(initial=NEVER)))
        said: list[Changes] = []
        if self._held:
            of, pieces = self._cut_up(keys)
            said.append(self._changes(pieces, over[of] & ~self._is_said(pieces, promise, bound), 1))
        new_offsets = np.searchsorted(group[~over], np.arange(len(keys) + 1))
        self._put(keys, new_offsets, records[~over])
        return said

    def _apply(self, batch: Changes) -> tuple[np.ndarray, list[Changes]]:
        """New intervals of the touched rows; returns the rows' ids and all that had been said of them, taken back."""
        ids = self._keys.intern(batch.rows)
        capacity = self._keys.capacity
        self._kept.grow(capacity)
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)
        self._late = grown(self._late, capacity, False)
        keys, offsets, order = group_rows(ids, self._slot)
        pieces = self._pieces(keys)
        taken = self._changes(pieces, self._is_said(pieces, self._promise, self._bound), -1)
        if self._held and not self._ordered:
            self._late[ids[batch.lo < self._bound]] = True
        old, old_offsets = self._kept.gather(keys)
        group = np.repeat(np.arange(len(keys)), np.diff(old_offsets))
        changes = np.stack([batch.lo, batch.hi, batch.weight], axis=1)[order]
        both = np.concatenate([np.concatenate([old, np.ones((len(old), 1), np.int64)], axis=1), changes])
        both_group = np.concatenate([group, np.repeat(np.arange(len(keys)), np.diff(offsets))])
        by_group = np.argsort(both_group, kind="stable")
        all_offsets = np.searchsorted(both_group[by_group], np.arange(len(keys) + 1))
        new_offsets = np.empty(len(keys) + 1, np.int64)
        new = kernel.levels(keys, all_offsets, both[by_group], new_offsets, 0)
        if self._longest and (new[:, 1] == INF).any():
            raise QueryError(
                "an infinite lifetime cannot be cut to a longest length; coalesce without one, or end it first"
            )
        self._put(keys, new_offsets, new[:, :2])
        return keys, [taken]

    def _pieces(self, keys: np.ndarray) -> Pieces:
        """The intervals of keys, cut to the longest length; pieces that ended before the promise are left out."""
        return self._cut_up(keys)[1]

    def _cut_up(self, keys: np.ndarray) -> tuple[np.ndarray, Pieces]:
        """The same, with the position of each piece's interval among those of the keys."""
        records, offsets = self._kept.gather(keys)
        key = np.repeat(keys, np.diff(offsets))
        lo, hi = records[:, 0].copy(), records[:, 1].copy()
        if not self._longest:
            return np.arange(len(key)), (key, lo, hi)
        if self._promise > NEVER:
            past = (min(self._promise, MAX_TIME) - lo) // self._longest - 1
            lo = np.minimum(lo + np.maximum(past, 0) * self._longest, self._last_start(lo, hi))
        n = -((lo - hi) // self._longest)
        if len(n) and int(n.astype(np.float64).sum()) > MOST_LEVELS:
            raise QueryError(f"cutting lifetimes to {self._longest} would make {n.sum():.3g} pieces in one step")
        at = np.repeat(np.arange(len(n)), n)
        k = np.arange(len(at)) - np.repeat(np.cumsum(n) - n, n)
        start = lo[at] + k * self._longest
        return at, (key[at], start, np.minimum(start + self._longest, hi[at]))

    def _last_start(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """Where the last piece of each interval starts."""
        return hi - 1 - (hi - 1 - lo) % self._longest if self._longest else lo

    def _growing(self, lo: np.ndarray, hi: np.ndarray, bound: int) -> np.ndarray:
        """Which pieces something in order may still prolong, or has not reached yet."""
        if bound == INF:
            return np.zeros(len(lo), np.bool_)
        growing = hi >= bound
        if self._longest:
            # a piece of full length does not grow: it is settled as soon as its end is reached
            growing &= (hi > bound) | (hi - lo < self._longest)
        return growing

    def _is_said(self, pieces: Pieces, promise: int, bound: int) -> np.ndarray:
        """Which pieces are out, by the promise and the present: all that the promise covers, and what has ended."""
        key, lo, hi = pieces
        if not self._held:
            return np.ones(len(lo), np.bool_)
        said = (lo < promise) | (promise == INF) | self._late[key]
        return said if self._ordered or bound == NEVER else said | ~self._growing(lo, hi, bound)

    def _changes(self, pieces: Pieces, picked: np.ndarray, weight: int) -> Changes:
        key, lo, hi = (column[picked] for column in pieces)
        return Changes(self.codec, lo, hi, np.full(len(lo), weight, np.int64), self._keys.codes[key])

    def _put(self, keys: np.ndarray, offsets: np.ndarray, records: np.ndarray) -> None:
        self._kept.put(keys, offsets, records)
        low = np.full(len(keys), INF, np.int64)
        np.minimum.at(low, np.repeat(np.arange(len(keys)), np.diff(offsets)), records[:, 1])
        self._ends.schedule(keys, low)
        gone = keys[self._kept.length[keys] == 0]
        if len(gone):
            self._late[gone] = False
            self._keys.remove(gone)  # the codes stay readable until the next batch

    def _forget(self, cti: int) -> None:
        if cti == INF:
            self._kept.clear()
            self._late[:] = False
            self._keys.remove(self._keys.ids())
            return
        due = self._ends.before(cti)
        if not len(due):
            return
        records, offsets = self._kept.gather(due)
        group = np.repeat(np.arange(len(due)), np.diff(offsets))
        stay = records[:, 1] >= cti
        if self._ordered and self._promise < INF:  # held back for the sake of order
            stay |= self._last_start(records[:, 0], records[:, 1]) >= self._promise
        self._put(due, np.searchsorted(group[stay], np.arange(len(due) + 1)), records[stay])

    def fast_forward(self, t: int) -> None:
        """In `final`, what is held and began before begins at `t`: nothing must wait for it for the sake of order."""
        if not self._ordered:
            return
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        group, lo = np.repeat(np.arange(len(ids)), np.diff(offsets)), records[:, 0]
        held = (lo >= self._promise) & (lo < t)
        if held.any():
            records = np.stack([np.where(held, t, lo), records[:, 1]], axis=1)
            stay = records[:, 0] < records[:, 1]
            self._put(ids, np.searchsorted(group[stay], np.arange(len(ids) + 1)), records[stay])

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        """Nothing is held from now on: what was is said."""
        if not self._held or emit in (Emit.FINAL, Emit.ENDED):
            return None
        pieces = self._pieces(self._keys.ids())
        held = self._changes(pieces, ~self._is_said(pieces, self._promise, self._bound), 1)
        self._held = self._ordered = False
        return held

    def needs(self, t: int) -> tuple[int, ...]:
        """Where intervals are held: those that begin before must not grow any more."""
        if t == INF or not self._held:
            return (t,)
        _, lo, hi = self._pieces(self._keys.ids())
        held = (lo >= self._promise) & (lo < t) & self._growing(lo, hi, max(t, self._bound))
        lo, hi = lo[held], hi[held]
        if not len(lo):
            return (t,)
        whole = (hi - lo == self._longest) if self._longest else np.zeros(len(lo), np.bool_)
        last = int(np.where(hi == INF, INF, np.where(whole, hi, hi + 1)).max())
        return (max(t, last),)

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        pieces = self._pieces(self._keys.ids())
        said = self._changes(pieces, self._is_said(pieces, self._promise, self._bound), 1)
        return max(frontiers[0].time, self._forgotten), said

    def key_count(self) -> int:
        return len(self._keys)

    def state_size(self) -> StateSize:
        return StateSize(self._kept.rows, self._kept.nbytes + self._keys.nbytes + self._ends.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        return {
            "rows": self.codec.decode(self._keys.codes[ids]), "records": records, "offsets": offsets, "n": len(ids),
            "promise": self._promise, "bound": self._bound, "forgotten": self._forgotten, "late": self._late[ids],
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._promise, self._bound, self._forgotten = state["promise"], state["bound"], state["forgotten"]
        ids = self._keys.intern(restored.rows(self.codec, state["rows"], state["n"]))
        restored.runs(ids, state["offsets"], state["records"], self._kept.width)
        self._kept.grow(self._keys.capacity)
        self._ends.grow(self._keys.capacity)
        self._late = grown(self._late, self._keys.capacity, False)
        self._late[ids] = state["late"]
        self._put(ids, state["offsets"], state["records"])

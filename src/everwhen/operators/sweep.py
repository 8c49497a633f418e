"""A keyed sweep: per key a piecewise constant state over time, changed by segments, emitted by policy.

This is the one mechanism behind aggregation, duplicate elimination, difference and its relatives, and behind the clip
at the output: they differ in what a lane counts and in what a piece means.  Kept are, per key, the lanes in force at
the CTI and the edges after it; a key is gone when nothing of it is alive and no edge is left.

Due keys are found by a calendar (new pieces to say because τ or θ moved on, cuts because a promise moved on, edges
to fold), so a step costs what it changes, not what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.model.pool import Pool
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import Emit, Policy, StateSize
from everwhen.operators.kernels import sweep as kernel
from everwhen.operators.kernels.tables import Calendar, KeyTable, grown

_NO_INTS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where the answer changed, per key in the order of time.

    `head`: key id, lo, hi, 1 if something had been said + 2 if something is to be said; and the lanes of both
    (zeros: nothing).
    """

    head: np.ndarray
    old: np.ndarray
    new: np.ndarray

    def __len__(self) -> int:
        return len(self.head)


Evaluate = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(key ids, instants) -> evaluated lanes, one row each; requests come grouped by key, in order of time."""


class Sweep:
    """State and mechanism.  Integer lanes must all be zero exactly where nothing is alive."""

    def __init__(
        self,
        width: int,
        pooled: Sequence[tuple[int, pa.DataType]],
        pool: Pool,
        policy: Policy,
        ints: int,
        floats: int = 0,
        evaluated: int = 0,
        evaluated_pooled: Sequence[tuple[int, pa.DataType]] = (),
    ) -> None:
        self.keys = KeyTable(width, pooled)
        pool.register(self.keys)
        self._evaluated_pooled = tuple(evaluated_pooled)
        if evaluated_pooled:
            pool.register(self)
        self.policy = policy
        # in `ended` an edge at which nothing changes still ends a piece, which may have been said already
        self.prune = evaluated == 0 and policy.emit is not Emit.ENDED
        self.cti = NEVER
        self.tau = NEVER
        self._ints = ints
        self._added = ints + 2 * floats
        width = self._added + evaluated
        self._evaluated_at = slice(1 + self._added, 1 + width)
        self._pool = np.zeros((256, 1 + width), np.int64)
        self._known = np.zeros(256, np.uint8)
        self._end = 0
        self._start = np.zeros(64, np.int64)
        self._length = np.zeros(64, np.int64)
        self._slot = np.full(64, -1, np.int64)
        self._calendar = Calendar(3)  # something to say, something to cut, something to fold
        self.edges = 0

    def intern(self, rows: np.ndarray) -> np.ndarray:
        """Key ids of coded rows."""
        ids = self.keys.intern(rows)
        self._grow()
        return ids

    def _grow(self) -> None:
        capacity = self.keys.capacity
        if capacity > len(self._start):
            self._start = grown(self._start, capacity, 0)
            self._length = grown(self._length, capacity, 0)
            self._slot = grown(self._slot, capacity, -1)
            self._calendar.grow(capacity)

    def step(
        self,
        ids: np.ndarray,
        lo: np.ndarray,
        hi: np.ndarray,
        values: np.ndarray,
        tau: int,
        promise: int,
        evaluate: Evaluate | None = None,
    ) -> tuple[Pieces, np.ndarray]:
        """Apply segments (values of the added lanes, already times weight), then τ and the promise.

        Returns the pieces that changed and the ids of keys that are gone (already forgotten by `keys`).
        """
        mode, then = self.policy.clip(self.tau, self.cti)
        _, now = self.policy.clip(tau, promise)
        ni, na = self._ints, self._added
        if len(ids):
            keys, offsets, et, ed, er, first, last = kernel.group_edges(
                ids, lo, hi, values, values.view(np.float64), ni, na, self._slot
            )
            self._reserve(len(et) + int(self._length[keys].sum()) + 2 * len(keys))
            new_start, new_length = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
            old_length = self._length[keys]
            self._end = kernel.merge(
                keys, offsets, et, ed, ed.view(np.float64), er, ni, na, self._start, self._length, self._pool,
                self._pool.view(np.float64), self._known, self._end, new_start, new_length, self.prune,
            )  # fmt: skip
            self.edges -= int(old_length.sum())
            old_start, old_length = self._start[keys], self._length[keys]
        else:
            keys = old_start = old_length = new_start = new_length = first = last = _NO_INTS
        due = self._due(now, tau, promise, mode, keys)
        if len(due):
            start, length = self._start[due], self._length[due]
            keys = np.concatenate([keys, due])
            old_start, old_length = np.concatenate([old_start, start]), np.concatenate([old_length, length])
            new_start, new_length = np.concatenate([new_start, start]), np.concatenate([new_length, length])
            first = np.concatenate([first, np.full(len(due), INF, np.int64)])
            last = np.concatenate([last, np.full(len(due), NEVER, np.int64)])
        if evaluate is not None and len(keys):
            self._evaluate(evaluate, keys, new_start, new_length, mode, now, promise)
        head, old, new = kernel.emit(
            keys, old_start, old_length, new_start, new_length, first, last, mode, then, self.cti, now, promise,
            ni, self._pool, 64 + 2 * len(keys) + 2 * len(ids),
        )  # fmt: skip
        next_visit = np.empty((len(keys), 3), np.int64)
        if len(due):
            self.edges -= int(self._length[due].sum())
        dead = kernel.fold(
            keys,
            new_start,
            new_length,
            promise,
            mode,
            now,
            promise,
            ni,
            self._start,
            self._length,
            self._pool,
            next_visit,
        )
        self._calendar.schedule(keys, next_visit)
        self.edges += int(self._length[keys].sum())
        gone = keys[dead] if promise < INF else self.keys.ids()  # after CTI(∞) nothing can change: all of it is over
        if len(gone):
            self.keys.remove(gone)
            if promise == INF:
                self._length[:] = 0
                self.edges = self._end = 0
        self.tau, self.cti = tau, promise
        return Pieces(head, old, new), gone

    def _due(self, now: int, tau: int, promise: int, mode: int, touched: np.ndarray) -> np.ndarray:
        """Keys to visit although nothing came for them."""
        say = now if mode == kernel.CUT else _next(tau) if mode == kernel.ENDED else _next(now)
        cut = promise if mode == kernel.ENDED else NEVER
        due = self._calendar.before(say, cut, _next(promise) if promise > self.cti else NEVER)
        if len(due) and len(touched):
            self._slot[touched] = 0
            due = due[self._slot[due] < 0]
            self._slot[touched] = -1
        return due

    def _evaluate(
        self,
        evaluate: Evaluate,
        keys: np.ndarray,
        start: np.ndarray,
        length: np.ndarray,
        mode: int,
        now: int,
        promise: int,
    ) -> None:
        found = kernel.pending(keys, start, length, mode, now, promise, self.cti, self._pool, self._known)
        if len(found):
            edge = found[:, 1]
            self._pool[edge, self._evaluated_at] = evaluate(found[:, 0].copy(), found[:, 2].copy())
            self._known[edge] = 1

    def _reserve(self, edges: int) -> None:
        """Make room at the end of the pool: close the gaps in place while it is big enough, else take a bigger one."""
        if self._end + edges > len(self._pool):
            self._close_gaps(edges)

    def _close_gaps(self, edges: int) -> None:
        ids = np.flatnonzero(self._length)
        ids = ids[np.argsort(self._start[ids])]
        pool, known = self._pool, self._known
        if 2 * (self.edges + edges) > len(pool):
            size = max(256, 3 * (self.edges + edges))
            pool, known = np.empty((size, pool.shape[1]), np.int64), np.empty(size, np.uint8)
        self._end = kernel.compact(ids, self._start, self._length, self._pool, self._known, pool, known)
        self._pool, self._known = pool, known

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._close_gaps(0)  # what is left has codes in use
        return [(self._pool[: self._end], [(1 + self._added + lane, type_) for lane, type_ in self._evaluated_pooled])]

    def recoded(self) -> None:
        """Evaluated lanes carry no hash."""

    def state_size(self) -> StateSize:
        """Keys with something in force at the CTI count one row each, and so does every edge."""
        ids = self.keys.ids()
        based = int(self._pool[self._start[ids], 1 : 1 + self._ints].any(axis=1).sum()) if len(ids) else 0
        arrays = (self._pool, self._known, self._start, self._length)
        size = sum(a.nbytes for a in arrays) + self.keys.nbytes + self._calendar.nbytes
        return StateSize(based + self.edges - len(ids), size)

    def snapshot(self) -> dict[str, Any]:
        """Everything by key, in the order of `keys.ids()`; key rows are the caller's to decode."""
        ids = self.keys.ids()
        length = self._length[ids]
        at = np.repeat(
            self._start[ids] - np.concatenate([[0], np.cumsum(length)[:-1]]) if len(ids) else _NO_INTS, length
        )
        at = at + np.arange(len(at))
        return {
            "cti": self.cti, "tau": self.tau, "ids": ids, "length": length, "edges": self._pool[at], "known": self._known[at],
            "due": self._calendar.due[ids],
        }  # fmt: skip

    def restore(self, rows: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        """Take a snapshot over; `rows` are the key rows in its order.  Returns their ids, which are as they were: the
        chain may know them."""
        ids: np.ndarray = state["ids"]
        self.keys.put(ids, rows)
        self._grow()
        self.cti, self.tau = state["cti"], state["tau"]
        n = len(state["edges"])
        self._reserve(n)
        end = self._end
        self._pool[end : end + n], self._known[end : end + n] = state["edges"], state["known"]
        length = state["length"]
        self._start[ids] = end + np.cumsum(length) - length
        self._length[ids] = length
        self._calendar.schedule(ids, state["due"])
        self._end, self.edges = end + n, n
        return ids


def _next(t: int) -> int:
    """A bound that includes `t` itself."""
    return t if t == INF else t + 1

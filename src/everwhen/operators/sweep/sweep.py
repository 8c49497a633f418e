"""A keyed sweep: per key a piecewise constant state over time, changed by segments, emitted by policy.

This is the one mechanism behind aggregation, duplicate elimination, difference and its relatives, and behind the clip
at the output: they differ in what a lane counts and in what a piece means.  Kept are, per key, the lanes in force at
the CTI and the edges after it; a key is gone when nothing of it is alive and no edge is left.

Due keys are found by a calendar (new pieces to say because τ or θ moved on, cuts because a promise moved on, edges
to fold), so a step costs what it changes, not what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.key_table import KeyTable
from everwhen.containers.run_pool import Runs, needed, resized
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.operators.clip import CUT, ENDED, ENDING, INFINITE
from everwhen.operators.contract import Policy, StateSize
from everwhen.operators.key_frontiers import KeyFrontiers
from everwhen.operators.sweep.loops import sweep as kernel
from everwhen.operators.sweep.loops.arguments import Clip, Edges, Lanes, Old, Report
from everwhen.operators.sweep.loops.edges import grouped
from everwhen.operators.sweep.loops.ends import last_end
from everwhen.operators.sweep.loops.extremes import NO_EXTREMES, ExtremeArrays, Extremes
from everwhen.operators.sweep.loops.pieces import pending, standing
from everwhen.operators.sweep.pieces import Pieces
from everwhen.rows import restored
from everwhen.rows.interner import Interner

GRID = 8
"""Up to so many different lifetimes in a step are added up per key and lifetime before they become edges."""

_NO_INTS = np.empty(0, np.int64)
_NO_EDGES = Edges(_NO_INTS, _NO_INTS, np.empty((0, 0), np.int64), _NO_INTS, _NO_INTS, _NO_INTS)


Evaluate = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(key ids, instants) -> evaluated lanes, one row each; requests come grouped by key, in order of time."""


class Sweep:
    """State and mechanism.  Integer lanes must all be zero exactly where nothing is alive."""

    def __init__(
        self,
        width: int,
        pooled: Sequence[tuple[int, pa.DataType]],
        pool: Interner,
        policy: Policy,
        ints: int,
        floats: int = 0,
        evaluated: int = 0,
        evaluated_pooled: Sequence[tuple[int, pa.DataType]] = (),
        tests: int = 0,
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
        self._tests = tests  # of so many first lanes the answer reads only whether they are positive
        self._added = ints + 2 * floats
        self._lanes = self._added + evaluated
        # behind evaluated lanes stands whether they are known
        self._runs = Runs(1 + self._lanes + (evaluated > 0))
        self._count_lanes()
        self._slot = np.full(64, -1, np.int64)
        self._marks = np.zeros(0, np.uint8)
        self._calendar = Calendar(3)  # something to say, something to cut, everything to fold
        self._floors = KeyFrontiers()
        self._forgotten = NEVER

    def intern(self, rows: np.ndarray) -> np.ndarray:
        """Key ids of coded rows."""
        ids = self.keys.intern(rows)
        self._grow()
        return ids

    def intern_column(self, rows: np.ndarray, column: int) -> np.ndarray:
        """The same for keys of one column that stands among others and is never null."""
        ids = self.keys.intern_column(rows, column)
        self._grow()
        return ids

    def insert_lane(self, lane: int, tests: int, zero: bool = False, whole: bool = True) -> None:
        """Another word of the added lanes: a `whole` number, or part of a float.  It has been what the first lane is so
        far, or `zero`."""
        self._ints, self._added, self._lanes, self._tests = self._ints + whole, self._added + 1, self._lanes + 1, tests
        self._runs.insert(1 + lane, -1 if zero else 1)
        self._count_lanes()

    def _count_lanes(self) -> None:
        """Note what follows from the number of lanes."""
        self._evaluated_at = slice(1 + self._added, 1 + self._lanes)
        self._counts = Lanes(self._ints, self._added, self._lanes, self._tests, self.prune)
        self._taken = self._said = np.empty((0, 3 + self._lanes), np.int64)
        self._delta = np.empty(self._added, np.int64)

    def _grow(self) -> None:
        capacity = self.keys.capacity
        if len(self._floors.now):
            self._floors.grow(capacity)
        if capacity > len(self._slot):
            self._runs.grow(capacity)
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
        evaluate: Evaluate | Extremes | None = None,
        raised: tuple[np.ndarray, np.ndarray] = (_NO_INTS, _NO_INTS),
    ) -> Pieces:
        """Apply segments (values of the added lanes, already times weight), then τ and the promise.

        Evaluated lanes that are extremes of live rows are filled in while a key is visited; for others all keys are
        merged, evaluated, and then told.  `raised` are keys of which more is promised than of all, and until when.
        Returns the pieces that changed.  Keys that are gone are forgotten by `keys`.
        """
        promise = max(promise, self.cti)  # what promises about data have given together is said once, and stands
        mode, then = self.policy.clip(self.tau, self.cti)
        _, now = self.policy.clip(tau, promise)
        reached = self._floors.raise_to(*raised, self.keys.capacity) if len(raised[0]) else _NO_INTS
        if len(reached) and self._forgotten < INF:
            self._forget(reached, ids, lo, hi, values)
        visits = _Visits(self, mode, then, now, promise, evaluate if isinstance(evaluate, Extremes) else None)
        touched, edges = _NO_INTS, _NO_EDGES
        if len(ids):
            touched, edges = grouped(ids, lo, hi, values, self._ints, self._slot, GRID)
        if evaluate is None or isinstance(evaluate, Extremes):
            if len(touched):
                visits.both(touched, edges)
            due = self._due(now, promise, mode, reached, touched)
            if len(due):
                visits.pass_by(due)
            keys = np.concatenate([touched, due]) if len(due) else touched
        else:
            self._calendar.due[touched] = INF  # they are visited anyway
            due = self._due(now, promise, mode, reached, touched)
            old = visits.merge(touched, edges), visits.merge(due, _NO_EDGES)
            keys = np.concatenate([touched, due])
            since = np.concatenate([each.frontier for each in old])
            if mode == INFINITE:
                since = np.minimum(since, then)  # what begins later has not been said
            if len(touched):
                since[: len(touched)] = np.minimum(since[: len(touched)], edges.first)
            self._evaluate(evaluate, keys, since, mode, now, promise)
            visits.say(touched, edges, old[0])
            visits.say(due, _NO_EDGES, old[1])
        gone = visits.gone() if promise < INF else self.keys.ids()  # after CTI(∞) nothing can change: all of it is over
        if len(gone):
            self.keys.remove(gone)
            if promise == INF:
                self._runs.clear()
            else:
                self._runs.release(gone)
        closed = None
        if len(self._floors.now):
            closed = gone[self._floors.now[gone] > promise]
            self._floors.settle(gone)
        self.tau, self.cti = tau, promise
        if self._runs.crowded:
            self._settle(self.keys.ids())
            self._runs.tidy()
        return visits.pieces(keys, closed)

    def _forget(self, keys: np.ndarray, *segments: np.ndarray) -> None:
        """Note up to when something is forgotten of keys that are promised beyond the CTI, with these segments."""
        runs, until = self._runs, self._floors.now[keys]
        last = last_end(keys, until, *segments, self._ints, runs.place, runs.pool, self._slot)
        self._forgotten = max(self._forgotten, int(last))

    def _expect(self, taken: int, said: int, more: int) -> None:
        """Make room for so many pieces more; their memory is used again in the next step."""
        size = max(taken, said) + more
        if size > len(self._said):
            self._taken, self._said = resized(self._taken, size, taken), resized(self._said, size, said)

    def _due(self, now: int, promise: int, mode: int, reached: np.ndarray, touched: np.ndarray) -> np.ndarray:
        """Keys to visit although nothing came for them: it is time, or a promise has reached them."""
        say = now if mode in (CUT, ENDING) else _next(now)
        cut = promise if mode == ENDED else NEVER
        due = self._calendar.before(say, cut, _next(promise) if promise > self.cti else NEVER)
        if not len(reached):
            return due
        if len(self._marks) < self.keys.capacity:
            self._marks = np.zeros(self.keys.capacity, np.uint8)
        self._marks[touched] = 1
        found = reached[self._marks[reached] == 0]
        self._marks[touched] = 0
        return np.union1d(found, due) if len(due) else found

    def _evaluate(
        self, evaluate: Evaluate, keys: np.ndarray, since: np.ndarray, mode: int, now: int, promise: int
    ) -> None:
        """Fill in the evaluated lanes of what is to be said, where they are not known: from `since` on."""
        runs, floors = self._runs, self._floors
        found = pending(keys, since, runs.place, mode, now, promise, self.cti, floors.before, floors.now, runs.pool)
        if len(found):
            edge = found[:, 1]
            runs.pool[edge, self._evaluated_at] = evaluate(found[:, 0].copy(), found[:, 2].copy())
            runs.pool[edge, -1] = 1

    def restated(self, emit: Emit, evaluate: Evaluate | None = None) -> Pieces:
        """Follow another emission policy from now on: all that it says from the CTI on, as if nothing had been said.

        Cost: all that is kept.
        """
        self.policy = replace(self.policy, emit=emit)
        self.prune = self._lanes == self._added and emit is not Emit.ENDED
        self._count_lanes()
        mode, now = self.policy.clip(self.tau, self.cti)
        keys = self.keys.ids()
        n = len(keys)
        settled = np.full(n, self.cti, np.int64)
        if len(self._floors.now):
            settled = np.maximum(settled, self._floors.now[keys])
        if evaluate is not None:
            self._evaluate(evaluate, keys, settled, mode, now, self.cti)
        visits = _Visits(self, mode, now, now, self.cti)
        total, _ = visits._reserve(keys, _NO_EDGES)
        self._expect(0, 0, 2 * total + 6 * n)
        old = Old(visits._scratch(n), np.arange(n + 1), settled)
        old.edges[:] = 0
        said_from, to = settled.copy(), np.full(n, INF, np.int64)
        none = np.empty((0, max(self._added, 1)), np.int64)
        edges = Edges(np.zeros(n + 1, np.int64), _NO_INTS, none, _NO_INTS, said_from, to)
        if n:
            visits._visit(keys, edges, 2, old)
            gone = visits.gone()
            if len(gone):
                self.keys.remove(gone)
                self._runs.release(gone)
                if len(self._floors.now):
                    self._floors.settle(gone)
        return visits.pieces(keys)

    @property
    def known_from(self) -> int:
        """From which instant on `standing` is all that has been said: from the CTI, or later, where keys that were
        promised beyond it had something alive."""
        return max(self.cti, self._forgotten)

    def endless(self, ids: np.ndarray) -> np.ndarray:
        """Which keys are alive for ever, as things stand."""
        return kernel.endless(ids, self._runs.place, self._runs.pool, self._ints)

    def standing(self, unsaid: bool = False) -> Pieces:
        """All that has been said from `known_from` on, and more where it is kept; `unsaid`: all that is known.  Cost:
        all that is kept."""
        ids, runs = self.keys.ids(), self._runs
        mode, now = (CUT, INF) if unsaid else self.policy.clip(self.tau, self.cti)
        said = standing(ids, runs.place, runs.pool, mode, now, self.cti, self._floors.now, self._ints, self._lanes)
        return Pieces(ids, np.empty((0, said.shape[1]), np.int64), said)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._runs.tidy()  # what is left has codes in use
        lanes = [(1 + self._added + lane, type_) for lane, type_ in self._evaluated_pooled]
        return [(self._runs.pool[: self._runs.end], lanes)]

    def recoded(self) -> None:
        """Evaluated lanes carry no hash."""

    def state_size(self) -> StateSize:
        """Keys with something in force at the CTI count one row each, and so does every edge after it."""
        edges, based = self._settle(self.keys.ids())
        return StateSize(edges + based, self._runs.nbytes + self.keys.nbytes + self._calendar.nbytes)

    def snapshot(self) -> dict[str, Any]:
        """Everything by key, in the order of `keys.ids()`; key rows are the caller's to decode."""
        ids = self.keys.ids()
        self._settle(ids)
        edges, offsets = self._runs.gather(ids)
        return {
            "cti": self.cti, "tau": self.tau, "forgotten": self._forgotten, "ids": ids,
            "edges": edges, "offsets": offsets, "due": self._calendar.due[ids], "floors": self._floors.snapshot(ids),
        }  # fmt: skip

    def _settle(self, ids: np.ndarray) -> tuple[int, int]:
        runs = self._runs
        edges, based = kernel.settle_all(ids, runs.place, runs.pool, self.cti, self._floors.now, self._ints)
        return int(edges), int(based)

    def restore(self, rows: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        """Take a snapshot over; `rows` are the key rows in its order.  Returns their ids, which chains may know."""
        ids: np.ndarray = state["ids"]
        restored.runs(ids, state["offsets"], state["edges"], self._runs.pool.shape[1])
        restored.due(len(ids), state["due"], self._calendar.due)
        restored.counts(state["edges"][:, 1])
        self.keys.put(ids, rows)
        self._grow()
        self.cti, self.tau, self._forgotten = state["cti"], state["tau"], state["forgotten"]
        self._runs.put(ids, state["offsets"], state["edges"])
        self._calendar.schedule(ids, state["due"])
        self._floors.restore(ids, state["floors"], self.keys.capacity)
        return ids


class _Visits:
    """The visits of one step: what they have in common, and what they gave so far."""

    def __init__(
        self, sweep: Sweep, mode: int, then: int, now: int, promise: int, extremes: Extremes | None = None
    ) -> None:
        self._sweep = sweep
        self._extremes = extremes
        self._clip = Clip(mode, then, sweep.cti, now, promise, sweep._floors.before, sweep._floors.now)
        self._n_taken = self._n_said = self._visited = 0
        self._gone: list[np.ndarray] = []

    def both(self, keys: np.ndarray, edges: Edges) -> None:
        """Merge and say, key by key."""
        total, longest = self._reserve(keys, edges)
        self._sweep._expect(self._n_taken, self._n_said, 2 * total + len(edges.time) + 6 * len(keys))
        self._visit(keys, edges, 3, Old(self._scratch(longest), _NO_INTS, _NO_INTS), longest)

    def pass_by(self, keys: np.ndarray) -> None:
        """Say what the clip alone has changed."""
        sweep = self._sweep
        _, total, longest = needed(sweep._runs.place, keys, _NO_INTS)
        sweep._expect(self._n_taken, self._n_said, 2 * total + 6 * len(keys))
        report, arrays = self._report(keys), self._arrays(longest)
        self._n_taken, self._n_said = kernel.pass_by(
            keys, sweep._counts, self._clip, sweep._runs.arrays, sweep._calendar.times, report, arrays
        )
        self._visited += len(keys)
        self._gone.append(keys[report.dead])

    def merge(self, keys: np.ndarray, edges: Edges) -> Old:
        """Merge only; returns what `say` has to know of the state before."""
        total, _ = self._reserve(keys, edges)
        n = len(keys)
        old = Old(self._scratch(total + n), np.zeros(n + 1, np.int64), np.empty(n, np.int64))
        self._visit(keys, edges, 1, old)
        return old

    def say(self, keys: np.ndarray, edges: Edges, old: Old) -> None:
        """Say what a merge before has changed."""
        more = 2 * len(old.edges) + len(edges.time) + 6 * len(keys)
        self._sweep._expect(self._n_taken, self._n_said, more)
        self._visit(keys, edges, 2, old)

    def _reserve(self, keys: np.ndarray, edges: Edges) -> tuple[int, int]:
        runs = self._sweep._runs
        room, total, longest = needed(runs.place, keys, edges.offsets)
        runs.reserve(room)
        return total, longest

    def _scratch(self, size: int) -> np.ndarray:
        return np.empty((size, self._sweep._runs.pool.shape[1]), np.int64)

    def _arrays(self, longest: int) -> ExtremeArrays:
        return NO_EXTREMES if self._extremes is None else self._extremes.arrays(longest)

    def _report(self, keys: np.ndarray) -> Report:
        sweep, dead = self._sweep, np.zeros(len(keys), np.bool_)
        return Report(sweep._taken, sweep._said, self._n_taken, self._n_said, self._visited, dead)

    def _visit(self, keys: np.ndarray, edges: Edges, parts: int, old: Old, longest: int = 0) -> None:
        sweep, report = self._sweep, self._report(keys)
        runs = sweep._runs
        runs.end, self._n_taken, self._n_said = kernel.visit(
            keys, edges, sweep._counts, self._clip, parts, runs.arrays, runs.end, old, sweep._calendar.times, report,
            sweep._delta, self._arrays(longest),
        )  # fmt: skip
        if parts & 2:
            self._visited += len(keys)
            self._gone.append(keys[report.dead])

    def gone(self) -> np.ndarray:
        """Keys that are empty for good."""
        return self._gone[0] if len(self._gone) == 1 else np.concatenate([_NO_INTS, *self._gone])

    def pieces(self, keys: np.ndarray, closed: np.ndarray | None = None) -> Pieces:
        return Pieces(keys, self._sweep._taken[: self._n_taken], self._sweep._said[: self._n_said], closed)


def _next(t: int) -> int:
    """A bound that includes `t` itself."""
    return t if t == INF else t + 1

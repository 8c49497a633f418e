"""What a query has said so far, kept for whoever looks: its answer as of any instant that is kept, and its corrections.

Two threads meet here.  The engine's calls `take`, which counts and keeps a reference to the batch; it costs a few
passes over arrays.  Whoever looks calls the others, which apply what has come (`settle`).

**Bounded.**  At most `EVENTS` events are kept.  Events that ended long ago go first; `known_from` says from when on the
answer is whole.  If those that stand are too many, or come too fast, a sample is kept: the events whose *start* falls
into one of `sample` classes.  An adjust has the start of its insert, so an event is kept with all its changes or not at
all, and every snapshot is a sample of the true one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.plain import plain_rows, plain_time
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

EVENTS: Final = 20_000
AT_ONCE: Final = 40_000
"""So many changes are applied at once, unless told otherwise; of more a sample is."""
WAITING: Final = 4_000_000
"""So many changes wait to be looked at; then all that is known is forgotten, and that is said."""
CORRECTIONS: Final = 600
_NEW: Final = 40
"""So many corrections of one look are kept."""
_CALM: Final = 6
"""After so many looks with little to do a sample grows again."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A change of what had been answered: a row that came late, or one whose end was moved."""

    number: int
    kind: str
    vs: int
    ve: int
    vnew: int
    row: list[Any]
    at: float

    def to_plain(self) -> dict[str, Any]:
        times = {"vs": plain_time(self.vs), "ve": plain_time(self.ve), "vnew": plain_time(self.vnew)}
        return {"number": self.number, "kind": self.kind, **times, "row": self.row, "at": self.at}

    def touches(self, t: int) -> bool:
        """Whether it changed the answer at an instant."""
        if self.kind == "late":
            return self.vs <= t < self.ve
        return min(self.ve, self.vnew) <= t < max(self.ve, self.vnew)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a query has said in all."""

    inserts: int = 0
    adjusts: int = 0
    corrections: int = 0


_Piece = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Starts, ends, how many of the event come (or go), and its row."""


@dataclass
class _Pending:
    batches: list[tuple[ElementBatch, int]] = field(default_factory=list)
    rows: int = 0
    lost: bool = False


class AnswerBook:
    """The answer of one query."""

    def __init__(self, schema: Schema, emit: Emit, clock: Callable[[], float] = time.time) -> None:
        self.schema, self.emit = schema, emit
        self.now = self.final = self.known_from = NEVER
        self.counts = Counts()
        self.sample = 1
        self.corrections: deque[Correction] = deque(maxlen=CORRECTIONS)
        self._clock = clock
        self._calm = self._number = 0
        self._pending, self._hand = _Pending(), threading.Lock()
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._codec = RowCodec(self.schema, Interner())
        self._coded = self._standing = 0
        self._vs, self._ve, self._weight = (np.empty(0, np.int64) for _ in range(3))
        self._rows, self._is_net = self._codec.empty(), True

    # -- the engine's side --------------------------------------------------------------------------------------

    def take(self, batch: ElementBatch, tau: int) -> None:
        """What the query said in an epoch, after which the latest start is `tau`."""
        inserts, promises = batch.op == INSERT, batch.op == CTI
        adjusts = batch.op == ADJUST
        final = max(self.final, int(batch.vs[promises].max())) if promises.any() else self.final
        before, now = self.now, _now(self.emit, tau, final)
        first = np.where(adjusts, np.minimum(batch.ve, batch.vnew), batch.vs)
        corrected = int(np.count_nonzero((inserts | adjusts) & (first <= before))) if before != NEVER else 0
        n, m = int(np.count_nonzero(inserts)), int(np.count_nonzero(adjusts))
        with self._hand:
            self.now, self.final = max(before, now), final
            was = self.counts
            self.counts = Counts(was.inserts + n, was.adjusts + m, was.corrections + corrected)
            if not n + m:
                return
            if self._pending.rows > WAITING:
                self._pending = _Pending(lost=True)
            self._pending.batches.append((batch, before))
            self._pending.rows += n + m

    # -- who looks ----------------------------------------------------------------------------------------------

    def settle(self, most: int = AT_ONCE) -> None:
        """Apply what has come: so many changes at most, of more a sample."""
        with self._lock:
            with self._hand:
                pending, self._pending = self._pending, _Pending()
            if pending.lost:
                self._forget()
                self.known_from = max(self.known_from, self.now)
            self._choose_sample(pending.rows, most)
            pieces = [self._piece(batch, before) for batch, before in pending.batches]
            self._add([piece for piece in pieces if piece is not None])
            if len(self._vs) > 2 * EVENTS:
                self._tidy()

    def _choose_sample(self, rows: int, most: int) -> None:
        if rows > most * self.sample:
            while rows > most * self.sample:
                self.sample, self._calm = 2 * self.sample, 0
            self._keep(_kept(self._vs, self.sample))  # what is left out gets no more changes
        is_calm = 4 * rows < most * self.sample and 4 * self._standing < EVENTS
        self._calm = self._calm + 1 if is_calm else 0
        if self.sample > 1 and self._calm >= _CALM:
            self.sample, self._calm = self.sample // 2, 0

    def _piece(self, batch: ElementBatch, before: int) -> _Piece | None:
        """What a batch changes, of the sample."""
        data = np.flatnonzero((batch.op <= ADJUST) & _kept(batch.vs, self.sample))
        if not len(data):
            return None
        op, vs, ve, vnew = batch.op[data], batch.vs[data], batch.ve[data], batch.vnew[data]
        whole = len(data) == len(batch)
        index = pa.array(data)
        columns = batch.columns if whole else tuple(column.take(index) for column in batch.columns)
        self._note(op, vs, ve, vnew, columns, before)
        rows = self._codec.encode(columns, len(data))
        self._coded += len(data)
        moved, stays = op == ADJUST, (op == ADJUST) & (vnew > vs)
        if not moved.any():
            return vs, ve, np.ones(len(data), np.int64), rows
        return (
            np.concatenate([vs, vs[stays]]),
            np.concatenate([ve, vnew[stays]]),
            np.concatenate([np.where(moved, -1, 1), np.ones(int(stays.sum()), np.int64)]),
            np.concatenate([rows, rows[stays]]),
        )

    def _add(self, pieces: list[_Piece]) -> None:
        if pieces:
            kept = (self._vs, self._ve, self._weight, self._rows)
            self._vs, self._ve, self._weight, self._rows = (
                np.concatenate([mine, *(piece[i] for piece in pieces)]) for i, mine in enumerate(kept)
            )
            self._is_net = False

    def _note(
        self, op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray, columns: tuple[Any, ...], before: int
    ) -> None:
        """Keep the last corrections as people read them."""
        first = np.where(op == ADJUST, np.minimum(ve, vnew), vs)
        found = np.flatnonzero(first <= before) if before != NEVER else first[:0]
        if not len(found):
            return
        self._number += len(found) - min(len(found), _NEW)
        found, at = found[-_NEW:], self._clock()
        rows = plain_rows([column.take(pa.array(found)) for column in columns], len(found))
        for i, row in zip(found.tolist(), rows, strict=True):
            kind = "late" if op[i] == INSERT else "taken back" if vnew[i] <= vs[i] else "moved"
            self._number += 1
            times = int(vs[i]), int(ve[i]), int(vnew[i])
            self.corrections.append(Correction(self._number, kind, *times, row, at))

    def _tidy(self) -> None:
        """What is netted, of the sample, and not too much."""
        self._net()
        while True:
            self._standing = int((self._ve > self.now).sum())
            if self._standing <= EVENTS:
                break
            self.sample, self._calm = 2 * self.sample, 0
            self._keep(_kept(self._vs, self.sample))
        if len(self._vs) > EVENTS:
            oldest = int(np.partition(self._ve, len(self._ve) - EVENTS)[len(self._ve) - EVENTS])
            oldest = min(oldest, self.now)
            self._keep(self._ve > oldest)
            self.known_from = max(self.known_from, oldest)
        if self._coded > 8 * EVENTS:
            columns = self._codec.decode(self._rows)
            self._codec, self._coded = RowCodec(self.schema, Interner()), len(self._vs)
            self._rows = self._codec.encode(columns, len(self._vs))

    def _net(self) -> None:
        if self._is_net:
            return
        self._is_net = True
        if not len(self._vs):
            return
        order = np.argsort(_hashed(self._rows, self._vs, self._ve))
        vs, ve, rows = self._vs[order], self._ve[order], self._rows[order]
        starts = np.empty(len(order), np.bool_)
        starts[0] = True
        starts[1:] = (vs[1:] != vs[:-1]) | (ve[1:] != ve[:-1]) | (rows[1:] != rows[:-1]).any(axis=1)
        first = np.flatnonzero(starts)
        weight = np.add.reduceat(self._weight[order], first)
        self._vs, self._ve, self._weight, self._rows = vs[first], ve[first], weight, rows[first]
        self._keep(weight > 0)  # less than none: its insert was forgotten

    def _keep(self, mask: np.ndarray) -> None:
        self._vs, self._ve, self._weight = self._vs[mask], self._ve[mask], self._weight[mask]
        self._rows = self._rows[mask]

    # -- answers ------------------------------------------------------------------------------------------------

    def snapshot(self, at: int | None, limit: int) -> dict[str, Any]:
        """The rows alive at an instant (None: now), the first of them in the order of their columns."""
        with self._lock:
            self.settle()
            self._tidy()
            t = self.now if at is None else at
            alive = np.flatnonzero((self._vs <= t) & (t < self._ve))
            columns = self._codec.decode(self._rows[alive])
            order = _sorted(columns, len(alive))[:limit]
            shown = alive[order]
            rows = plain_rows([column.take(pa.array(order)) for column in columns], len(order))
            names = _hashed(self._rows[shown], self._vs[shown])
            events = zip(names.tolist(), self._vs[shown].tolist(), self._ve[shown].tolist(), rows, strict=True)
            told = [
                {"id": f"{name:x}", "vs": plain_time(vs), "ve": plain_time(ve), "n": n, "row": row}
                for (name, vs, ve, row), n in zip(events, self._weight[shown].tolist(), strict=True)
            ]
            return {
                "at": plain_time(t),
                "is_now": at is None,
                "final": t < self.final,
                "known": t >= self.known_from,
                "total": int(self._weight[alive].sum()),
                "rows": told,
                **self.facts(),
            }

    def facts(self) -> dict[str, Any]:
        """How far it has come, and what of it is kept."""
        return {
            "now": plain_time(self.now),
            "final_before": plain_time(self.final),
            "known_from": plain_time(self.known_from),
            "first": plain_time(int(self._vs.min())) if len(self._vs) else None,
            "sample": self.sample,
        }

    def timeline(self, lo: int, hi: int, limit: int) -> dict[str, Any]:
        """Events that overlap a span, the latest starts first."""
        with self._lock:
            self.settle()
            self._tidy()
            found = np.flatnonzero((self._vs < hi) & (self._ve > lo))
            order = np.argsort(self._vs[found], kind="stable")[::-1][:limit]
            shown = found[order]
            rows = plain_rows(self._codec.decode(self._rows[shown]), len(shown))
            names = _hashed(self._rows[shown], self._vs[shown]).tolist()
            times = zip(self._vs[shown].tolist(), self._ve[shown].tolist(), names, rows, strict=True)
            told = [
                {"id": f"{n:x}", "vs": plain_time(vs), "ve": plain_time(ve), "row": row} for vs, ve, n, row in times
            ]
            return {"events": told, "total": len(found), "from": plain_time(lo), "to": plain_time(hi), **self.facts()}

    def changed(self, since: int, at: int | None = None, limit: int = 100) -> list[Correction]:
        """The corrections after a number, of those that are kept; `at`: those that changed the answer there."""
        with self._lock:
            self.settle()
            found = [each for each in self.corrections if each.number > since and (at is None or each.touches(at))]
            return found[-limit:]


def _now(emit: Emit, tau: int, final: int) -> int:
    """The latest instant that an answer speaks of."""
    answered = emit in (Emit.CURRENT, Emit.ALL) or final == INF
    return tau if answered or tau == NEVER else min(tau, max(final, NEVER + 1) - 1)


def _kept(vs: np.ndarray, sample: int) -> np.ndarray:
    if sample == 1:
        return np.ones(len(vs), np.bool_)
    mixed = vs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) & np.uint64(sample - 1)) == 0


def _hashed(rows: np.ndarray, *times: np.ndarray) -> np.ndarray:
    """A number for each row at its times."""
    found = np.full(len(rows), 0x243F6A8885A308D3, np.uint64)
    for column in (*rows.T, *times):
        found = (found ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found


def _sorted(columns: tuple[Any, ...], length: int) -> np.ndarray:
    """In the order of the columns, of those that have one."""
    simple = [column for column in columns if not pa.types.is_nested(column.type)]
    if not simple:
        return np.arange(length)
    names = [f"c{i}" for i in range(len(simple))]
    table = pa.table(dict(zip(names, simple, strict=True)))
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return order.to_numpy()

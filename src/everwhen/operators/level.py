"""Coalesce: the canonical level form, in which a row's events are the maximal intervals of each multiplicity.

The output is in event form: a changed interval is taken back whole and said again.  With `current` every change is said at
once (the promise is the input's).  With `ended` and `final` an interval is held until nothing in order can prolong it, and in
`final` until all earlier ones are out as well; then the promise is held at the oldest held start, and `longest` bounds how
long that can take.  Kept are intervals until `ve < c`, strictly, because one that ends at the CTI may still grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.errors import QueryError
from everwhen.model.changes import Changes, no_changes
from everwhen.model.punctuation import Frontier
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF
from everwhen.operators.base import Emit, Operator, Output, Policy, StateSize
from everwhen.operators.kernels import events as kernel
from everwhen.operators.kernels.live import group_rows
from everwhen.operators.kernels.tables import Calendar, KeyTable, Regions, grown
from everwhen.operators.net import cancelled

SAID = 2
"""The record's third column: whether the interval has been said."""


class CoalesceOperator(Operator):
    """Level form of the input; records are `[lo, hi, said]` per row."""

    keeps = "per row the intervals until ve < c, and those held back"

    def __init__(self, longest: int | None, codec: RowCodec, policy: Policy) -> None:
        self.codec = codec
        self._longest = longest or 0
        self._held = policy.emit in (Emit.ENDED, Emit.FINAL)
        self._ordered = policy.emit is Emit.FINAL
        self._keys = KeyTable(codec.width, codec.pooled)
        codec.pool.register(self._keys)
        self._kept = Regions(3)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        cti = frontiers[0].time
        out = self._apply(batch) if len(batch) else no_changes(self.codec)
        promise = cti
        if self._held:
            released, oldest = self._release(cti if self._ordered else max(cti, tau))
            out = cancelled(self.codec, [out, released])
            promise = min(cti, oldest)
        self._forget(cti)
        return Output(out, Frontier(promise))

    def _apply(self, batch: Changes) -> Changes:
        """New intervals of the touched rows; those that had been said are taken back if they changed."""
        ids = self._keys.intern(batch.rows)
        capacity = self._keys.capacity
        self._kept.grow(capacity)
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)
        keys, offsets, order = group_rows(ids, self._slot)
        old, old_offsets = self._kept.gather(keys)
        group = np.repeat(np.arange(len(keys)), np.diff(old_offsets))
        changes = np.stack([batch.lo, batch.hi, batch.weight], axis=1)[order]
        both = np.concatenate([np.concatenate([old[:, :2], np.ones((len(old), 1), np.int64)], axis=1), changes])
        both_group = np.concatenate([group, np.repeat(np.arange(len(keys)), np.diff(offsets))])
        by_group = np.argsort(both_group, kind="stable")
        all_offsets = np.searchsorted(both_group[by_group], np.arange(len(keys) + 1))
        new_offsets = np.empty(len(keys) + 1, np.int64)
        new = kernel.levels(keys, all_offsets, both[by_group], new_offsets, self._longest)
        if self._longest and (new[:, 1] == INF).any():
            raise QueryError("an infinite lifetime cannot be cut to a longest length; coalesce without one, or end it first")
        new_group = np.repeat(np.arange(len(keys)), np.diff(new_offsets))
        new[:, SAID] = 0 if self._held else 1
        if self._held:
            new[:, SAID] = _still_said(old, group, new, new_group)
        self._kept.put(keys, new_offsets, new)
        low = np.full(len(keys), INF, np.int64)
        np.minimum.at(low, new_group, new[:, 1])
        self._ends.schedule(keys, low)
        rows = self._keys.codes
        said, again = old[:, SAID] == 1, new[:, SAID] == 1
        taken = _changes(self.codec, old[said], rows[keys[group[said]]], -1)
        return cancelled(self.codec, [taken, _changes(self.codec, new[again], rows[keys[new_group[again]]], 1)])

    def _release(self, bound: int) -> tuple[Changes, int]:
        """Say the intervals that ended before `bound`; also the oldest start still held."""
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        group = np.repeat(np.arange(len(ids)), np.diff(offsets))
        waiting = records[:, SAID] == 0
        growing = waiting & (records[:, 1] >= bound) & (bound < INF)
        if self._longest:
            # a piece of full length does not grow: it is settled as soon as its end is reached
            growing &= (records[:, 1] > bound) | (records[:, 1] - records[:, 0] < self._longest)
        oldest = int(records[growing, 0].min()) if growing.any() else INF
        free = waiting & ~growing
        if self._ordered:
            free &= records[:, 0] < oldest
        held = waiting & ~free
        oldest = int(records[held, 0].min()) if held.any() else INF
        records[free, SAID] = 1
        self._kept.put(ids, offsets, records)
        return _changes(self.codec, records[free], self._keys.codes[ids[group[free]]], 1), oldest

    def _forget(self, cti: int) -> None:
        due = self._ends.before(cti)
        if not len(due):
            return
        records, offsets = self._kept.gather(due)
        group = np.repeat(np.arange(len(due)), np.diff(offsets))
        stay = (records[:, 1] >= cti) | (records[:, SAID] == 0)
        records, group = records[stay], group[stay]
        self._kept.put(due, np.searchsorted(group, np.arange(len(due) + 1)), records)
        low = np.full(len(due), INF, np.int64)
        np.minimum.at(low, group, records[:, 1])
        self._ends.schedule(due, low)
        self._keys.remove(due[self._kept.length[due] == 0])

    def state_size(self) -> StateSize:
        return StateSize(self._kept.rows, self._kept.nbytes + self._keys.nbytes + self._ends.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        return {"rows": self.codec.decode(self._keys.codes[ids]), "records": records, "offsets": offsets, "due": self._ends.due[ids]}

    def restore(self, state: dict[str, Any]) -> None:
        ids = self._keys.intern(self.codec.encode(state["rows"], len(state["due"])))
        self._kept.grow(self._keys.capacity)
        self._ends.grow(self._keys.capacity)
        self._kept.put(ids, state["offsets"], state["records"])
        self._ends.schedule(ids, state["due"])


def _changes(codec: RowCodec, records: np.ndarray, rows: np.ndarray, weight: int) -> Changes:
    return Changes(codec, records[:, 0].copy(), records[:, 1].copy(), np.full(len(records), weight, np.int64), rows)


def _still_said(old: np.ndarray, group: np.ndarray, new: np.ndarray, new_group: np.ndarray) -> np.ndarray:
    """Which new intervals had been said just so."""
    table = KeyTable(3)
    said = old[:, SAID] == 1
    ids = table.intern(np.stack([group[said], old[said, 0], old[said, 1]], axis=1))
    count = np.bincount(ids, minlength=table.capacity)
    found = table.find(np.stack([new_group, new[:, 0], new[:, 1]], axis=1))
    # equal intervals of one row: as many as were said
    nth = np.zeros(len(new), np.int64)
    order = np.argsort(found, kind="stable")
    ranked = found[order]
    starts = np.searchsorted(ranked, ranked)
    nth[order] = np.arange(len(new)) - starts
    return ((found >= 0) & (nth < count[np.maximum(found, 0)])).astype(np.int64)

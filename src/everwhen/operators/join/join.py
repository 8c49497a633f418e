"""Join: bilinear in its inputs, so an adjust is joined like anything else and its event is never looked up.

    out = Δ1 ⋈ (S2 + Δ2)  +  S1 ⋈ Δ2

The sweep area is chosen by the predicate: equal keys give a tree of lifetimes per key; a comparison of two numeric
columns (band or inequality) a list sorted by value; anything else, and the product, a plain list.  Where a condition
lets each left row meet one right row (`nearest.py`), many candidates are looked for by value and lifetime together.
What an area cannot decide is checked on the candidate pairs, by columns and in bounded chunks.

Kept: side 1 until `ve ≤ c2`, side 2 until `ve ≤ c1`, or until the other side has promised the row's key for that long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from everwhen.algebra.expressions.build import Expr
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Frontier
from everwhen.core.schema import Field, Schema
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, StateSize, lowest
from everwhen.operators.join.band_condition import Band
from everwhen.operators.join.join_punctuation import JoinPromises
from everwhen.operators.join.join_state import AT_ONCE, JoinState
from everwhen.operators.join.loops import join as kernel
from everwhen.operators.join.loops import pairs as pair_kernel
from everwhen.operators.join.loops.lifetimes import HI, KEY, LO, ROW
from everwhen.operators.join.loops.nearest import Spans
from everwhen.operators.join.nearest import Nearest, meeting
from everwhen.operators.key_frontiers import keys_covered
from everwhen.operators.stateless.linear import evaluate
from everwhen.punctuation.api import make_frontier
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import BITS, RowCodec

Area = Literal["keyed", "nearest", "sorted", "list"]

_NO_INTS = np.empty(0, np.int64)
CHUNK = 1 << 20
"""Candidate pairs looked at together."""
_KEYS = 4
"""For each change, so many keys are looked at, whether somebody holds them."""
_FEW_KEYS = 1 << 13
"""To look at so many takes no time worth sharing out."""
_MET = 2
"""If so many candidates are found for each row there is, those that are left are looked for by value."""
_FEWEST = 256
"""So few candidates are not worth another way of looking for them."""
_LOOK = 4
"""To look at an entry in a tree of lifetimes costs so many times as much as in a list of values."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Changes of a port's batch (`mine`) and the entries of the other side's log that they meet."""

    port: int
    batch: Changes
    mine: np.ndarray
    entry: np.ndarray


class JoinOperator(Operator):
    """Pairs alive at the same instant; output rows are the left row followed by the right row."""

    ports = 2
    keeps = "left rows until ve ≤ the right CTI, right rows until ve ≤ the left CTI"

    def __init__(
        self,
        left: RowCodec,
        right: RowCodec,
        codec: RowCodec,
        left_keys: Sequence[str] = (),
        right_keys: Sequence[str] = (),
        residual: Expr | None = None,
        null_safe: bool = False,
    ) -> None:
        self.codec = codec
        self._sides = (left, right)
        self._key_at = (
            [left.schema.index(name) for name in left_keys],
            [right.schema.index(name) for name in right_keys],
        )
        types = [left.schema.field(name).type for name in left_keys]  # a column may be compared with two others
        keys = RowCodec(Schema(tuple(Field(str(i), type_) for i, type_ in enumerate(types))), left.pool)
        self._key_codec = keys
        self._null_safe = null_safe
        self._residual = residual
        self._nearest = Nearest.of(residual, left.schema, right.schema, codec.schema)
        self._band = (
            Band.of(residual, left.schema, right.schema, codec.schema)
            if not left_keys and residual is not None and self._nearest is None
            else None
        )
        self._keys = KeyTable(keys.width, keys.pooled)
        left.pool.register(self)
        self._kept = (JoinState(left), JoinState(right))
        self._seen = 0  # changes since all keys were looked at
        self._looked_for = _NO_INTS  # ids of keys that are to be looked at, whether somebody holds them
        self._forgotten = NEVER  # the largest end of rows that are not kept because their key is promised
        self._unmet = [NEVER, NEVER]  # by port, the largest end of rows that are not kept: no partner can come
        self._promises = JoinPromises(self._sides, self._key_at, keys, self._keys, codec.schema)

    @property
    def area(self) -> Area:
        """Which sweep area the predicate chose."""
        if self._nearest:
            return "nearest"
        return "keyed" if self._key_at[0] else "sorted" if self._band else "list"

    def heard(self, columns: Collection[str]) -> None:
        """Somebody above has use for promises about these columns of the answer; nobody has said so: about all."""
        self._promises.heard(columns)

    @property
    def hears(self) -> frozenset[str]:
        """The columns that somebody has asked for."""
        return self._promises.hears

    @property
    def touched(self) -> int:
        """How many kept entries were looked at so far, by key: the work beside the pairs."""
        return sum(int(side.touched[0]) for side in self._kept)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self._make_room(inputs)
        idle = self._promises.idle(frontiers)
        (one, one_ids), (two, two_ids) = (self._keyed(port, batch) for port, batch in enumerate(inputs))
        parts = self._probe(1, two, two_ids)
        self._add(1, two, two_ids, idle)
        parts += self._probe(0, one, one_ids)
        changes = self._result(parts)
        self._add(0, one, one_ids, idle)
        moved = [frontiers[1 - port].time > side.cti for port, side in enumerate(self._kept)]
        for port, side in enumerate(self._kept):
            if moved[port]:
                side.expire(frontiers[1 - port].time)
        frontier = Frontier(lowest(frontiers))
        if not idle:
            fresh = self._promises.about_keys(frontiers)
            freed = [_NO_INTS, _NO_INTS]
            for port, side in enumerate(self._kept):
                if fresh[1 - port]:
                    ids, until = keys_covered(fresh[1 - port], self._key_codec, self._keys)
                    last = side.expire_keys(ids, until)
                    if last > NEVER:
                        freed[port] = ids
                        self._forgotten = max(self._forgotten, last)
            said = self._promises.take(frontiers, self._blocks, self._rows_kept, moved, freed)
            frontier = make_frontier(frontier.time, said)
        return Output(changes, frontier)

    def _add(self, port: int, batch: Changes, ids: np.ndarray, idle: bool) -> None:
        """Keep what may still meet a partner: what outlives the other side's promise about its key."""
        if not idle and len(batch) and self._key_at[port]:
            until = self._promises.until(1 - port, self._keys.codes[ids])
            if until is not None and (until > self._kept[port].cti).any():
                stays = batch.hi > until
                self._forgotten = max(self._forgotten, int(batch.hi[~stays].max(initial=NEVER)))
                batch, ids, until = batch.take(stays), ids[stays], until[stays]
                # of what is taken back, the part before the promise may be forgotten already
                partly = (batch.weight < 0) & (batch.lo < until)
                self._forgotten = max(self._forgotten, int(until[partly].max(initial=NEVER)))
                batch = replace(batch, lo=np.where(batch.weight < 0, np.maximum(batch.lo, until), batch.lo))
        self._kept[port].add(ids, batch)

    def _blocks(self, port: int, ids: np.ndarray, before: np.ndarray) -> np.ndarray:
        return self._kept[port].occupied(ids, before)

    def _rows_kept(self, port: int) -> tuple[np.ndarray, np.ndarray]:
        log = self._kept[port].log[self._kept[port].alive()]
        return log[:, LO], log[:, ROW:]

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        """Pairs of what both sides keep: complete from the later CTI on, since each side goes by the other's, and from
        where all rows have ended that went before that."""
        batch, ids = self._keyed(0, self._kept[0].segments())
        since = max(self._forgotten, *(side.cti for side in self._kept))
        return since, self._result(self._probe(0, batch, ids))

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        """The rows of a side: all from the other side's promise on, but those whose key is promised or null."""
        side = self._kept[port]
        since = max(side.cti, self._forgotten, self._unmet[port])
        if since == INF:
            return None
        return since, side.segments()

    def expect(self, rows: Sequence[int]) -> bool:
        for side, count in zip(self._kept, rows, strict=True):
            side.expect(count)
        return self._keys.expect(max(rows))

    def _make_room(self, inputs: Sequence[Changes]) -> None:
        """Room for the batches; once in a while keys that neither side holds go, some in each step."""
        self.cleared_up, tidied = False, 0
        for side, batch in zip(self._kept, inputs, strict=True):  # one after the other, so that no step takes long
            tidied += side.reserve(len(batch), self.puts_off or self.cleared_up)
            self.cleared_up = tidied > AT_ONCE
        rows = sum(map(len, inputs))
        self._seen += rows
        if len(self._looked_for):
            if self.puts_off or self.cleared_up:
                return
            some = max(_KEYS * rows, _FEW_KEYS)
            self._forget_keys(self._looked_for[:some])
            self._looked_for = self._looked_for[some:]
        elif tidied and self._seen >= self._keys.capacity:
            self._seen, self._looked_for = 0, self._keys.ids()

    def _forget_keys(self, ids: np.ndarray) -> None:
        """Give back those of the ids whose keys neither side holds any more, and for which no promise waits."""
        gone = ids[self._kept[0].vacant(ids) & self._kept[1].vacant(ids) & ~self._promises.waits(ids)]
        for side in self._kept:
            side.forget(gone)
        self._keys.remove(gone)

    def _keyed(self, port: int, batch: Changes) -> tuple[Changes, np.ndarray]:
        """The changes that can have a partner, with their key ids."""
        codec, at = self._sides[port], self._key_at[port]
        if not at:
            return batch, np.zeros(len(batch), np.int64)
        keys = codec.select(batch.rows, at, self._key_codec)
        if not self._null_safe and keys[:, : self._key_codec.words].any():
            known = np.logical_not(keys[:, : self._key_codec.words].any(axis=1))
            self._unmet[port] = max(self._unmet[port], int(batch.hi[~known].max(initial=NEVER)))
            batch, keys = batch.take(known), keys[known]
        ids, top = self._keys.intern(keys), self._keys.top
        for side, share in zip(self._kept, (1, 2), strict=True):  # not both at once
            side.grow(top, top // share)
        return batch, ids

    def _probe(self, port: int, batch: Changes, ids: np.ndarray) -> list[_Pairs]:
        """Changes of one port with the partners that the other side holds."""
        if not len(batch) or self._kept[1 - port].empty:
            return []
        pairs = (_Pairs(port, batch, mine, entry) for mine, entry in self._candidates(port, batch, ids))
        return [some if self._residual is None else self._checked(some, self._residual) for some in pairs]

    def _checked(self, pairs: _Pairs, condition: Expr) -> _Pairs:
        """The pairs that meet the condition."""
        if not len(pairs.mine):
            return pairs
        verdict = evaluate(condition, self.codec, self._rows([pairs], len(pairs.mine)))
        if verdict.null_count:
            verdict = verdict.fill_null(False)
        met = verdict.to_numpy(zero_copy_only=False)
        return replace(pairs, mine=pairs.mine[met], entry=pairs.entry[met])

    def _candidates(self, port: int, batch: Changes, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        side = self._kept[1 - port]
        first, n = 0, len(batch)
        if self._nearest is not None:
            cap = max(_FEWEST, _MET * (n + side.rows))
            mine, entry, first = kernel.probe(
                ids, batch.lo, batch.hi, first, side.heads, side.log, side.cti, cap, side.touched
            )
            yield mine, entry
            if first < n:
                yield from self._by_value(self._nearest, port, batch, ids, first)
            return
        if self._band is None:
            while first < n:
                mine, entry, first = kernel.probe(
                    ids, batch.lo, batch.hi, first, side.heads, side.log, side.cti, CHUNK, side.touched
                )
                yield mine, entry
            return
        entries = side.overlapping(int(batch.lo.min()), int(batch.hi.max()))
        values = self._band.values(1 - port, side.codec, side.log[entries, ROW:])
        order = np.argsort(values)
        entries, values = entries[order], values[order]
        low, high = self._band.bounds(port, self._sides[port], batch.rows)
        met = np.searchsorted(values, high, "right") - np.searchsorted(values, low)
        if _LOOK * side.meeting(entries, batch.lo, batch.hi) < met.sum():  # lifetimes tell more than values do
            while first < n:
                mine, entry, first = kernel.probe(
                    ids, batch.lo, batch.hi, first, side.heads, side.log, side.cti, CHUNK, side.touched
                )
                found = self._band.values(1 - port, side.codec, side.log[entry, ROW:])
                inside = (low[mine] <= found) & (found <= high[mine])
                yield mine[inside], entry[inside]
            return
        while first < n:
            mine, entry, first = kernel.probe_band(
                batch.lo, batch.hi, low, high, first, entries, values, side.log, CHUNK
            )
            yield mine, entry

    def _by_value(
        self, nearest: Nearest, port: int, batch: Changes, ids: np.ndarray, first: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The candidates of changes from `first` on, those of each change the newest first, as a walk gives them."""
        side, batch = self._kept[1 - port], batch.take(slice(first, None))
        at = side.overlapping(int(batch.lo.min()), int(batch.hi.max()))
        entries = side.log[at]
        changes = (ids[first:], batch.lo, batch.hi, batch.rows)
        kept = (entries[:, KEY], np.maximum(entries[:, LO], side.cti), entries[:, HI], entries[:, ROW:])
        (p_ids, p_lo, p_hi, p_rows), (i_ids, i_lo, i_hi, i_rows) = (changes, kept) if port == 0 else (kept, changes)
        values, known = nearest.points(self._sides[0], p_rows)
        points = Spans(p_ids[known], values[known], values[known], p_lo[known], p_hi[known])
        intervals = Spans(i_ids, *nearest.intervals(self._sides[1], i_rows), i_lo, i_hi)
        for point, interval in meeting(points, intervals, CHUNK):
            mine, other = (known[point], interval) if port == 0 else (interval, known[point])
            order = np.lexsort((-other, mine))
            yield mine[order] + first, at[other[order]]

    def _result(self, parts: Sequence[_Pairs]) -> Changes:
        """What pairs say: the instants that both have in common, both rows, the product of the weights."""
        n = sum(len(part.mine) for part in parts)
        if not n:
            return no_changes(self.codec)
        times = np.empty((3, n), np.int64)
        first = 0
        for part in parts:
            batch = part.batch
            log = self._kept[1 - part.port].log
            pair_kernel.overlap(part.mine, part.entry, batch.lo, batch.hi, batch.weight, log, times, first)
            first += len(part.mine)
        return Changes(self.codec, times[0], times[1], times[2], self._rows(parts, n))

    def _rows(self, parts: Sequence[_Pairs], n: int) -> np.ndarray:
        """The left row followed by the right row of each of the `n` pairs."""
        rows = np.empty((n, self.codec.width), np.int64)
        first = 0
        for part in parts:
            here = (part.batch.rows, part.mine, 0)
            there = (self._kept[1 - part.port].log, part.entry, ROW)
            a, b = (here, there) if part.port == 0 else (there, here)
            if self.codec.words == 1:
                pair_kernel.beside(*a, len(self._sides[0].schema), *b, len(self._sides[1].schema), rows, first)
            else:
                left, right = (matrix[at, column:] for matrix, at, column in (a, b))
                beside(self._sides[0], left, self._sides[1], right, self.codec, rows[first : first + len(part.mine)])
            first += len(part.mine)
        return rows

    def key_count(self) -> int:
        return len(self._keys)

    def state_size(self) -> StateSize:
        rows = sum(len(side.alive()) for side in self._kept)
        kept = sum(side.nbytes for side in self._kept) + self._promises.nbytes
        return StateSize(rows, kept + self._keys.nbytes)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        for side in self._kept:
            side.tidy()  # dead entries may hold dead codes, and dead keys too
        self._looked_for = _NO_INTS
        self._forget_keys(self._keys.ids())
        return [*self._keys.coded(), *(side.coded() for side in self._kept)]

    def recoded(self) -> None:
        self._keys.recoded()
        for side in self._kept:
            side.recoded()

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = {f"side{port}": side.snapshot() for port, side in enumerate(self._kept)}
        state["forgotten"], state["unmet"] = self._forgotten, list(self._unmet)
        return {**state, "promises": self._promises.snapshot()} if len(self._promises) else state

    def restore(self, state: dict[str, Any]) -> None:
        self._forgotten, self._unmet = state["forgotten"], list(state.get("unmet", (INF, INF)))
        for port, side in enumerate(self._kept):
            batch, ids = self._keyed(port, side.restored(state[f"side{port}"]))
            side.reserve(len(batch))
            side.add(ids, batch)
        if "promises" in state:
            self._promises.restore(state["promises"])
            for side in self._kept:
                side.grow(self._keys.capacity)


def beside(left: RowCodec, a: np.ndarray, right: RowCodec, b: np.ndarray, codec: RowCodec, rows: np.ndarray) -> None:
    """Left rows beside right rows, as rows of `codec`, whose null mask takes several words."""
    n = len(left.schema)
    rows[:, codec.words : codec.words + n] = a[:, left.words :]
    rows[:, codec.words + n :] = b[:, right.words :]
    rows[:, : codec.words] = 0
    for j in range(len(codec.schema)):
        source, at = (a, j) if j < n else (b, j - n)
        missing = (source[:, at // BITS] >> (at % BITS)) & 1
        rows[:, j // BITS] |= missing << (j % BITS)

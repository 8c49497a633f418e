"""Join: bilinear in its inputs, so an adjust is joined like anything else and its event is never looked up.

    out = Δ1 ⋈ (S2 + Δ2)  +  S1 ⋈ Δ2

The sweep area is chosen by the predicate: equal keys give a region per key; a comparison of two numeric columns
(band or inequality) a list sorted by value; anything else, and the product, a plain list.  What an area cannot
decide is checked on the candidate pairs, by columns and in bounded chunks.

Kept: side 1 until `ve ≤ c2`, side 2 until `ve ≤ c1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from everwhen.algebra.expr import Expr
from everwhen.model.changes import Changes, no_changes
from everwhen.model.punctuation import Frontier
from everwhen.model.rows import BITS, RowCodec
from everwhen.operators.band import Band
from everwhen.operators.base import Operator, Output, StateSize, lowest
from everwhen.operators.kernels import join as kernel
from everwhen.operators.kernels.live import HI, LO, VALUES, WEIGHT
from everwhen.operators.kernels.tables import KeyTable
from everwhen.operators.linear import evaluate
from everwhen.operators.live import LiveRows

CHUNK = 1 << 20
"""Candidate pairs looked at together."""


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
        keys = RowCodec(left.schema.select(left_keys), left.pool)
        self._key_codec = keys
        self._null_safe = null_safe
        self._residual = residual
        self._band = (
            Band.of(residual, left.schema, right.schema, codec.schema)
            if not left_keys and residual is not None
            else None
        )
        self._keys = KeyTable(keys.width, keys.pooled)
        left.pool.register(self._keys)
        self._live = tuple(LiveRows(side.width, side.pooled, side.pool) for side in self._sides)

    @property
    def area(self) -> str:
        """Which sweep area the predicate chose."""
        return "keyed" if self._key_at[0] else "sorted" if self._band else "list"

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        one, two = (self._keyed(port, batch) for port, batch in enumerate(inputs))
        parts = []
        maybe_empty = []
        if len(two[0]):
            parts += self._probe(1, *two)
            maybe_empty += self._keep(1, *two, self._live[1].cti)
        if len(one[0]):
            parts += self._probe(0, *one)
            maybe_empty += self._keep(0, *one, self._live[0].cti)
        for port, live in enumerate(self._live):
            promise = frontiers[1 - port].time
            if promise > live.cti:
                maybe_empty.append(live.expire(promise))
        self._forget(maybe_empty)
        return Output(_concat(self.codec, parts), Frontier(lowest(frontiers)))

    def _keyed(self, port: int, batch: Changes) -> tuple[Changes, np.ndarray]:
        """The changes that can have a partner, with their key ids."""
        codec, at = self._sides[port], self._key_at[port]
        if not at:
            ids = np.zeros(len(batch), np.int64)
            if len(batch) and not len(self._keys):
                self._keys.intern(np.zeros((1, self._key_codec.width), np.int64))
        else:
            keys = codec.select(batch.rows, at, self._key_codec)
            if not self._null_safe and keys[:, : self._key_codec.words].any():
                known = np.logical_not(keys[:, : self._key_codec.words].any(axis=1))
                batch, keys = batch.take(known), keys[known]
            ids = self._keys.intern(keys)
        for live in self._live:
            live.grow(self._keys.capacity)
        return batch, ids

    def _keep(self, port: int, batch: Changes, ids: np.ndarray, cti: int) -> list[np.ndarray]:
        """Add to a side's state what the other side may still meet; returns keys of which nothing may be left."""
        maybe_empty = []
        lo = np.where(batch.weight < 0, np.maximum(batch.lo, cti), batch.lo)
        records = np.empty((len(batch), VALUES + self._sides[port].width), np.int64)
        records[:, LO], records[:, HI], records[:, WEIGHT], records[:, VALUES:] = lo, batch.hi, batch.weight, batch.rows
        useful = (batch.hi > cti) & (lo < batch.hi)
        if not useful.all():
            maybe_empty.append(ids[~useful])
            records, ids = records[useful], ids[useful]
        if len(ids):
            maybe_empty.append(self._live[port].empty(self._live[port].apply(ids, records)))
        return maybe_empty

    def _probe(self, port: int, batch: Changes, ids: np.ndarray) -> list[Changes]:
        """Join changes of one port with the other side's state."""
        found = []
        regions = self._live[1 - port].regions
        if regions.rows == 0:
            return []
        for mine, record in self._candidates(port, batch, ids):
            if not len(mine):
                continue
            kept = regions.pool[record]
            lo, hi = np.maximum(batch.lo[mine], kept[:, LO]), np.minimum(batch.hi[mine], kept[:, HI])
            weight = batch.weight[mine] * kept[:, WEIGHT]
            here, there = batch.rows[mine], kept[:, VALUES:]
            left, right = (here, there) if port == 0 else (there, here)
            rows = join_rows(self._sides[0], left, self._sides[1], right, self.codec)
            part = Changes(self.codec, lo, hi, weight, rows)
            if self._residual is not None:
                verdict = evaluate(self._residual, self.codec, rows)
                if verdict.null_count:
                    verdict = verdict.fill_null(False)
                part = part.take(verdict.to_numpy(zero_copy_only=False))
            found.append(part)
        return found

    def _candidates(self, port: int, batch: Changes, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        regions = self._live[1 - port].regions
        at, n = 0, len(batch)
        if self._band is None:
            while at < n:
                mine, record, at = kernel.probe(
                    ids, batch.lo, batch.hi, at, n, regions.start, regions.length, regions.pool, CHUNK
                )
                yield mine, record
            return
        start, length = int(regions.start[0]), int(regions.length[0])
        other = self._sides[1 - port]
        values = self._band.values(1 - port, other, regions.pool[start : start + length, VALUES:])
        order = np.argsort(values)
        values = values[order]
        low, high = self._band.bounds(port, self._sides[port], batch.rows)
        while at < n:
            mine, record, at = kernel.probe_band(
                batch.lo, batch.hi, low, high, at, n, start, order, values, regions.pool, CHUNK
            )
            yield mine, record

    def _forget(self, candidates: Sequence[np.ndarray]) -> None:
        """Give back the ids of keys that neither side holds any more."""
        if not self._key_at[0]:
            return
        mine, other = self._live[0].regions.length, self._live[1].regions.length
        listed = [empty for ids in candidates if len(empty := ids[(mine[ids] == 0) & (other[ids] == 0)])]
        if listed:
            self._keys.remove(np.unique(np.concatenate(listed)))

    def state_size(self) -> StateSize:
        rows = sum(live.regions.rows for live in self._live)
        return StateSize(rows, sum(live.nbytes for live in self._live) + self._keys.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        state: dict[str, Any] = {"keys": self._key_codec.decode(self._keys.codes[ids]), "n": len(ids)}
        for port, (live, codec) in enumerate(zip(self._live, self._sides, strict=True)):
            side = live.snapshot(ids)
            side["rows"] = codec.decode(side["records"][:, VALUES:])
            side["records"] = side["records"][:, :VALUES].copy()
            state[f"side{port}"] = side
        return state

    def restore(self, state: dict[str, Any]) -> None:
        if self._key_at[0]:
            ids = self._keys.intern(self._key_codec.encode(state["keys"], state["n"]))
        else:
            ids = self._keys.intern(np.zeros((state["n"], self._key_codec.width), np.int64))
        for port, (live, codec) in enumerate(zip(self._live, self._sides, strict=True)):
            side = state[f"side{port}"]
            rows = codec.encode(side["rows"], len(side["records"]))
            live.grow(self._keys.capacity)
            live.restore(ids, side, np.concatenate([side["records"], rows], axis=1))


def join_rows(left: RowCodec, a: np.ndarray, right: RowCodec, b: np.ndarray, codec: RowCodec) -> np.ndarray:
    """Left rows beside right rows, as rows of `codec`."""
    rows = np.empty((len(a), codec.width), np.int64)
    n = len(left.schema)
    rows[:, codec.words : codec.words + n] = a[:, left.words :]
    rows[:, codec.words + n :] = b[:, right.words :]
    if codec.words == 1:
        rows[:, 0] = a[:, 0] | (b[:, 0] << n)
        return rows
    rows[:, : codec.words] = 0
    for j in range(len(codec.schema)):
        source, at = (a, j) if j < n else (b, j - n)
        missing = (source[:, at // BITS] >> (at % BITS)) & 1
        rows[:, j // BITS] |= missing << (j % BITS)
    return rows


def _concat(codec: RowCodec, parts: Sequence[Changes]) -> Changes:
    if not parts:
        return no_changes(codec)
    if len(parts) == 1:
        return parts[0]
    return Changes(
        codec,
        np.concatenate([p.lo for p in parts]),
        np.concatenate([p.hi for p in parts]),
        np.concatenate([p.weight for p in parts]),
        np.concatenate([p.rows for p in parts]),
    )

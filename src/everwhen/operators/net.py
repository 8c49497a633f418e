"""Netting: the sum of signed segments of a batch as disjoint segments per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import group_rows
from everwhen.core.punctuation import Frontier
from everwhen.operators import net_loops as kernel
from everwhen.operators.contract import Operator, Output
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


def netted(batch: Changes) -> Changes:
    """The same sum; where something is taken back, in disjoint segments: what cancels is gone."""
    return batch if len(batch) < 2 or (batch.weight > 0).all() else put_together(batch)


def put_together(batch: Changes) -> Changes:
    """The same sum in as few disjoint segments as can be."""
    table = KeyTable(batch.codec.width)
    ids = table.intern(batch.rows)
    keys, offsets, order = group_rows(ids, np.full(table.capacity, -1, np.int64))
    out = kernel.net(keys, offsets, order, batch.lo, batch.hi, batch.weight)
    return Changes(batch.codec, out[:, 1].copy(), out[:, 2].copy(), out[:, 3].copy(), table.codes[out[:, 0]])


def cancelled(codec: RowCodec, parts: Sequence[Changes]) -> Changes:
    """All parts in one, where an event said and taken back is left out."""
    lo, hi = np.concatenate([p.lo for p in parts]), np.concatenate([p.hi for p in parts])
    weight, rows = np.concatenate([p.weight for p in parts]), np.concatenate([p.rows for p in parts])
    together = Changes(codec, lo, hi, weight, rows)
    return summed(together) if (weight < 0).any() else together


def summed(batch: Changes) -> Changes:
    """Segments of equal rows and lifetimes as one each; what cancels is gone."""
    table = KeyTable(2 + batch.codec.width)
    ids = table.intern(np.concatenate([batch.lo[:, None], batch.hi[:, None], batch.rows], axis=1))
    total = np.zeros(table.capacity, np.int64)
    np.add.at(total, ids, batch.weight)
    left = np.flatnonzero(total)
    named = table.codes[left]
    return Changes(batch.codec, named[:, 0].copy(), named[:, 1].copy(), total[left], named[:, 2:].copy())


def net_corrected(batch: Changes) -> Changes:
    """The same sum, where segments of rows of which something is taken back are disjoint; other rows stay as they
    are."""
    if len(batch) < 2 or batch.weight.min() > 0:
        return batch
    lo, hi, weight, of = net_rows(batch)
    return Changes(batch.codec, lo, hi, weight, batch.rows[of])


def net_rows(batch: Changes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Starts, ends, weights and positions of rows: what `net_corrected` gives."""
    lo, hi, weight, of = batch.lo, batch.hi, batch.weight, np.arange(len(batch))
    if len(batch) > 1 and weight.min() < 0:
        others, offsets, order = kernel.corrected(weight, batch.rows)
        if len(order):
            netted = kernel.net(order[offsets[:-1]], offsets, order, lo, hi, weight)
            lo, hi = np.concatenate([lo[others], netted[:, 1]]), np.concatenate([hi[others], netted[:, 2]])
            weight, of = np.concatenate([weight[others], netted[:, 3]]), np.concatenate([others, netted[:, 0]])
    return lo, hi, weight, of


class NetOperator(Operator):
    """Event form to segment form: whole events taken back and said again become the difference between them."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        return Output(netted(inputs[0]), frontiers[0])


class TogetherOperator(NetOperator):
    """Segments of equal rows as few as can be, behind columns that are left out: what differed in these alone has been
    cut into pieces, taken back and said again.  `instants`: segments of one tick stay apart."""

    def __init__(self, codec: RowCodec, instants: bool = False) -> None:
        super().__init__(codec)
        self._instants = instants

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        if self._instants:
            return Output(cancelled(self.codec, [batch]), frontiers[0])
        return Output(put_together(batch) if len(batch) > 1 else batch, frontiers[0])

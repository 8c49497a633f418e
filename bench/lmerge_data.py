"""Physically different copies of one stream of events, as in the LMerge paper: disorder, corrections, lag.

One history: one event per tick, with a number of 0 to 400 and a text, alive for `lifetime` ticks, so that so many are
alive at a time.  A copy brings the events in its own order: a share of them (`disorder`) comes up to `late` ticks late.
A share of them (`adjusts`) is inserted with another end first and adjusted later.  Behind every 1 / `stables` elements
stands a CTI as high as the rest allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch


@dataclass(frozen=True)
class Shape:
    """What a copy is like."""

    events: int = 200_000
    lifetime: int = 10_000
    disorder: float = 0.2
    late: int = 500
    adjusts: float = 0.0
    stables: float = 0.01
    text: int = 0
    per_tick: int = 1


def schema(shape: Shape) -> Schema:
    columns = [("n", pa.int64())] + ([("text", pa.string())] if shape.text else [])
    return Schema.of(columns)


def copy(shape: Shape, seed: int) -> ElementBatch:
    """A copy of the history; all seeds bring the same one."""
    n = shape.events
    rng = np.random.default_rng(seed)
    vs = np.arange(n, dtype=np.int64) // shape.per_tick
    ve = vs + shape.lifetime
    number = np.random.default_rng(7).integers(0, 401, n)
    late = (rng.random(n) < shape.disorder) * rng.integers(0, max(shape.late, 1), n)
    arrival = vs + late
    adjusted = np.flatnonzero(rng.random(n) < shape.adjusts)
    other = ve[adjusted] + rng.integers(1, shape.lifetime, len(adjusted))  # the end said first
    arrivals = np.concatenate([arrival, arrival[adjusted] + rng.integers(1, shape.lifetime // 2, len(adjusted))])
    of = np.concatenate([np.arange(n), adjusted])
    op = np.repeat(np.array([INSERT, ADJUST], np.uint8), [n, len(adjusted)])
    first = ve.copy()
    first[adjusted] = other
    order = np.argsort(arrivals, kind="stable")
    of, op = of[order], op[order]
    sync = np.where(op == ADJUST, ve[of], vs[of])
    allowed = np.minimum.accumulate(sync[::-1])[::-1]  # nothing from here on changes anything earlier
    allowed = np.minimum(allowed, vs[-1] + 1)  # more may follow
    step = max(1, round(1 / shape.stables))
    at = np.arange(step, len(op), step)
    places = np.insert(np.arange(len(op)), at, -1)
    data = places >= 0
    of_all, op_all = of[places], np.where(data, op[places], np.uint8(CTI)).astype(np.uint8)
    start, end = vs[of_all].copy(), first[of_all].copy()
    start[~data], end[~data] = allowed[at], allowed[at]
    new = np.where(op_all == ADJUST, ve[of_all], end)
    columns = [pa.array(number[of_all], mask=~data)]
    if shape.text:
        columns.append(_texts(shape.text).take(pa.array(number[of_all], mask=~data)))
    return ElementBatch(schema(shape), op_all, start, end, new, tuple(columns))


def _texts(length: int) -> pa.Array:
    """A text per number: what a row's text is follows from its number, so that copies agree."""
    rng = np.random.default_rng(3)
    return pa.array(["".join(map(chr, rng.integers(97, 123, length))) for _ in range(401)])


def epochs(copies: list[ElementBatch], batch: int, lags: list[int] | None = None) -> list[dict[str, ElementBatch]]:
    """So many elements of each copy in turn; a copy that lags begins so many epochs later."""
    lags = lags or [0] * len(copies)
    count = max(-(-len(each) // batch) + lag for each, lag in zip(copies, lags, strict=True))
    found = []
    for turn in range(count):
        epoch = {}
        for port, (each, lag) in enumerate(zip(copies, lags, strict=True)):
            if turn >= lag and (turn - lag) * batch < len(each):
                epoch[f"c{port}"] = each.slice((turn - lag) * batch, batch)
        found.append(epoch)
    return found


def sources(shape: Shape, count: int, **declared: object) -> list[ew.Stream]:
    return [ew.source(f"c{port}", schema(shape), **declared) for port in range(count)]


IN_ORDER = replace(Shape(), disorder=0.0, adjusts=0.0)

"""The bench streams: deterministic, disordered, corrected, made block by block so that data never dominates memory.

Event `i` is due at the instant `start + i / per_tick`.  A fifth of the events are late: they start up to `lateness`
before they arrive.  A twentieth is corrected by an adjust that arrives while it is still legal.  Every batch ends with
the CTI that the lateness allows.  Events of lifetime 1 (for windows) are corrected by removal, half of them followed by
the right value; longer ones (for joins and aggregates over intervals) are removed or halved.

`history` is what remains when all corrections are applied: what a one-shot peer is given.  Run as a program, this file
writes the peers' inputs, so that making them does not count as the peers' memory:

    python bench/data.py DIRECTORY inserts events left …
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from everwhen.core.schema import Schema
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

SCHEMA = Schema.of([("key", pa.string()), ("value", pa.int64())])
BLOCK = 100_000  # events that are drawn at once


@dataclass(frozen=True)
class Shape:
    """What a stream looks like.  Times are in ticks of `tick` units: 1, or 1,000,000 for microseconds."""

    events: int = 1_000_000
    keys: int = 1_000
    per_tick: int = 100
    late: float = 0.20
    lateness: int = 30
    corrected: float = 0.05
    batch: int = 10_000
    lifetime: int = 1
    tick: int = 1
    start: int = 60
    seed: int = 7


@dataclass(frozen=True)
class Columns:
    """Elements as plain arrays, keys as numbers, in arrival order; `at` is the place in the arrival order."""

    at: np.ndarray
    op: np.ndarray
    vs: np.ndarray
    ve: np.ndarray
    vnew: np.ndarray
    key: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.at)

    def take(self, index: np.ndarray | slice) -> Columns:
        return Columns(*(array[index] for array in vars(self).values()))


def join(parts: list[Columns]) -> Columns:
    return Columns(*(np.concatenate(arrays) for arrays in zip(*(vars(part).values() for part in parts), strict=True)))


def key_names(keys: int) -> pa.Array:
    return pa.array([f"key-{i:06d}" for i in range(keys)])


def blocks(shape: Shape) -> Iterator[Columns]:
    """The elements of a stream without its CTIs, block by block, in arrival order."""
    waiting: Columns | None = None
    for number, first in enumerate(range(0, shape.events, BLOCK)):
        end = min(first + BLOCK, shape.events)
        made = _draw(shape, number, first, end)
        if waiting is not None:
            made = join([waiting, made])
        made = made.take(np.argsort(made.at, kind="stable"))
        split = len(made) if end == shape.events else int(np.searchsorted(made.at, end))
        waiting = made.take(slice(split, None))
        yield made.take(slice(0, split))


def _draw(shape: Shape, number: int, first: int, end: int) -> Columns:
    """Events `first … end` and their corrections, which may belong to later blocks."""
    rng = np.random.default_rng([shape.seed, number])
    n = end - first
    i = np.arange(first, end, dtype=np.int64)
    due = shape.start * shape.tick + i * shape.tick // shape.per_tick
    behind = rng.integers(1, shape.lateness * shape.tick, n, endpoint=True)
    vs = due - np.where(rng.random(n) < shape.late, behind, 0)
    ve = vs + shape.lifetime * (shape.tick if shape.lifetime > 1 else 1)
    key, value = rng.integers(0, shape.keys, n), rng.integers(0, 1_000, n)
    at = i.astype(np.float64)
    events = Columns(at, np.full(n, INSERT, np.uint8), vs, ve, np.zeros(n, np.int64), key, value)

    wrong = np.flatnonzero(rng.random(n) < shape.corrected)
    # A change at vs is legal as long as the CTI, which runs `lateness` behind the arrivals, has not passed it.
    slack = (vs[wrong] + shape.lateness * shape.tick - due[wrong]) * shape.per_tick / shape.tick
    when = at[wrong] + 0.5 + rng.random(len(wrong)) * np.maximum(slack - 1, 0)
    remove = np.full(len(wrong), True) if shape.lifetime == 1 else rng.random(len(wrong)) < 0.5
    vnew = np.where(remove, vs[wrong], vs[wrong] + (ve - vs)[wrong] // 2)
    adjust = np.full(len(wrong), ADJUST, np.uint8)
    adjusts = Columns(when, adjust, vs[wrong], ve[wrong], vnew, key[wrong], value[wrong])

    again = remove & (rng.random(len(wrong)) < 0.5)
    right = Columns(*(array[wrong][again] for array in vars(events).values()))
    right = Columns(when[again] + 0.1, right.op, right.vs, right.ve, right.vnew, right.key, (right.value + 1) % 1_000)
    return join([events, adjusts, right])


def batches(shape: Shape) -> Iterator[ElementBatch]:
    """The stream: batches of `shape.batch` elements, each followed by its CTI."""
    names = key_names(shape.keys)
    for block in blocks(shape):
        for first in range(0, len(block), shape.batch):
            yield _batch(block.take(slice(first, first + shape.batch)), names, shape)


def _batch(part: Columns, names: pa.Array, shape: Shape) -> ElementBatch:
    n = len(part)
    cti = int(part.at[-1] * shape.tick // shape.per_tick) + (shape.start - shape.lateness) * shape.tick
    absent = np.zeros(n + 1, np.bool_)
    absent[n] = True
    return ElementBatch(
        SCHEMA,
        np.append(part.op, np.uint8(CTI)),
        np.append(part.vs, cti),
        np.append(part.ve, cti),
        np.append(part.vnew, 0),
        (
            names.take(pa.array(np.append(part.key, 0), mask=absent)),
            pa.array(np.append(part.value, 0), mask=absent),
        ),
    )


def history(shape: Shape) -> Columns:
    """The events that remain, in the order of their arrival; `op` and `vnew` are without meaning."""
    everything = join(list(blocks(shape)))
    insert = everything.op == INSERT
    adjust = ~insert
    ends = Columns(*(array[adjust] for array in vars(everything).values()))
    kept = ends.take(ends.vnew > ends.vs)
    kept = Columns(kept.at, kept.op, kept.vs, kept.vnew, kept.vnew, kept.key, kept.value)
    added, taken = join([everything.take(insert), kept]), ends
    # Equal events are interchangeable: each taken one cancels one of the added ones.
    table = join([added, taken])
    sign = np.concatenate([np.ones(len(added), np.int64), -np.ones(len(taken), np.int64)])
    order = np.lexsort((table.value, table.key, table.ve, table.vs))
    table, sign = table.take(order), sign[order]
    fresh = np.ones(len(table), np.bool_)
    fresh[1:] = np.any([getattr(table, c)[1:] != getattr(table, c)[:-1] for c in ("vs", "ve", "key", "value")], axis=0)
    starts = np.flatnonzero(fresh)
    counts = np.add.reduceat(sign, starts)
    if counts.min() < 0:
        raise AssertionError("a correction names an event that is not there")
    rest = table.take(np.repeat(starts, counts))
    return rest.take(np.argsort(rest.at, kind="stable"))


SHAPES = {
    "events": Shape(),
    "events_100k": Shape(keys=100_000, per_tick=10_000, tick=1_000_000),
    "left": Shape(events=500_000, keys=10_000, lifetime=60, seed=11),
    "right": Shape(events=500_000, keys=10_000, lifetime=60, seed=13),
}
INSERTS = {
    "inserts": Shape(events=200_000),
    # few: the more of its keys have come, the slower such a peer gets; all of it takes more than ten minutes
    "inserts_100k": Shape(events=40_000, keys=100_000, per_tick=10_000, tick=1_000_000),
}


def write_inserts(name: str, directory: Path) -> None:
    """Inserts in arrival order as `key,vs,value` lines: what a peer without retractions is given."""
    with (directory / f"{name}.csv").open("w", encoding="ascii") as out:
        for block in blocks(INSERTS[name]):
            rows = block.take(block.op == INSERT)
            triples = zip(rows.key.tolist(), rows.vs.tolist(), rows.value.tolist(), strict=True)
            out.writelines(f"key-{key:06d},{vs},{value}\n" for key, vs, value in triples)


def write_history(name: str, directory: Path) -> None:
    """A history as Parquet (for DuckDB) and as bare arrays (for NumPy)."""
    shape = SHAPES[name]
    rows = history(shape)
    np.savez(directory / f"{name}.npz", key=rows.key, value=rows.value, vs=rows.vs, ve=rows.ve)
    names = key_names(shape.keys).take(pa.array(rows.key))
    table = pa.table({"key": names, "value": rows.value, "vs": rows.vs, "ve": rows.ve})
    parquet.write_table(table, directory / f"{name}.parquet")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[2:]:
        if wanted in INSERTS:
            write_inserts(wanted, target)
        else:
            write_history(wanted, target)

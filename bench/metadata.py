"""What metadata costs: the same batches to two runtimes in turn, one of which is asked for everything.

    python bench/metadata.py QUERY SIZE     filter, sums, join or wide; elements per batch

All items of all operators and inputs are subscribed to, in a window of ten seconds, and told every second.
Blocks of pushes alternate between the runtimes, and lower quartiles of their processor times are compared: what else
runs only adds to them, by caches and memory that it takes, and to both alike.  Wanted: at most 3 % at 10,000 elements
per batch and 10 % at one (`docs/metadata.md`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import CTI, ElementBatch
from measure import percentile, report

BLOCKS = {10_000: (600, 2), 100: (100, 20), 1: (100, 200)}
"""Blocks, and pushes in each, by elements per batch."""
S, T = (ew.source(name, {"k": "int64", "x": "int64"}) for name in "ST")
QUERIES: dict[str, Callable[[], ew.Stream]] = {
    "filter": lambda: S.where(ew.col("x") % 2 == 0).select("k", y=ew.col("x") + 1),
    "sums": lambda: S.range(1_000).group_by("k").agg(n=ew.count(), t=ew.sum("x")),
    "join": lambda: S.range(200).join(T.range(200), on="k"),
    "wide": lambda: S.where(ew.col("x") > 3).range(1_000).distinct().group_by("k").agg(n=ew.max("x")),
}


def batches(name: str, size: int, numbers: range) -> list[ElementBatch]:
    """Starts in order, a tick per element; the last element of every batch is a CTI."""
    rng = np.random.default_rng([sum(map(ord, name)), numbers.start])
    found = []
    for number in numbers:
        n = max(size - 1, 1)
        vs = np.arange(n, dtype=np.int64) + number * n
        promises = size > 1 or number % 10 == 9
        op = np.append(np.zeros(n, np.uint8), [CTI] * promises).astype(np.uint8)
        times = np.append(vs, [vs[-1]] * promises).astype(np.int64)
        columns = [pa.array(rng.integers(0, high, len(op))) for high in (500, 100)]
        found.append(
            ElementBatch(S.schema, op, times, times + 1, np.zeros(len(op), np.int64), tuple(columns), {}, name)
        )
    return found


def cost(of: str, size: int) -> None:
    """Two runtimes side by side."""
    blocks, pushes = BLOCKS[size]
    off, on = (LocalRuntime(QUERIES[of]()) for _ in range(2))
    told: list[object] = []
    on.metadata("out").subscribe(seconds=10.0, every=1.0, then=told.append)
    spent: tuple[list[float], list[float]] = ([], [])
    for block in range(blocks + 6):
        at = range(block * pushes, (block + 1) * pushes)
        given = {name: batches(name, size, at) for name in on.inputs}
        for which in (0, 1) if block % 2 else (1, 0):
            runtime = (off, on)[which]
            began = time.thread_time()
            for number in range(pushes):
                runtime.push({name: each[number] for name, each in given.items()})
            if block >= 6:  # the first ones warm up
                spent[which].append(time.thread_time() - began)
    without, with_it = (percentile(each, 0.25) for each in spent)
    total = blocks * pushes * size * len(on.inputs)
    paired = round(100 * (median(b / a for a, b in zip(*spent, strict=True)) - 1), 2)
    share = round(100 * (with_it / without - 1), 2)
    report(
        "metadata", "everwhen-local", total, sum(spent[1]), case=f"{of}, {size:,} per batch", cost_percent=share,
        off_us=round(without / pushes * 1e6, 1), on_us=round(with_it / pushes * 1e6, 1), told=len(told),
        paired_percent=paired, promised_percent=3 if size >= 10_000 else 10,
    )  # fmt: skip


if __name__ == "__main__":
    cost(sys.argv[1], int(sys.argv[2]))

"""Fast-forward, measured: what it costs to skip, and what it brings to a merge two of whose inputs lag.

    python bench/fast_forward.py skip QUERY        sums, source, distinct or udf: elements below the floor, and the same
                                                   elements where nothing is skipped
    python bench/fast_forward.py lag POLICY QUERY  FIRST or LEADER: three copies, two of them 0 to 5 s behind (Figure 5)

Elements as in the LMerge paper: an integer below 400 and a text, a fifth of them late, a CTI after every hundred, about
10,000 events alive.  Times are processor times of `push` alone, the best of several runs, taken in turn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.core.merge_policy import MergePolicy
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import CTI, ElementBatch
from measure import report

RATE, LIFETIME, LATE, EVERY, TEXT = 5_000, 2_000, 1_000, 100, 1_000
"""Elements per second, and ticks are milliseconds; a CTI after so many elements; texts are so long."""
BATCH, BATCHES, SKIPPED, TRIES = 5_000, 20, 10_000_000, 4
SCHEMA = ew.source("S", {"k": "int64", "text": "string"}).schema


def copies(names: str) -> dict[str, list[ElementBatch]]:
    """The same events in several orders, a second of them to a batch."""
    rng = np.random.default_rng(16)
    n = BATCH * BATCHES
    vs = np.arange(n) * 1_000 // RATE
    ve = vs + rng.integers(LIFETIME // 2, LIFETIME * 3 // 2, n)
    key = rng.integers(0, 400, n)
    texts = pa.array([f"{number:0{TEXT}d}" for number in range(400)])
    found = {}
    for name in names:
        arrival = vs + np.where(rng.random(n) < 0.2, rng.integers(0, LATE, n), 0)
        order = np.argsort(arrival, kind="stable")
        found[name] = [_batch(vs, ve, key, texts, order, first, name) for first in range(0, n, BATCH)]
    return found


def _batch(
    vs: np.ndarray, ve: np.ndarray, key: np.ndarray, texts: pa.Array, order: np.ndarray, first: int, name: str
) -> ElementBatch:
    """Elements with CTIs in between: the earliest start that is still to come."""
    picked = order[first : first + BATCH]
    coming = np.minimum.accumulate(vs[order[first:]][::-1])[::-1]
    ends = np.arange(EVERY, BATCH + 1, EVERY)
    ctis = np.append(coming, coming[-1])[ends]
    op, starts = np.insert(np.zeros(BATCH, np.uint8), ends, CTI), np.insert(vs[picked], ends, ctis)
    rows = np.insert(key[picked], ends, 0)
    columns = (pa.array(rows), texts.take(pa.array(rows)))
    return ElementBatch(
        SCHEMA, op, starts, np.insert(ve[picked], ends, 0), np.zeros(len(op), np.int64), columns, {}, name
    )


def _slow(k: int) -> int:
    return sum(range(k % 7, 60)) + k


QUERIES: dict[str, Callable[[ew.Stream], ew.Stream]] = {
    "source": lambda s: s,
    "sums": lambda s: s.group_by("text").agg(n=ew.count(), t=ew.sum("k")),
    "distinct": lambda s: s.distinct(),
    "udf": lambda s: s.select("k", y=ew.udf(_slow, ew.col("k"), type="int64")),
}


def skip(name: str) -> None:
    query = QUERIES[name](ew.source("S", SCHEMA))
    batches = copies("S")["S"]
    best = [float("inf")] * 2
    for _ in range(TRIES):
        for forward in (0, 1):
            runtime = LocalRuntime(query)
            runtime.push({"S": batches[0]})
            if forward:
                runtime.fast_forward(10**15)
            again = -(-SKIPPED // (BATCH * (BATCHES - 1))) if forward else 1
            began = time.process_time()
            for _ in range(again):
                for batch in batches[1:]:
                    if forward:  # elements in front of the source's own CTI, again and again
                        runtime._ingress.inputs["S"].intake.guard.cti = -(10**15)
                    runtime.push({"S": batch})
            best[forward] = min(best[forward], (time.process_time() - began) / (again * BATCH * (BATCHES - 1)))
    plain, skipped = (1e9 * each for each in best)
    report(
        "fast_forward", "everwhen-local", SKIPPED, best[1] * SKIPPED, case=f"skip, {name}", plain_ns=round(plain, 1),
        skipped_ns=round(skipped, 1), note=f"{skipped:.1f} ns to skip an element, {plain:.0f} ns to process it",
    )  # fmt: skip


def lag(policy: str, of: str) -> None:
    given = copies("abc")
    parts = [QUERIES[of](ew.source(name, SCHEMA)) for name in "abc"]
    query = ew.lmerge(*parts, policy=MergePolicy(leader=policy == "LEADER"))
    told = FixedDataflow.fast_forward
    total = 3 * BATCH * BATCHES
    best: dict[tuple[int, bool], float] = {}
    for _ in range(TRIES):
        for behind in range(6):
            for asks in (True, False):
                FixedDataflow.fast_forward = told if asks else lambda self, t=0: {}  # type: ignore[method-assign]
                runtime = LocalRuntime(query)
                began = time.process_time()
                for at in range(BATCHES + behind):
                    epoch = {"a": given["a"][at]} if at < BATCHES else {}
                    if at >= behind:
                        epoch |= {name: given[name][at - behind] for name in "bc"}
                    runtime.push(epoch)
                runtime.close()
                seconds = time.process_time() - began
                best[behind, asks] = min(best.get((behind, asks), seconds), seconds)
    FixedDataflow.fast_forward = told  # type: ignore[method-assign]
    for (behind, asks), seconds in best.items():
        word = "skipped" if asks else "read"
        report(
            "fast_forward", "everwhen-local", total, seconds, case=f"{policy} of {of}, {behind} s behind, {word}",
            note=f"{best[0, True] / seconds:.2f} times as fast as in step",
        )  # fmt: skip


if __name__ == "__main__":
    {"skip": skip, "lag": lag}[sys.argv[1]](*sys.argv[2:])

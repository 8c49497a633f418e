"""LAG, a RANGE and ASOF JOIN where many rows of one key live on: what an epoch costs by its size and by how many rows
there are.

    python bench/neighbours.py [ROWS …]

One row per tick and side, by time or in no order, that stay or are left out after a while.  The clock is the
processor's; it runs while `push` runs and at no other time, and the better of two runs counts.  A short stream has
compiled or loaded the loops before.
"""

from __future__ import annotations

import random
import sys
import time

import everwhen as ew
from everwhen.stream.element_batch import ElementBatch
from measure import report

RUNS = 2
WINDOW = 2_000

DECLARED = """CREATE STREAM S (k BIGINT, ts BIGINT, x BIGINT) INSERT ONLY;
CREATE STREAM L (k BIGINT, ts BIGINT) INSERT ONLY;"""
LAG = "SELECT x, LAG(x) OVER (PARTITION BY k ORDER BY {order}) AS p FROM S WINDOW({window})"
RANGE = """SELECT x, SUM(x) OVER (PARTITION BY k ORDER BY {order} RANGE BETWEEN {before} PRECEDING AND {behind}) AS s
           FROM S WINDOW({window})"""
ASOF = "SELECT l.ts, r.x FROM L WINDOW({window}) l ASOF JOIN S WINDOW({window}) r ON l.k = r.k AND l.ts >= r.ts"
STAY, LEAVE = "UNBOUNDED", f"RANGE {WINDOW}"
QUERIES = {
    "LAG by time, rows stay": LAG.format(order="ts", window=STAY),
    "LAG by value, rows stay": LAG.format(order="x", window=STAY),
    f"LAG by value, the last {WINDOW:,}": LAG.format(order="x", window=LEAVE),
    "RANGE by time, rows stay": RANGE.format(order="ts", before=10, behind="CURRENT ROW", window=STAY),
    f"RANGE by value, the last {WINDOW:,}": RANGE.format(order="x", before=500, behind="500 FOLLOWING", window=LEAVE),
    "ASOF JOIN, rows stay": ASOF.format(window=STAY),
    f"ASOF JOIN, the last {WINDOW:,}": ASOF.format(window=LEAVE),
}


def run(text: str, n: int, size: int) -> float:
    """Seconds of the processor for `n` rows a side in epochs of so many."""
    rng = random.Random(n)
    runtime = ew.LocalRuntime(ew.sql(DECLARED + text))
    given = []
    for first in range(0, n, size):
        ticks = range(first, min(first + size, n))
        rows = [ew.Insert(t, t + 1, {"k": 1, "ts": t, "x": rng.randrange(10**6)}) for t in ticks]
        epoch = {"S": ElementBatch.of(rows, ew.Schema.of([(c, "int64") for c in ("k", "ts", "x")]))}
        if "ASOF" in text:
            left = [ew.Insert(t, t + 1, {"k": 1, "ts": t}) for t in ticks]
            epoch["L"] = ElementBatch.of(left, ew.Schema.of([(c, "int64") for c in ("k", "ts")]))
        given.append(epoch)
    worked = time.process_time()
    for epoch in given:
        runtime.push(epoch)
    return time.process_time() - worked


def main(*rows: int) -> None:
    for name, text in QUERIES.items():
        for size in (1, 1_000):
            run(text, 20 * size, size)
            for n in rows or (2_000, 8_000):
                seconds = min(run(text, n, size) for _ in range(RUNS))
                case = f"{name}, epochs of {size:,}"
                report("neighbours", "everwhen-local", n, seconds, case=case, per_row_us=round(1e6 * seconds / n))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

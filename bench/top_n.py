"""Top-N in process: the best bids per auction (NEXMark q19), and the best of the last hour, with promises and without.

    python bench/top_n.py [BIDS] [BATCH]

The clock runs while `push` runs and at no other time; the better of two runs counts.  A short stream has compiled or
loaded the loops before.  Beside it DuckDB answers the first query once, over the table of all bids: what a batch system
does to know the last snapshot.
"""

from __future__ import annotations

import sys
import time

import duckdb
import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.stream.element_batch import ElementBatch
from measure import report

RUNS = 2

DECLARED = "CREATE STREAM Bid (auction BIGINT, bidder BIGINT, price BIGINT) INSERT ONLY;"
TOP_10 = """SELECT * FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, bidder) AS n FROM {bids}
) x WHERE n <= 10"""
QUERIES = {
    "top 10 per auction, bids stay": TOP_10.format(bids="Bid WINDOW(UNBOUNDED)"),
    "top 10 per auction, an hour": TOP_10.format(bids="Bid WINDOW(RANGE 3600)"),
    "top 3 of all, an hour": "SELECT * FROM Bid WINDOW(RANGE 3600) ORDER BY price DESC, bidder LIMIT 3",
    "top 3 auctions by bids, an hour": "SELECT auction, COUNT(*) AS n FROM Bid WINDOW(RANGE 3600) GROUP BY auction "
    "ORDER BY n DESC, auction LIMIT 3",
    "last bid per bidder, bids stay": "SELECT DISTINCT ON (bidder) * FROM Bid WINDOW(UNBOUNDED) ORDER BY bidder, price",
    "mean of three, an hour": "SELECT auction, AVG(price) OVER (PARTITION BY auction ORDER BY price, bidder ROWS "
    "BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM Bid WINDOW(RANGE 3600)",
}


def bids(n: int, seed: int = 7) -> tuple[np.ndarray, ...]:
    """One bid per tick: auctions are open for a while, one of them is hot."""
    rng = np.random.default_rng(seed)
    auction = np.arange(n) // 500 + rng.integers(0, 50, n)
    auction = np.where(rng.random(n) < 0.2, np.arange(n) // 5_000 * 5_000, auction)
    return auction, rng.integers(0, 1_000, n), rng.integers(1, 1_000_000, n)


def batches(columns: tuple[np.ndarray, ...], size: int, promises: bool) -> list[ElementBatch]:
    schema = ew.Schema.of([(name, pa.int64()) for name in ("auction", "bidder", "price")])
    found = []
    for first in range(0, len(columns[0]), size):
        part = [column[first : first + size] for column in columns]
        vs = np.arange(first, first + len(part[0]))
        op = np.full(len(vs), ElementBatch.INSERT, np.uint8)
        rows = tuple(pa.array(column) for column in part)
        if promises:
            vs, op = np.append(vs, vs[-1] + 1), np.append(op, np.uint8(ElementBatch.CTI))
            rows = tuple(pa.concat_arrays([row, pa.nulls(1, row.type)]) for row in rows)
        found.append(ElementBatch(schema, op, vs, vs + 1, np.zeros(len(vs), np.int64), rows))
    return found


def run(text: str, given: list[ElementBatch]) -> tuple[float, float, int]:
    """Seconds, seconds of the processor, and elements said."""
    runtime = ew.LocalRuntime(ew.sql(DECLARED + text))
    said = 0
    start, worked = time.perf_counter(), time.process_time()
    for batch in given:
        said += sum(len(out) for out in runtime.push({"Bid": batch}).values())
    return time.perf_counter() - start, time.process_time() - worked, said


def once_in_duckdb(columns: tuple[np.ndarray, ...]) -> float:
    """Seconds for the last snapshot of the first query."""
    connection = duckdb.connect(config={"threads": 1})
    names = ("auction", "bidder", "price")
    connection.register("Bid", pa.table(dict(zip(names, map(pa.array, columns), strict=True))))
    start = time.perf_counter()
    connection.sql(TOP_10.format(bids="Bid")).to_arrow_table()
    return time.perf_counter() - start


def main(n: int = 158_000, batch: int = 10_000) -> None:
    columns = bids(n)
    for name, text in QUERIES.items():
        for promises in (True, False):
            run(text, batches(bids(5_000), 1_000, promises))
            given = batches(columns, batch, promises)
            seconds, worked, said = min((run(text, given) for _ in range(RUNS)), key=lambda run: run[1])
            case = f"{name}, {'a CTI per batch' if promises else 'no promises'}"
            note = f"{case}; {n:,} bids; {n / worked:,.0f}/s of processor time; {said:,} elements"
            report("top_n", "everwhen-local", n, seconds, case=case, per_processor_s=round(n / worked), note=note)
    report("top_n", "duckdb", n, once_in_duckdb(columns), case="once", note="the top 10 of the last snapshot, once")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

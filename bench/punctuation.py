"""Punctuation, measured: the figures of section 7.3 of Tucker et al. with our engine, and what punctuation costs.

    python bench/punctuation.py state RATE         Figure 2a: rows that the union keeps as reports arrive
    python bench/punctuation.py rates              Figure 2b: time to the first answer and in all, 0 to 30 an hour
    python bench/punctuation.py cost QUERY         the same stream with and without 1 punctuation per 1,000 rows
    python bench/punctuation.py auction BIDS       closing prices: what is kept, and the memory of the process

The warehouse runs as its text says: rewriting would see that doubles do not change a maximum.  Times are processor
times of `push` alone, the best of several runs, taken in turn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import INSERT, PUNCT, ElementBatch, batch_of, joined
from measure import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from scenarios.auctions import AUCTION, Auctions
from scenarios.embedding import embedded
from scenarios.warehouse import WAREHOUSE, warehouse

HOURS, REPORTS, BATCH = 60, 3_600, 1_000
RATES = (0, 1, 2, 4, 6, 10, 15, 20, 30)
TRIES = 9
ROWS, EVERY = 1_000_000, 1_000
Epoch = Mapping[str, ElementBatch]


def pushed(query: ew.Stream, level: ew.Consistency, epochs: Sequence[Epoch]) -> tuple[float, float, int]:
    """Seconds to the first answer and in all, the end included, and how many answers there were."""
    runtime = LocalRuntime(query, consistency=level)
    seconds, first, said = 0.0, None, 0
    for epoch in (*epochs, None):
        began = time.process_time()
        out = runtime.close() if epoch is None else runtime.push(epoch)
        seconds += time.process_time() - began
        said += int((out["out"].op == INSERT).sum())
        first = seconds if said and first is None else first
    return first if first is not None else seconds, seconds, said


def least(query: ew.Stream, level: ew.Consistency, streams: Sequence[Sequence[Epoch]]) -> list[list[float]]:
    """The least seconds of each epoch of some streams, epoch by epoch in turn: the machine is the same to all."""
    best = [[float("inf")] * (len(epochs) + 1) for epochs in streams]
    for at in range(TRIES + 1):
        runtimes = [LocalRuntime(query, consistency=level) for _ in streams]
        for i, epoch in enumerate(zip(*((*epochs, None) for epochs in streams), strict=True)):
            for stream, runtime in enumerate(runtimes):
                given = epoch[stream]
                began = time.process_time()
                out = runtime.close() if given is None else runtime.push(given)
                seconds = time.process_time() - began
                del out
                if at:  # the first time is to warm up
                    best[stream][i] = min(best[stream][i], seconds)
    return best


# -- section 7.3 -------------------------------------------------------------------------------------------------------


def state(rate: str) -> None:
    """Figure 2a."""
    query = ew.sql(WAREHOUSE, optimize=False)
    runtime = LocalRuntime(query, consistency=ew.STRONG)
    names = [operator.name.partition(" ")[2] for operator in runtime.metadata()]
    union = names.index("distinct")
    points, rows, seconds = [], 0, 0.0
    for epoch in warehouse(HOURS, REPORTS, int(rate), BATCH):
        began = time.process_time()
        runtime.push(epoch)
        seconds += time.process_time() - began
        rows += _rows(epoch)
        points.append((rows, runtime.metadata()[union].state_rows))
    report(
        "punctuation", "everwhen-local", rows, seconds, case=f"state, {rate} an hour", points=points,
        note=f"the union keeps {max(kept for _, kept in points):,} rows at most, {points[-1][1]:,} in the end",
    )  # fmt: skip


def rates() -> None:
    """Figure 2b."""
    query = ew.sql(WAREHOUSE, optimize=False)
    streams = {rate: list(warehouse(HOURS, REPORTS, rate, BATCH)) for rate in RATES}
    pushed(query, ew.STRONG, streams[30][:20])
    best = dict.fromkeys(RATES, (float("inf"), float("inf")))
    for _ in range(TRIES):
        for rate, epochs in streams.items():
            first, total, _ = pushed(query, ew.STRONG, epochs)
            best[rate] = min(best[rate][0], first), min(best[rate][1], total)
    rows = sum(map(_rows, streams[0]))
    points = [(rate, round(1e3 * first, 2), round(1e3 * total, 2)) for rate, (first, total) in best.items()]
    report(
        "punctuation", "everwhen-local", rows, best[1][1], case="rates", points=points,
        note=f"first answer after {points[0][1]:,.0f} ms without, {points[1][1]:,.0f} ms with one an hour; in all "
        f"{points[0][2]:,.0f} ms without, {points[1][2]:,.0f} with one, {points[-1][2]:,.0f} with 30",
    )  # fmt: skip


# -- what it costs -----------------------------------------------------------------------------------------------------


def cost(name: str) -> None:
    query, level, epochs = COSTS[name]()
    bare = [{source: _without(batch) for source, batch in epoch.items()} for epoch in epochs]
    rows = sum(map(_rows, epochs))
    said = sum(int((batch.op == PUNCT).sum()) for epoch in epochs for batch in epoch.values())
    without, with_ = map(sum, least(query, level, [bare, epochs]))
    report(
        "punctuation", "everwhen-local", rows, with_, case=f"cost, {name}", punctuations=said,
        without_s=round(without, 4), cost=round(with_ / without - 1, 4),
        note=f"{100 * (with_ / without - 1):+.1f} % time with {1e3 * said / rows:.2f} punctuations per 1,000 rows",
    )  # fmt: skip


def _warehouse() -> tuple[ew.Stream, ew.Consistency, list[Epoch]]:
    """One an hour of 1,000 reports."""
    return ew.sql(WAREHOUSE, optimize=False), ew.STRONG, list(warehouse(ROWS // 2_000, EVERY, 1, 10_000))


def _auction() -> tuple[ew.Stream, ew.Consistency, list[Epoch]]:
    """A closed auction per 1,000 bids; without, the state grows."""
    return ew.sql(AUCTION), ew.STRONG, list(Auctions(ROWS, at_once=1_000, each=EVERY))


def _auction_steady() -> tuple[ew.Stream, ew.Consistency, list[Epoch]]:
    """The same, 1 per 1,000 bids in all: the auctions that are open in the end stay so."""
    return ew.sql(AUCTION), ew.STRONG, list(Auctions(ROWS, at_once=1_000, each=EVERY, steady=True))


def _filter() -> tuple[ew.Stream, ew.Consistency, list[Epoch]]:
    """Serial numbers that rise: what is below is over."""
    source = _events()
    return source.where(ew.col("x") > 3).select("k", "n", y=ew.col("x") * 2), ew.MIDDLE, _in_order("n")


def _tumbling_sum() -> tuple[ew.Stream, ew.Consistency, list[Epoch]]:
    """A key says that it has come so far as it has, a little before the CTI does."""
    source = _events()
    return source.range(60, slide=60).group_by("k").agg(total=ew.sum("x")), ew.STRONG, _in_order("k")


def _events() -> ew.Stream:
    return ew.source("S", {"k": "int64", "x": "int64", "n": "int64"}, insert_only=True, chronons=True)


def _in_order(about: str) -> list[Epoch]:
    schema = Schema.of([("k", pa.int64()), ("x", pa.int64()), ("n", pa.int64())])
    random = np.random.default_rng(7)
    epochs: list[Epoch] = []
    for first in range(0, ROWS, 10_000):
        n = np.arange(first, first + 10_000)
        starts = n // 100
        columns = [pa.array(random.integers(0, 1_000, 10_000)), pa.array(random.integers(0, 9, 10_000)), pa.array(n)]
        promises = []
        for at in range(EVERY, 10_001, EVERY):
            if about == "n":
                promises.append((at, Punctuation({"n": Range(lt=first + at)})))
            else:
                key = int(random.integers(0, 1_000))
                promises.append((at, Punctuation({"k": OneOf((key,))}, int(starts[at - 1]))))
        batch = embedded(schema, starts, columns, promises, starts + 1)
        epochs.append({"S": joined(batch, batch_of([Cti(int(starts[-1]))], schema))})
    return epochs


COSTS: dict[str, Callable[[], tuple[ew.Stream, ew.Consistency, list[Epoch]]]] = {
    "warehouse": _warehouse,
    "filter": _filter,
    "tumbling_sum": _tumbling_sum,
    "auction": _auction,
    "auction_steady": _auction_steady,
}


def _without(batch: ElementBatch) -> ElementBatch:
    """The batch without punctuation."""
    kept = np.flatnonzero(batch.op != PUNCT)
    columns = tuple(column.take(pa.array(kept)) for column in batch.columns)
    op, vs, ve, vnew = (times[kept] for times in (batch.op, batch.vs, batch.ve, batch.vnew))
    return replace(batch, op=op, vs=vs, ve=ve, vnew=vnew, columns=columns, promises={})


def _rows(epoch: Epoch) -> int:
    return sum(int((batch.op == INSERT).sum()) for batch in epoch.values())


# -- the auction -------------------------------------------------------------------------------------------------------


def auction(bids: str) -> None:
    query = ew.sql(AUCTION)
    pushed(query, ew.STRONG, list(Auctions(30_000)))
    auctions = Auctions(int(bids))
    runtime = LocalRuntime(query, consistency=ew.STRONG)
    seconds, rows, right, items = 0.0, 0, 0, 0
    points: list[tuple[int, int, int, float]] = []
    for number, epoch in enumerate(auctions):
        began = time.process_time()
        said = runtime.push(epoch)["out"]
        seconds += time.process_time() - began
        rows += _rows(epoch)
        right += _right(said, auctions.prices)
        items += len(auctions.prices)
        auctions.prices.clear()
        if number % max(1, int(bids) // 10_000 // 50) == 0:
            size = runtime.state_size()
            points.append((rows, size.rows, round(size.bytes / 1e6, 2), round(_rss_mb(), 1)))
    left = runtime.state_size().rows
    assert right == items, f"{right} of {items} closing prices are right"
    most = max(point[1] for point in points)
    report(
        "punctuation", "everwhen-local", rows, seconds, case="auction", points=points, items=items, left=left,
        note=f"{items:,} closing prices, all exact; {most:,} rows of state at most, {left} in the end; "
        f"rss {points[len(points) // 10][3]:,.0f} MB after a tenth, {points[-1][3]:,.0f} MB in the end",
    )  # fmt: skip


def _right(said: ElementBatch, prices: Mapping[int, int]) -> int:
    rows = np.flatnonzero(said.op == INSERT)
    items, found = (column.take(pa.array(rows)).to_pylist() for column in said.columns)
    return sum(prices.get(item) == price for item, price in zip(items, found, strict=True))


def _rss_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


WORKS: dict[str, Callable[..., None]] = {"state": state, "rates": rates, "cost": cost, "auction": auction}


def main(words: Iterable[str]) -> None:
    work, *arguments = words
    WORKS[work](*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])

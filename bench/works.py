"""What Everwhen is measured on: one query per work, driven batch by batch in process.

    python bench/works.py WORK [EMIT]

The clock runs while `push` runs and at no other time: making the data is not counted.  A short stream has compiled or
loaded the kernels before.  The measured runtime starts empty, sees the whole stream, and is closed, so that its
`checksum` (the sum over all result events of their weight times their duration, modulo 2**64) can be compared with that
of a one-shot peer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

import data
import everwhen as ew
from data import SHAPES, Shape
from everwhen.algebra.nodes import Source, walk
from everwhen.core.time import INF
from everwhen.demo.nexmark import NexmarkConfig, generate, queries
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch
from measure import RUNS, peak_rss_mb, percentile, report

Inputs = Mapping[str, ElementBatch]
EVENTS = SHAPES["events"]
NEXMARK = NexmarkConfig(
    rate=1_000, auction_length=20_000, hot_item_every=50, late=0.20, lateness=1_000, corrections=0.05, duplicates=0.01
)
INTERVALS = replace(EVENTS, events=300_000, lifetime=60)


def source(name: str = "S") -> ew.Stream:
    return ew.source(name, data.SCHEMA)


def sliding(width: int, slide: int = 1) -> Callable[[], ew.Stream]:
    """The sum per key over the last `width` ticks, at every instant (or every `slide`)."""
    return lambda: source().range(width, slide).group_by("key").agg(value=ew.sum("value"))


def filter_map() -> ew.Stream:
    kept = source().where((ew.col("value") >= 500) & (ew.col("key") != "key-000001"))
    return kept.select("key", value=ew.col("value") * 2 + 1)


def min_max() -> ew.Stream:
    return source().range(60).group_by("key").agg(lo=ew.min("value"), hi=ew.max("value"))


def count_distinct() -> ew.Stream:
    return source().range(60).group_by("key").agg(value=ew.count_distinct("value"))


def median() -> ew.Stream:
    return source().range(60).group_by("key").agg(value=ew.median("value"))


def distinct() -> ew.Stream:
    return source().select("key").range(60).distinct()


def difference() -> ew.Stream:
    return source("L").select("key").difference(source("R").select("key"))


def interval_join() -> ew.Stream:
    return source("L").join(source("R"), on="key")


def live_sum() -> ew.Stream:
    return source().group_by("key").agg(value=ew.sum("value"))


@dataclass(frozen=True)
class Work:
    """A query, the streams it reads, and the columns whose sum is a result's weight (none: weight 1)."""

    query: Callable[[], ew.Stream]
    shapes: Mapping[str, Shape] = field(default_factory=lambda: {"S": EVENTS})
    weight: tuple[str, ...] | None = ("value",)


SIDES = {"L": SHAPES["left"], "R": SHAPES["right"]}
WORKS = {
    "filter_map": Work(filter_map),
    "tumbling_sum": Work(sliding(60, 60)),
    "sliding_sum": Work(sliding(60)),
    "sliding_sum_100k": Work(sliding(60_000_000), {"S": SHAPES["events_100k"]}),
    "min_max": Work(min_max, weight=None),
    "count_distinct": Work(count_distinct),
    "median": Work(median, weight=None),
    "distinct": Work(distinct, weight=()),
    "difference": Work(difference, SIDES, weight=()),
    "interval_join": Work(interval_join, SIDES, weight=("value", "value_right")),
}


@dataclass
class Tally:
    """What came out and how long it took."""

    seconds: float = 0.0
    events: int = 0
    results: int = 0
    checksum: int = 0
    pushes: list[float] = field(default_factory=list)

    def latency(self, unit: float = 1e3) -> dict[str, float]:
        """Milliseconds from handing a batch in to having its results (other units on request)."""
        name = "ms" if unit == 1e3 else "us"
        return {
            f"latency_p50_{name}": round(percentile(self.pushes, 0.50) * unit, 3),
            f"latency_p99_{name}": round(percentile(self.pushes, 0.99) * unit, 3),
        }


def run(query: ew.Stream, inputs: Iterable[Inputs], emit: str, weight: tuple[str, ...] | None = None) -> Tally:
    """Drive a query through its whole input."""
    runtime = LocalRuntime({"out": query}, emit=emit)
    tally = Tally()
    for given in inputs:
        began = time.perf_counter()
        out = runtime.push(given)["out"]
        took = time.perf_counter() - began
        tally.pushes.append(took)
        tally.seconds += took
        tally.events += sum(int(np.count_nonzero(batch.op < CTI)) for batch in given.values())
        _take(tally, out, weight)
    began = time.perf_counter()
    rest = runtime.close()["out"]
    tally.seconds += time.perf_counter() - began
    _take(tally, rest, weight)
    return tally


def _take(tally: Tally, out: ElementBatch, weight: tuple[str, ...] | None) -> None:
    tally.results += int(np.count_nonzero(out.op < CTI))
    if weight is None:
        return
    # An open end is infinite at first and adjusted later: in arithmetic modulo 2**64 that cancels exactly.
    change = np.where(out.op == INSERT, out.ve - out.vs, np.where(out.op == ADJUST, out.vnew - out.ve, 0))
    if weight:
        columns = [out.columns[out.schema.index(name)] for name in weight]
        change = change * sum(column.fill_null(0).to_numpy(zero_copy_only=False) for column in columns)
    tally.checksum = (tally.checksum + int(change.sum())) % 2**64


def streams(shapes: Mapping[str, Shape]) -> Iterator[Inputs]:
    """The batches of all inputs, side by side."""
    made = {name: data.batches(shape) for name, shape in shapes.items()}
    while given := {name: batch for name, stream in made.items() if (batch := next(stream, None)) is not None}:
        yield given


def warm_up(work: Work, emit: str) -> None:
    run(work.query(), streams({name: replace(shape, events=30_000) for name, shape in work.shapes.items()}), emit)


def plain(name: str, emit: str) -> None:
    """A work of the table: throughput, memory, latency per batch of 10,000."""
    work = WORKS[name]
    warm_up(work, emit)
    loaded = peak_rss_mb()
    # The best of some, as for the peers: the machine may be busy with other things.
    runs = [run(work.query(), streams(work.shapes), emit, work.weight) for _ in range(RUNS)]
    tally = min(runs, key=lambda each: each.seconds)
    report(
        name,
        "everwhen-local" if emit == "current" else f"everwhen-local:{emit}",
        tally.events,
        tally.seconds,
        **tally.latency(),
        results=tally.results,
        checksum=None if work.weight is None else tally.checksum,
        loaded_rss_mb=round(loaded, 1),
    )


def single_element(emit: str) -> None:
    """One element per push through window, group and sum; the CTIs come as pushes of their own."""
    work = Work(sliding(60), {"S": replace(EVENTS, events=20_000, batch=100)})
    warm_up(work, emit)
    ones = [{"S": given["S"].slice(i, 1)} for given in streams(work.shapes) for i in range(len(given["S"]))]
    tally = run(work.query(), ones, emit)
    note = "pushes of one element"
    report("single_element", "everwhen-local", tally.events, tally.seconds, **tally.latency(1e6), note=note)


def idle_batches(keys: int) -> Iterator[Inputs]:
    """Events without an end, one per key, before anything else."""
    for first in range(0, keys, 100_000):
        n = min(100_000, keys - first)
        columns = (pa.array([f"idle-{first + i:07d}" for i in range(n)]), pa.array(np.ones(n, np.int64)))
        zeros = np.zeros(n, np.int64)
        op, vs, ve = np.full(n, INSERT, np.uint8), np.full(n, 1, np.int64), np.full(n, INF, np.int64)
        yield {"S": ElementBatch(data.SCHEMA, op, vs, ve, zeros, columns)}


def idle_keys(emit: str, idle: int) -> None:
    """The cost of an event on 1,000 active keys beside `idle` ones that are alive for ever and get nothing."""
    work = Work(live_sum, {"S": INTERVALS})
    warm_up(work, emit)
    runtime = LocalRuntime({"out": work.query()}, emit=emit)
    for given in idle_batches(idle):
        runtime.push(given)
    tally = Tally()
    for given in streams(work.shapes):
        began = time.perf_counter()
        runtime.push(given)
        tally.pushes.append(time.perf_counter() - began)
        tally.events += int(np.count_nonzero(given["S"].op < CTI))
    # The median batch: the first one pays for what the idle keys left to do, and a busy machine disturbs a few.
    cost = percentile(tally.pushes, 0.5) * len(tally.pushes) / tally.events
    nanoseconds = round(cost * 1e9)
    report(
        "idle_keys",
        "everwhen-local",
        tally.events,
        cost * tally.events,
        **tally.latency(),
        case=idle,
        ns_per_event=nanoseconds,
        note=f"{idle:,} idle keys: {nanoseconds:,} ns per event",
    )


def memory(emit: str, events: int) -> None:
    """The same sliding sum for longer: the peak must not grow with the length of the stream."""
    work = Work(sliding(60), {"S": replace(EVENTS, events=events)})
    warm_up(work, emit)
    tally = run(work.query(), streams(work.shapes), emit)
    note = f"{events:,} events"
    report("memory", "everwhen-local", tally.events, tally.seconds, **tally.latency(), case=events, note=note)


def nexmark_queries() -> dict[str, ew.Stream]:
    """The thesis's queries with windows of ten seconds instead of hours, for a run of minutes."""
    longest = NEXMARK.auction_length
    return {
        "q1": queries.currency_conversion(),
        "q2": queries.selection(),
        "q3": queries.short_auctions("5 s"),
        "q4": queries.highest_bid("10 s"),
        "q5": queries.closing_price(longest),
        "q6": queries.hot_items("10 s"),
        "q7": queries.average_selling_price(10, longest),
        "q8": queries.new_sellers("10 s"),
        "q9": queries.highest_bid_tumbling("10 s"),
    }


def nexmark(emit: str, name: str) -> None:
    """One NEXMark query on late, wrong and doubled bids; events are those of the streams that it reads."""
    query = nexmark_queries()[name]
    read = {node.name for node in walk(query.node) if isinstance(node, Source)}

    def inputs(events: int) -> Iterator[Inputs]:
        for epoch in generate(NEXMARK, events):
            yield {source: batch for source, batch in epoch.items() if source in read}

    # "No item has more bids" compares every pair of counts: a shorter run, so that the whole bench stays short.
    events = 10_000 if name == "q6" else 200_000
    run(query, inputs(events // 10), emit)
    tally = run(query, inputs(events), emit)
    note = f"{name}: {getattr(queries.QUERIES[name], '__name__', name).replace('_', ' ')}, {events:,} events"
    report(
        "nexmark",
        "everwhen-local",
        tally.events,
        tally.seconds,
        **tally.latency(),
        results=tally.results,
        case=name,
        note=note,
    )


def main(name: str, emit: str = "current", case: str = "0") -> None:
    match name:
        case "single_element":
            single_element(emit)
        case "idle_keys":
            idle_keys(emit, int(case))
        case "memory":
            memory(emit, int(case))
        case "nexmark":
            nexmark(emit, case)
        case _ if name in WORKS:
            plain(name, emit)
        case _:
            raise SystemExit(f"unknown work {name!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])

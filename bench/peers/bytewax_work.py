"""Bytewax: the same keyed window folds, in its own virtualenv, at steady state.

Bytewax has no retractions, so it is given the inserts alone, as Python objects that are ready before the clock starts.
Its clock waits as long as the stream may be late, so nothing is dropped.  The rate is taken between two marks in the
source, after a fifth of the events have warmed it up, up to the end of the dataflow.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.operators.windowing import EventClock, SlidingWindower, TumblingWindower
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import RUNS, report

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
Event = tuple[str, tuple[datetime, int]]


class Counted(StatelessSinkPartition[Any]):
    """Takes everything and counts it."""

    taken = 0

    def write_batch(self, items: list[Any]) -> None:
        Counted.taken += len(items)


class Counter(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counted:
        return Counted()


class Marked(list[Event]):
    """The events; reading the one after the warm-up starts the clock."""

    def __init__(self, events: list[Event], warm_up: int) -> None:
        super().__init__(events)
        self.warm_up = warm_up
        self.started = 0.0

    def __iter__(self) -> Any:
        yield from self[: self.warm_up]
        self.started = time.perf_counter()
        yield from self[self.warm_up :]


def read(path: Path, ticks: int) -> list[Event]:
    """The events, with so many ticks to a second."""
    events: list[Event] = []
    for line in path.read_text(encoding="ascii").splitlines():
        key, vs, value = line.split(",")
        events.append((key, (EPOCH + timedelta(microseconds=int(vs) * 1_000_000 // ticks), int(value))))
    return events


def windowed(flow: Dataflow, source: TestingSource[Event], windower: Any, start: Any, fold: Callable[..., Any]) -> None:
    events = op.input("in", flow, source)
    clock = EventClock(ts_getter=lambda pair: pair[0], wait_for_system_duration=timedelta(seconds=30))
    # A sum does not ask for order; without it Bytewax need not queue and sort, which is its faster way.
    folded = windowing.fold_window("fold", events, clock, windower, start, fold, lambda a, b: a, ordered=False)
    op.output("out", folded.down, Counter())


def add(total: int, pair: tuple[datetime, int]) -> int:
    return total + pair[1]


def low_high(bounds: tuple[int, int], pair: tuple[datetime, int]) -> tuple[int, int]:
    return min(bounds[0], pair[1]), max(bounds[1], pair[1])


def filter_map(flow: Dataflow, source: TestingSource[Event]) -> None:
    events = op.input("in", flow, source)
    kept = op.filter("filter", events, lambda event: event[1][1] >= 500 and event[0] != "key-000001")
    mapped = op.map("map", kept, lambda event: (event[0], event[1][1], event[1][1] * 2 + 1))
    op.output("out", mapped, Counter())


def main(work: str, directory: Path) -> None:
    name, ticks = ("inserts_100k", 1_000_000) if work == "sliding_sum_100k" else ("inserts", 1)
    events = read(directory / f"{name}.csv", ticks)
    seconds, results = min(timed(work, events) for _ in range(RUNS))
    note = "60 by 10" if work in ("sliding_sum", "sliding_sum_100k", "min_max") else ""
    report(work, "bytewax", len(events) - len(events) // 5, seconds, results=results, note=note)


def timed(work: str, events: list[Event]) -> tuple[float, int]:
    Counted.taken = 0
    marked = Marked(events, len(events) // 5)
    source = TestingSource(marked, batch_size=10_000)
    sliding = SlidingWindower(length=MINUTE, offset=timedelta(seconds=10), align_to=EPOCH)
    flow = Dataflow(work)
    match work:
        case "tumbling_sum":
            windowed(flow, source, TumblingWindower(length=MINUTE, align_to=EPOCH), int, add)
        case "sliding_sum" | "sliding_sum_100k":
            windowed(flow, source, sliding, int, add)
        case "min_max":
            windowed(flow, source, sliding, lambda: (1_000, -1), low_high)
        case "filter_map":
            filter_map(flow, source)
        case _:
            raise SystemExit(f"no Bytewax form of {work!r}")
    run_main(flow)
    return time.perf_counter() - marked.started, Counted.taken


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

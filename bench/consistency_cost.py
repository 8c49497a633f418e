"""What a level of consistency costs: the same work in order and out of order, with Align and Finalize and without.

    python bench/consistency_cost.py WORK

Wanted: `middle` over a stream of which 20 % is late at least half as fast as over one in order; Align and Finalize
together at most 25 % dearer than neither, in order.  CPU time inside `push`, the best of several runs, which alternate
so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import data
import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import CTI
from measure import report
from works import EVENTS, SIDES, Inputs, Work, interval_join, live_sum, sliding, streams

EACH, RUNS, LATENESS = 200_000, 7, 30
ALIGNED = ew.consistency(LATENESS, LATENESS)


def _insert_only(query: Callable[[ew.Stream], ew.Stream]) -> Callable[[], ew.Stream]:
    return lambda: query(ew.source("S", data.SCHEMA, insert_only=True))


def _tumbling(s: ew.Stream) -> ew.Stream:
    return s.range(60, 60).group_by("key").agg(value=ew.sum("value"))


WORKS = {
    "tumbling_sum": Work(sliding(60, 60)),
    "tumbling_sum, insert only": Work(_insert_only(_tumbling)),
    "sliding_sum": Work(sliding(60)),
    "live_sum": Work(live_sum, {"S": replace(EVENTS, lifetime=60)}),
    "interval_join": Work(interval_join, SIDES),
}


@dataclass(frozen=True)
class Case:
    name: str
    late: float
    corrected: float
    level: ew.Consistency


CASES = (
    Case("in order, middle", 0.0, 0.0, ew.MIDDLE),
    Case("20 % late, middle", 0.2, 0.0, ew.MIDDLE),
    Case("20 % late, 5 % corrected, middle", 0.2, 0.05, ew.MIDDLE),
    Case("in order, Finalize", 0.0, 0.0, ew.consistency(0, LATENESS)),
    Case("in order, Align and Finalize", 0.0, 0.0, ALIGNED),
    Case("20 % late, Align and Finalize", 0.2, 0.0, ALIGNED),
)


def seconds(query: ew.Stream, given: list[Inputs], level: ew.Consistency) -> float:
    runtime, took = LocalRuntime({"out": query}, consistency=level), 0.0
    for epoch in given:
        began = time.process_time()
        runtime.push(epoch)
        took += time.process_time() - began
    began = time.process_time()
    runtime.close()
    return took + time.process_time() - began


def main(name: str) -> None:
    work = WORKS[name]
    made: dict[tuple[float, float], list[Inputs]] = {}
    cases = [case for case in CASES if not (case.corrected and name.endswith("insert only"))]
    for case in cases:
        shapes = {
            source: replace(shape, events=EACH, late=case.late, corrected=case.corrected, lateness=LATENESS)
            for source, shape in work.shapes.items()
        }
        made.setdefault((case.late, case.corrected), list(streams(shapes)))
    best = {case.name: float("inf") for case in cases}
    for turn in range(RUNS + 1):
        for case in cases:
            given = made[case.late, case.corrected]
            took = seconds(work.query(), given[:3] if turn == 0 else given, case.level)
            if turn:  # the first turn has compiled or loaded the kernels
                best[case.name] = min(best[case.name], took)
    elements = {
        key: sum(int((batch.op < CTI).sum()) for epoch in given for batch in epoch.values())
        for key, given in made.items()
    }
    base = best[cases[0].name] / elements[0.0, 0.0]
    for case in cases:
        n = elements[case.late, case.corrected]
        cost = best[case.name] / n / base
        more = {"case": name, "level": case.name, "cost": round(cost, 3), "note": f"{name}, {case.name}: {cost:.2f}"}
        report("consistency", "everwhen-local", n, best[case.name], **more)


if __name__ == "__main__":
    main(sys.argv[1])

"""Total work against n log n + m (the CEDR paper, section 3): n elements in, m elements out.

    python bench/complexity.py n SHAPE        n = 10^4 … 10^6 at fixed disorder; the exponent of a power of n is fitted
    python bench/complexity.py disorder SHAPE growing disorder at fixed n; time is fitted to a·n·log n + b·m

Time is CPU time of the process inside `push`, the best of several runs.  Batches are small, 1,000 elements, so that a
correction reaches behind what has been said.  SHAPE is a query, and whether the stream has promises: without any, state
grows with n, which is the general case of the paper; with them it is bounded by the disorder.

A join also counts the entries that it looks at, which tells work from the time that memory takes.  That count is set
against n·log₂ n + m itself, with no factor.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

import data
import everwhen as ew
from data import Shape
from everwhen.engine.local import LocalRuntime
from everwhen.operators.join.join import JoinOperator
from everwhen.stream.element_batch import CTI, ElementBatch
from measure import report

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
LATENESS = (1, 10, 100, 300, 1_000, 3_000)
AT_N = 100_000
BASE = Shape(events=SIZES[0], keys=1_000, per_tick=10, late=0.20, lateness=30, corrected=0.05, batch=1_000, lifetime=60)


def total() -> ew.Stream:
    """The paper's operator: one sum over all that is alive."""
    return ew.source("S", data.SCHEMA).aggregate(value=ew.sum("value"))


def per_key() -> ew.Stream:
    return ew.source("S", data.SCHEMA).group_by("key").agg(value=ew.sum("value"))


def join() -> ew.Stream:
    return ew.source("S", data.SCHEMA).join(ew.source("T", data.SCHEMA), on="key")


def extremes() -> ew.Stream:
    return ew.source("S", data.SCHEMA).group_by("key").agg(low=ew.min("value"), high=ew.max("value"))


def values() -> ew.Stream:
    """Answers that need the values as they are."""
    return ew.source("S", data.SCHEMA).group_by("key").agg(n=ew.count_distinct("value"), middle=ew.median("value"))


def values_of_all() -> ew.Stream:
    """The same of one group that only grows."""
    rows = ew.source("S", data.SCHEMA).unbounded()
    return rows.aggregate(n=ew.count_distinct("value"), middle=ew.median("value"))


@dataclass(frozen=True)
class Case:
    query: Callable[[], ew.Stream]
    inputs: tuple[str, ...] = ("S",)
    promises: bool = True


CASES = {
    "total": Case(total),
    "total, no promises": Case(total, promises=False),
    "per key": Case(per_key),
    "per key, no promises": Case(per_key, promises=False),
    "min and max": Case(extremes),
    "min and max, no promises": Case(extremes, promises=False),
    "values": Case(values),
    "values, no promises": Case(values, promises=False),
    "values of all, no promises": Case(values_of_all, promises=False),
    "join": Case(join, ("S", "T")),
}

Epochs = list[dict[str, ElementBatch]]


def epochs(case: Case, shape: Shape) -> Epochs:
    streams = [list(data.batches(replace(shape, seed=shape.seed + i))) for i, _ in enumerate(case.inputs)]
    if not case.promises:
        streams = [[batch.slice(0, int((batch.op < CTI).sum())) for batch in stream] for stream in streams]
    return [dict(zip(case.inputs, given, strict=True)) for given in zip(*streams, strict=False)]


def measured(case: Case, shape: Shape, runs: int = 3) -> dict[str, float]:
    given = epochs(case, shape)
    n = sum(len(batch) for epoch in given for batch in epoch.values())
    best, m, runtime = float("inf"), 0, LocalRuntime({"out": case.query()})
    for _ in range(runs):
        runtime, m, seconds = LocalRuntime({"out": case.query()}), 0, 0.0
        for epoch in given:
            began = time.process_time()
            out = runtime.push(epoch)["out"]
            seconds += time.process_time() - began
            m += len(out)
        began = time.process_time()
        m += len(runtime.close()["out"])
        best = min(best, seconds + time.process_time() - began)
    point = {"n": n, "m": m, "seconds": round(best, 5), "lateness": shape.lateness}
    joins = [each.operator for each in runtime.plan.operators if isinstance(each.operator, JoinOperator)]
    return {**point, "touched": sum(each.touched for each in joins)} if joins else point


def bound(point: dict[str, float]) -> float:
    """n·log₂ n + m."""
    return point["n"] * math.log2(point["n"]) + point["m"]


def exponent(points: list[dict[str, float]], of: str) -> float:
    """Of the power of n that fits best."""
    n, grows = (np.log([point[key] for point in points]) for key in ("n", of))
    return round(float(np.polyfit(n, grows, 1)[0]), 3)


def counted(points: list[dict[str, float]], grown: bool) -> dict[str, float | None] | None:
    """What the entries looked at are, where they are counted: their exponent, and the largest share of the bound."""
    if "touched" not in points[0]:
        return None
    most = max(point["touched"] / bound(point) for point in points)
    return {"exponent": exponent(points, "touched") if grown else None, "most": round(most, 3)}


def explained(points: list[dict[str, float]]) -> tuple[float, float, float]:
    """The a and b of a·n·log n + b·m that fit best (both at least 0, in ns), and the largest ratio of time to it."""
    n, m, seconds = (np.array([point[name] for point in points]) for name in ("n", "m", "seconds"))
    work = np.stack([n * np.log2(n), m], axis=1)
    best = (np.inf, 0.0, 0.0)
    for columns in ([0, 1], [0], [1]):
        scaled = work[:, columns] / seconds[:, None]  # relative errors: the small runs count as much as the large
        found, *_ = np.linalg.lstsq(scaled, np.ones(len(seconds)), rcond=None)
        if (found < 0).any():
            continue
        a_b = np.zeros(2)
        a_b[columns] = found
        error = float((((work @ a_b) / seconds - 1) ** 2).sum())
        if error < best[0]:
            best = (error, float(a_b[0]), float(a_b[1]))
    _, a, b = best
    return a * 1e9, b * 1e9, float((seconds / (work @ np.array([a, b]))).max())


def main(what: str, name: str) -> None:
    case = CASES[name]
    measured(case, replace(BASE, events=5_000), runs=1)  # compiled or loaded before
    if what == "n":
        points = [measured(case, replace(BASE, events=n), 3 if n <= 100_000 else 2) for n in SIZES]
        grows = exponent(points, "seconds")
        note = f"{name}: time grows as n^{grows:.2f}"
    else:
        shapes = (replace(BASE, events=AT_N, lateness=late, start=late + 60) for late in LATENESS)
        points, grows = [measured(case, shape) for shape in shapes], None
        note = f"{name}: disorder of 1 to {LATENESS[-1]:,} ticks"
    a, b, worst = explained(points)
    report(
        "complexity",
        "everwhen-local",
        int(points[-1]["n"]),
        points[-1]["seconds"],
        case=f"{what}: {name}",
        points=points,
        exponent=grows,
        counted=counted(points, what == "n"),
        fit={"a_ns": round(a, 2), "b_ns": round(b, 1), "worst": round(worst, 2)},
        note=note,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

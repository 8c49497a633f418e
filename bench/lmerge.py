"""LMerge: figures 2 to 9 of the paper, and what was wanted.

    python bench/lmerge.py CASE

`kernels` (figures 2 and 3), `disorder` (4), `lag` (5), `stables` (6), `cleanse` (7), `bursts` (8), `congestion` (9),
`wanted` (the targets), `long` (state over 10 million elements).  Throughput is elements of all inputs per second of CPU
time inside `push`, guards, decoding and output included, the best of several runs.  State is what the runtime says of
its guards and operators, without the pool of values, which all share.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import everwhen as ew
from everwhen.core.punctuation import Frontier
from everwhen.core.time import NEVER
from everwhen.engine import local
from everwhen.engine.local import LocalRuntime
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.merge.in_order import InOrderMergeOperator
from everwhen.operators.signed_bag import SignedBag
from everwhen.plan.lower import lower
from everwhen.plan.physical import PhysicalPlan, PlacedOperator, Port, Sink
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ADJUST, INSERT, ElementBatch
from lmerge_data import Shape, copy, epochs, sources
from lmerge_rates import bursts, congestion
from measure import report

RUNS = 3
BATCH = 5_000
IN_ORDER = Shape(events=100_000, disorder=0.0)
STRICT = {"insert_only": True, "arrives": "strictly", "keys": "n"}  # the key is trusted; lifetimes are not cut
DECLARED: dict[str, dict[str, Any]] = {
    "R0": STRICT,
    "R1": STRICT,
    "R2": STRICT,
    "R3": {"keys": "n"},
    "R4": {},
    "R3-": {},
}
Epochs = list[dict[str, ElementBatch]]


@dataclass
class Found:
    """What a run came to."""

    elements: int
    seconds: float
    bytes: int
    inserts: int
    adjusts: int

    @property
    def rate(self) -> float:
        return self.elements / self.seconds


# -- running -----------------------------------------------------------------------------------------------------------


class Cleanse(Operator):
    """What a stream must go through to be merged in order: its events wait until they can not change any more, and
    until all that start earlier can not; then they go on in order."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self.bag = SignedBag(codec)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self.bag.add(inputs[0])
        promise = frontiers[0].time
        whole = cancelled_events(self.bag)
        open_ = whole.lo[whole.hi >= promise]
        until = min(int(open_.min()), promise) if len(open_) else promise
        done = whole.lo < until
        self.bag.put(whole.take(~done))
        ready = whole.take(done)
        return Output(ready.take(np.argsort(ready.lo, kind="stable")), Frontier(until))

    def state_size(self) -> StateSize:
        return self.bag.state_size()


def cancelled_events(bag: SignedBag) -> Changes:
    from everwhen.operators.net import cancelled

    return cancelled(bag.codec, [bag.whole()])


def cleansed(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan of a merge, with a Cleanse before each input and R1."""
    (merge,) = plan.operators
    codec = merge.operator.codec
    ports = [
        PlacedOperator("cleanse", Cleanse(codec), (port,), f"cleanse {at}", merge.node)
        for at, port in enumerate(merge.inputs)
    ]
    r1 = InOrderMergeOperator(codec, [NEVER] * len(ports), ew.MergePolicy(), "R1", False)
    placed = PlacedOperator("lmerge", r1, tuple(Port(operator=at) for at in range(len(ports))), merge.what, merge.node)
    (sink,) = plan.sinks
    last = Sink(sink.name, Port(operator=len(ports)), sink.encoder, sink.filter)
    return PhysicalPlan(plan.pool, plan.sources, plan.codecs, (*ports, placed), (last,))


class Naive(PhysicalPlan):
    """Every input keeps its own events."""

    def shared_logs(self) -> dict[str, Any]:
        return {}


def runtime(query: ew.Stream, kernel: str) -> LocalRuntime:
    """`R3-`: an index per input; `cleanse`: in order first."""

    def lowered(queries: dict[str, Any], emit: Any) -> PhysicalPlan:
        plan = lower(queries, emit)
        if kernel == "cleanse":
            plan = cleansed(plan)
        if kernel in ("cleanse", "R3-"):
            return Naive(plan.pool, plan.sources, plan.codecs, plan.operators, plan.sinks)
        return plan

    local.lower, before = lowered, local.lower  # type: ignore[attr-defined]
    try:
        return LocalRuntime({"out": query})
    finally:
        local.lower = before  # type: ignore[attr-defined]


def query(shape: Shape, count: int, kernel: str, policy: ew.MergePolicy | None = None) -> ew.Stream:
    asked = kernel if kernel in ("R0", "R1", "R2", "R3", "R4") else None
    if policy is None:
        policy = ew.MergePolicy(leader=asked is None or asked in ("R3", "R4"))
    return ew.lmerge(*sources(shape, count, **DECLARED.get(kernel, {})), policy=replace(policy, kernel=asked))


def run(make: Callable[[], LocalRuntime], given: Epochs, runs: int = RUNS, looks: int = 12) -> Found:
    """The best of several runs, and one that is looked at for its state: its mean over the second half."""
    best = float("inf")
    for _ in range(runs + 1):
        engine, took = make(), 0.0
        for epoch in given:
            began = time.process_time()
            engine.push(epoch)
            took += time.process_time() - began
        best = min(best, took)
    engine, sizes, inserts, adjusts = make(), [], 0, 0
    for at, epoch in enumerate(given):
        said = engine.push(epoch)["out"]
        inserts += int((said.op == INSERT).sum())
        adjusts += int((said.op == ADJUST).sum())
        if at >= len(given) // 2 and at % max(1, len(given) // (2 * looks)) == 0:
            sizes.append(engine.state_size().bytes)
    elements = sum(len(batch) for epoch in given for batch in epoch.values())
    return Found(elements, best, round(statistics.mean(sizes)), inserts, adjusts)


def merged(
    shape: Shape, count: int, kernel: str, lags: list[int] | None = None, batch: int = BATCH, **options: Any
) -> Found:
    given = epochs([copy(shape, seed) for seed in range(count)], batch, lags)
    policy = options.pop("policy", None)
    return run(lambda: runtime(query(shape, count, kernel, policy), kernel), given, **options)


# -- figures -----------------------------------------------------------------------------------------------------------

Points = list[dict[str, Any]]


def kernels() -> Points:
    """Figures 2 and 3: in order, 2 to 10 inputs."""
    points = []
    for count in (2, 4, 6, 8, 10):
        for kernel in ("R0", "R1", "R2", "R3", "R4", "R3-"):
            found = merged(replace(IN_ORDER, events=40_000), count, kernel, runs=2)
            points.append({"inputs": count, "kernel": kernel, "rate": found.rate, "bytes": found.bytes})
    return points


def disorder() -> Points:
    """Figure 4: how many adjusts leave, by how much is late, of three inputs with 10 % adjusts."""
    points = []
    for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
        shape = Shape(events=40_000, disorder=share, adjusts=0.1)
        heard = sum(int((copy(shape, seed).op == ADJUST).sum()) for seed in range(3))
        for policy in (
            ew.MergePolicy(lazy=True),
            ew.MergePolicy(),
            ew.MergePolicy(leader=True),
            ew.MergePolicy(final=True),
        ):
            found = merged(shape, 3, "R4", policy=policy, batch=500, runs=1)
            points.append({"disorder": share, "policy": str(policy), "adjusts": found.adjusts, "heard": heard})
    return points


def lag() -> Points:
    """Figure 5: two of three inputs lag, by so many epochs of `BATCH` elements."""
    points = []
    for epochs_ in (0, 1, 2, 4, 8):
        for kernel in ("R2", "R3", "R4"):
            shape = Shape(events=100_000, disorder=0.2 if kernel != "R2" else 0.0)
            found = merged(shape, 3, kernel, [0, epochs_, epochs_])
            points.append({"lag": epochs_ * BATCH, "kernel": kernel, "rate": found.rate})
    return points


def stables() -> Points:
    """Figure 6: how often there are CTIs."""
    points = []
    for share in (0.00001, 0.0001, 0.001, 0.01):
        for kernel in ("R0", "R2", "R3", "R4"):
            late = 0.2 if kernel in ("R3", "R4") else 0.0
            found = merged(Shape(events=100_000, disorder=late, stables=share), 3, kernel)
            points.append({"stables": share, "kernel": kernel, "rate": found.rate, "bytes": found.bytes})
    return points


def cleanse() -> Points:
    """Figure 7: R3 beside Cleanse and R1; half is late, 36 % adjusts, 0.1 % CTIs."""
    points = []
    shape = Shape(events=40_000, disorder=0.5, adjusts=0.36, stables=0.001)
    for count in (2, 4, 6, 8, 10):
        for kernel in ("R3", "cleanse"):
            found = merged(shape, count, kernel, runs=2)
            late = _wait(shape, count, kernel) if count == 4 else None
            points.append({"inputs": count, "kernel": kernel, "rate": found.rate, "bytes": found.bytes, "waits": late})
    return points


def _wait(shape: Shape, count: int, kernel: str) -> float:
    """How far the stream has gone on, in ticks, when an event is emitted: the mean."""
    engine = runtime(query(shape, count, kernel), kernel)
    waits, weight, tau = 0.0, 0, 0
    for epoch in epochs([copy(shape, seed) for seed in range(count)], 500):
        tau = max([tau, *(int(batch.vs[batch.op == INSERT].max(initial=0)) for batch in epoch.values())])
        said = engine.push(epoch)["out"]
        starts = said.vs[said.op == INSERT]
        waits += float((tau - starts).sum())
        weight += len(starts)
    return waits / max(weight, 1)


# -- what was wanted ---------------------------------------------------------------------------------------------------


def wanted() -> Points:
    points: Points = []

    def target(what: str, found: float, least: float | None = None, most: float | None = None) -> None:
        holds = (least is None or found >= least) and (most is None or found <= most)
        points.append({"what": what, "found": round(found, 3), "least": least, "most": most, "holds": holds})

    late = Shape(events=100_000, disorder=0.2)
    in_order = {k: merged(IN_ORDER, 3, k) for k in ("R0", "R1", "R2")}
    for name, found in in_order.items():
        target(f"{name}, three inputs in order, M/s", found.rate / 1e6, least=4.0)
    ties = replace(IN_ORDER, lifetime=1, per_tick=20)
    target("R2, 20 rows an instant, M/s", _ties(ties).rate / 1e6, least=4.0)
    for least, shape in ((1.5, late), (0.4, replace(late, text=1000))):
        r3, of = merged(shape, 3, "R3"), ", texts of 1,000 bytes" if shape.text else ""
        target(f"R3, 20 % late{of}, M/s", r3.rate / 1e6, least=least)
        lags = merged(shape, 3, "R3", [0, 8, 8])
        target(f"R3, two of three lag{of}, times as fast", lags.rate / r3.rate, least=1.5)
    for adjusts, ctis in ((0.36, 0.001), (0.0, 0.01)):
        hard = Shape(events=40_000, disorder=0.5, adjusts=adjusts, stables=ctis)
        ratio = merged(hard, 10, "R3").rate / merged(hard, 10, "cleanse").rate
        target(f"R3 / Cleanse + R1, 10 inputs, 50 % late, {adjusts:.0%} adjusts, times as fast", ratio, least=3.0)
    for adjusts in (0.0, 0.36):
        shape = Shape(events=40_000, disorder=0.2, adjusts=adjusts)
        of = f"{adjusts:.0%} adjusts"
        two, ten = merged(shape, 2, "R3", runs=0), merged(shape, 10, "R3", runs=0)
        target(f"R3, state of 10 inputs / 2, {of}", ten.bytes / two.bytes, most=2.2)
        target(f"R3 / R3-, state, 10 inputs, {of}", ten.bytes / merged(shape, 10, "R3-", runs=0).bytes, most=1 / 3)
        clean = merged(shape, 10, "cleanse", runs=0).bytes
        target(f"R3 / Cleanse + R1, state, 10 inputs, {of}", ten.bytes / clean, most=1 / 3)
    for name in ("R0", "R1"):
        small, large = (merged(replace(IN_ORDER, events=n), 3, name, runs=0).bytes for n in (20_000, 100_000))
        target(f"{name}, state over five times as many elements", large / small, most=1.0)
    return points


def _ties(shape: Shape) -> Found:
    declared = {"insert_only": True, "arrives": "in order", "chronons": True}
    given = epochs([copy(shape, seed) for seed in range(3)], BATCH)
    return run(lambda: LocalRuntime({"out": ew.lmerge(*sources(shape, 3, **declared))}), given)


def long() -> Points:
    """State over 10 million elements of three inputs, 20 % late, 10 % adjusts."""
    shape = Shape(events=200_000, disorder=0.2, adjusts=0.1)
    copies = [copy(shape, seed) for seed in range(3)]
    engine = runtime(query(shape, 3, "R3"), "R3")
    points, seen = [], 0
    for turn in range(-(-10_000_000 // sum(map(len, copies)))):
        moved = [_later(each, turn * shape.events) for each in copies]
        for epoch in epochs(moved, BATCH):
            engine.push(epoch)
            seen += sum(map(len, epoch.values()))
        size = engine.state_size()
        points.append({"elements": seen, "bytes": size.bytes, "rows": size.rows})
    return points


def _later(batch: ElementBatch, shift: int) -> ElementBatch:
    op, vs, ve, vnew = batch.op, batch.vs + shift, batch.ve + shift, batch.vnew + shift
    return ElementBatch(batch.schema, op, vs, ve, vnew, batch.columns)


CASES: dict[str, Callable[[], Points]] = {
    each.__name__: each for each in (kernels, disorder, lag, stables, cleanse, bursts, congestion, wanted, long)
}


def cases() -> Iterator[str]:
    yield from CASES


if __name__ == "__main__":
    case = sys.argv[1]
    began = time.process_time()
    found_ = CASES[case]()
    report("lmerge", "everwhen-local", 0, time.process_time() - began, case=case, points=found_)

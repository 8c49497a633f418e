"""NEXMark q0 to q23 in process: events per second over dirty streams.

    python bench/nexmark_suite.py [BIDS] [EVENTS PER EPOCH] [QUERY …]

The clock runs while `push` runs and at no other time.  A short stream has compiled or loaded the loops before; the best
of three runs counts.  Beside the clock stands the time of the processor, of all threads of the process: on a machine
that others use it is what one that is idle would need, on one core.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.demo.nexmark.suite.streams import SuiteConfig, SuiteStreams
from everwhen.demo.nexmark.suite.texts import TEXTS, text
from everwhen.engine.local import LocalRuntime
from measure import report

RUNS = 3
DIRTY = {"late": 0.1, "corrections": 0.05, "duplicates": 0.05}


@dataclass(frozen=True)
class Run:
    """Elements read and said; seconds of the clock and of the processor."""

    read: int
    said: int
    seconds: float
    worked: float


def measured(query: str, name: str, bids: int, epoch: int) -> Run:
    streams = SuiteStreams(SuiteConfig(bids=bids, **DIRTY))
    plan = ew.sql(query)
    reads = {node.name for node in n.walk(plan.node) if isinstance(node, n.Source)}
    epochs = [{source: batch for source, batch in each.items() if source in reads} for each in streams.epochs(epoch)]
    runtime = LocalRuntime(plan)
    said = 0
    begin, worked = time.perf_counter(), time.process_time()
    for each in epochs:
        said += sum(len(batch) for batch in runtime.push(each).values())
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    read = sum(len(batch) for each in epochs for source, batch in each.items() if source != "Side")
    return Run(read, said, seconds, worked)


def main(bids: int = 100_000, epoch: int = 10_000, *names: str) -> None:
    for name in names or TEXTS:
        measured(text(name), name, 3_000, epoch)
        run = min((measured(text(name), name, bids, epoch) for _ in range(RUNS)), key=lambda run: run.worked)
        speed = round(run.read / run.worked)
        note = f"{name}: {speed:,}/s of processor time, {run.said:,} elements out"
        report("nexmark_suite", "everwhen-local", run.read, run.seconds, case=name, per_processor_s=speed, note=note)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])

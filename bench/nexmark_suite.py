"""NEXMark q0 to q23 in process: events per second over dirty streams.

python bench/nexmark_suite.py [bids] [events per epoch] [query …]
"""

from __future__ import annotations

import sys
import time

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.demo.nexmark.suite.streams import SuiteConfig, SuiteStreams
from everwhen.demo.nexmark.suite.texts import TEXTS, text
from everwhen.engine.local import LocalRuntime


def measured(name: str, bids: int, epoch: int) -> tuple[int, int, float]:
    """Elements read, elements said, seconds."""
    streams = SuiteStreams(SuiteConfig(bids=bids, late=0.1, corrections=0.05, duplicates=0.05))
    query = ew.sql(text(name))
    reads = {node.name for node in n.walk(query.node) if isinstance(node, n.Source)}
    epochs = [{source: batch for source, batch in each.items() if source in reads} for each in streams.epochs(epoch)]
    runtime = LocalRuntime(query)
    said = 0
    begin = time.perf_counter()
    for each in epochs:
        said += sum(len(batch) for batch in runtime.push(each).values())
    seconds = time.perf_counter() - begin
    return sum(len(batch) for each in epochs for source, batch in each.items() if source != "Side"), said, seconds


def main(bids: int = 100_000, epoch: int = 10_000, *names: str) -> None:
    for name in names or TEXTS:
        measured(name, 300, epoch)  # compiled loops are loaded
        events, said, seconds = measured(name, bids, epoch)
        sys.stdout.write(f"{name:4} {events:8} in {said:8} out {seconds:8.3f} s {events / seconds:10.0f} events/s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])

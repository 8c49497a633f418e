"""What the language and its rewriting are measured on.

    python bench/sql_works.py closing_price [MIX, ]keys|[MIX, ]no keys
    python bench/sql_works.py shared_queries NUMBER

`closing_price` is the thesis's query (Example 7.3) as text: with KEYs on the two auction streams the group-by moves
below the joins (Figure 10.2).  Its stream is the one of all NEXMark works here; the mixes differ from it in one thing
each, so that one sees what the rule is worth on others.  `shared_queries` are so many queries over one stream in one
session that differ only in their last filter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.demo.nexmark import generate
from everwhen.demo.nexmark.texts import DECLARATIONS, TEXTS
from everwhen.engine.session.session import Session
from everwhen.stream.element_batch import CTI
from measure import report
from works import EVENTS, NEXMARK, Inputs, Work, run, sliding, streams

CLOSING_EVENTS = 200_000
MIXES = {
    "": NEXMARK,
    "in order and right": replace(NEXMARK, late=0.0, corrections=0.0, duplicates=0.0),
    "a fifth wrong": replace(NEXMARK, corrections=0.2),
    "all late": replace(NEXMARK, late=1.0),
    "no hot item": replace(NEXMARK, hot_items=0.0),
    "a tenth of the bids": replace(NEXMARK, bids=NEXMARK.bids // 10),
    "ten times the bids": replace(NEXMARK, bids=NEXMARK.bids * 10),
}
BATCHES = {"batches of 1,000": 1_000, "batches of 100": 100}


def closing_price(case: str) -> None:
    """Events of the three streams per second, the best of three runs."""
    mix, _, keys = case.rpartition(", ")
    text = DECLARATIONS + TEXTS["q5"].replace("2 DAYS", str(NEXMARK.auction_length))
    query = ew.sql(text.replace(" KEY", "") if keys == "no keys" else text)
    read = {node.name for node in walk(query.node) if isinstance(node, Source)}

    def inputs(events: int) -> Iterator[Inputs]:
        for epoch in generate(MIXES.get(mix, NEXMARK), events, epoch=BATCHES.get(mix, 10_000)):
            yield {name: batch for name, batch in epoch.items() if name in read}

    run(query, inputs(CLOSING_EVENTS // 10), "current")
    tally = min((run(query, inputs(CLOSING_EVENTS), "current") for _ in range(3)), key=lambda each: each.seconds)
    note = f"Example 7.3 as text, {case}, {CLOSING_EVENTS:,} events"
    more = {"results": tally.results, "case": case, "note": note}
    report("closing_price", "everwhen-local", tally.events, tally.seconds, **tally.latency(), **more)


def shared_queries(number: int) -> None:
    """The sliding sum of the bench, read by `number` queries that each want one key."""
    work = Work(sliding(60), {"S": EVENTS})
    keys = [f"key-{i:06d}" for i in range(number)]
    for warm in (True, False):
        session = Session()
        for key in keys:
            session.register(key, work.query().where(ew.col("key") == key))
        events, results, seconds = 0, 0, 0.0
        for i, given in enumerate(streams(work.shapes)):
            if warm and i == 3:
                break
            began = time.perf_counter()
            out = session.push(given)
            seconds += time.perf_counter() - began
            events += int(np.count_nonzero(given["S"].op < CTI))
            results += sum(map(len, out.values()))
    note = f"{number} queries that differ in their last filter"
    report("shared_queries", "everwhen-local", events, seconds, results=results, case=number, note=note)


if __name__ == "__main__":
    work, case = sys.argv[1:]
    if work == "closing_price":
        closing_price(case)
    else:
        shared_queries(int(case))

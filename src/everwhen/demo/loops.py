"""What the demo on Spark runs; and, as a program, what compiles its loops: `python -m everwhen.demo.loops`.

Loops that are compiled are kept on disk.  On a new machine all of them take half a minute of one core, during which
Spark starts and workers interpret what is not there yet.  So they are compiled in a process of its own; its argument
says how nice it is to others.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Final

from everwhen.algebra.builder import Stream
from everwhen.compiled.njit import compiling_at_once
from everwhen.demo.local import CONFIG as LOCAL_CONFIG
from everwhen.demo.nexmark import queries as nexmark
from everwhen.demo.nexmark.generator import generate
from everwhen.engine.local import LocalRuntime

RATE: Final = 50_000  # events per second, of all four streams
CONFIG: Final = replace(LOCAL_CONFIG, rate=RATE // 5, auction_length=8_000)
WARM_UP_EVENTS: Final = 100_000  # ten seconds of the streams: by then auctions have closed, and answers were corrected


def demo_queries() -> dict[str, Stream]:
    """Four queries that between them join, group and count rows, with windows of seconds.

    The highest bid and the hot item are left to the demo in process: they need more stages, and so slower epochs.
    """
    longest = CONFIG.auction_length
    closing = nexmark.closing_price(longest)
    return {
        "q3": nexmark.short_auctions("5 s"),
        "q5": closing,
        "q7": nexmark.average_selling_price(10, longest, closing),
        "q8": nexmark.new_sellers("10 s"),
    }


def compile_loops() -> None:
    """Run the queries over some events, compiling what they call."""
    runtime = LocalRuntime(demo_queries(), emit="current")
    with compiling_at_once():
        for batches in generate(CONFIG, WARM_UP_EVENTS, epoch=WARM_UP_EVENTS // 4):
            runtime.push(batches)


if __name__ == "__main__":
    os.nice(int(sys.argv[1]))
    compile_loops()

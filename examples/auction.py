"""Auction: closing prices, from items and bids that live for ever.

    python examples/auction.py [--bids N]

A join without a window and a grouping over it: only punctuation bounds them.  Items come once (UNIQUE), and a
punctuation among the bids says that an auction is closed.  What is kept are the open auctions, however many there have
been (Tucker et al., section 1.3).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console

import everwhen as ew
from punctuation_table import Watched, asked_for, show, watch
from scenarios.auctions import AUCTION, Auctions

AT_ONCE, EACH, BATCH = 200, 50, 1_000


def main(words: Sequence[str] | None = None) -> dict[str, Watched]:
    bids = asked_for(words, "bids", 50_000, "bids on all items together")
    query = ew.sql(AUCTION)
    watch(query, Auctions(2_000, AT_ONCE, EACH, BATCH))  # compiles or loads the kernels
    auctions = Auctions(bids, AT_ONCE, EACH, BATCH)
    found = {
        "auctions are closed": watch(query, auctions),
        "nobody says so": watch(query, _unsaid(Auctions(bids, AT_ONCE, EACH, BATCH))),
    }
    assert all(run.answers == auctions.prices for run in found.values()), "these are not the closing prices"
    show("Closing prices of an auction", AUCTION, found, f"About {AT_ONCE} auctions are open at a time.\n")
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(str(ew.advise(query)), highlight=False, markup=False)
    return found


def _unsaid(auctions: Auctions) -> Iterator[Mapping[str, ew.ElementBatch]]:
    """The same bids without punctuation."""
    for epoch in auctions:
        bids = epoch["Bid"]
        rows = int((bids.op != ew.ElementBatch.PUNCT).sum())  # punctuation stands behind the bids of an epoch
        yield {**epoch, "Bid": replace(bids.slice(0, rows), promises={})}


if __name__ == "__main__":
    main()

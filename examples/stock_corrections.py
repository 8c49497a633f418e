"""Stock corrections: trades at the price of their instant, and the ones to back out of.

    python examples/stock_corrections.py [--events N]

A trade has to be made at once; its price may be corrected for 72 hours, and then the parties may back out of it.  So
the query answers at once and corrects: `middle`.  The ticker's promises follow 72 hours behind, so it keeps no more
than that, and the same level in numbers, "remember 72 hours", gives nothing up.  `strong` would make each trade three
days late, and `weak` would never hear of a wrong price.
"""

from __future__ import annotations

from collections.abc import Sequence

import everwhen as ew
from comparison import Found, events_asked_for, show, side_by_side
from scenarios import STOCKS

LEVELS = {
    "middle": ew.MIDDLE,
    "remember 72 hours": ew.consistency(remember="72 hours", tick=STOCKS.tick),
    "remember 6 hours": ew.consistency(remember="6 hours", tick=STOCKS.tick),
    "weak": ew.WEAK,
    "strong": ew.STRONG,
}


def main(words: Sequence[str] | None = None) -> Found:
    found = side_by_side(STOCKS, LEVELS, events_asked_for(words, 20_000))
    show(STOCKS, found, "middle")
    return found


if __name__ == "__main__":
    main()

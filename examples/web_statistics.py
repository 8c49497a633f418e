"""Web statistics: hits and bytes per page of the last minute, every ten seconds.

    python examples/web_statistics.py [--events N]

There are far too many hits to remember them, and nobody knows which are still under way: the stream makes no promises.
So the query answers at once and forgets at once: `weak`.  What comes late is given up, and counted.  To remember some
seconds more makes the answer better, at a price in memory that can be chosen; `middle` would keep all there ever was,
and `strong` would not answer before the end of the world.
"""

from __future__ import annotations

from collections.abc import Sequence

import everwhen as ew
from comparison import Found, events_asked_for, show, side_by_side
from scenarios import WEB

LEVELS = {
    "weak": ew.WEAK,
    "remember 15 seconds": ew.consistency(remember="15 seconds", tick=WEB.tick),
    "remember 1 minute": ew.consistency(remember="1 minute", tick=WEB.tick),
    "middle": ew.MIDDLE,
    "strong": ew.STRONG,
}


def main(words: Sequence[str] | None = None) -> Found:
    found = side_by_side(WEB, LEVELS, events_asked_for(words, 30_000))
    show(WEB, found, "weak")
    return found


if __name__ == "__main__":
    main()

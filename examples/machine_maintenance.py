"""Machine maintenance: which machines did not come up within ten minutes after a patch?

    python examples/machine_maintenance.py [--events N]

An alert sends a person to a machine, which is expensive; events arrive late, and sites are cut off for half an hour.
So the query waits until it is certain: `strong`.  Answered at once, a machine whose "up" is under way is a false alarm;
`middle` takes it back, when somebody may be on the way already, and `weak` never learns that it was wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import everwhen as ew
from comparison import Found, events_asked_for, show, side_by_side
from scenarios import MACHINES

LEVELS = {
    "strong": ew.STRONG,
    "block 5 minutes": ew.consistency(block="5 minutes", tick=MACHINES.tick),
    "middle": ew.MIDDLE,
    "weak": ew.WEAK,
}


def main(words: Sequence[str] | None = None) -> Found:
    found = side_by_side(MACHINES, LEVELS, events_asked_for(words, 20_000))
    show(MACHINES, found, "strong")
    return found


if __name__ == "__main__":
    main()

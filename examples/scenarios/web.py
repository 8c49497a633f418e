"""Hits on a web site, counted: far too many to remember, so what comes too late is given up.

Every hit names its page and its bytes (`Hit`).  Most arrive at once, some are late, a few by up to a quarter of an
hour, and nobody knows what is still under way: there is no promise at all.  The query counts hits and bytes of the last
minute, every ten seconds.  CEDR report, section 1, scenario 2: weak consistency.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from scenarios.arrivals import Arrivals, Scenario, no_promise

HIT: Final = Schema.of([("page", pa.string()), ("bytes", pa.int64())])

TEXT: Final = """\
CREATE STREAM Hit (page TEXT, bytes INT, at TIMESTAMP) ORDERED BY at INSERT ONLY;
SELECT page, COUNT(*) AS hits, SUM(bytes) AS bytes
FROM Hit WINDOW(RANGE 1 MINUTE SLIDE 10 SECONDS)
GROUP BY page
"""

PAGES: Final = 40
PER_TICK: Final = 5
LATE: Final = 0.10
LATENESS: Final = 15  # ticks, on the average
LONG_LATE: Final = 0.01
LONG: Final = 900


def _draw(events: int, rng: np.random.Generator) -> dict[str, Arrivals]:
    when = np.arange(events) // PER_TICK
    share = 1 / np.arange(1, PAGES + 1)
    page = rng.choice(PAGES, events, p=share / share.sum())
    size = rng.integers(1, 20_000, events)
    draw = rng.random(events)
    soon = np.minimum(1 + rng.exponential(LATENESS, events), LONG).astype(np.int64)
    delay = np.where(draw < LONG_LATE, rng.integers(60, LONG, events, endpoint=True), np.where(draw < LATE, soon, 0))
    names = np.array([f"/page-{i:02d}" for i in range(PAGES)], object)
    return {"Hit": Arrivals.inserts(HIT, when + delay, when, when + 1, (names[page], size))}


WEB: Final = Scenario(
    name="web",
    story="web statistics: hits and bytes per page of the last minute",
    text=TEXT,
    tick="1s",
    disorder=LONG,
    every=10,
    key=("page",),
    amount="hits",
    draw=_draw,
    promises=no_promise,
)

"""Machines that are patched and should come up again: an alert is expensive, so it waits until it is certain.

Every machine is patched now and then (`Install`), and says when it is up again (`Up`), after some minutes as a rule.
Who has not come up ten minutes after a patch is looked at by a person.  Some events are late; now and then a whole site
is cut off, and its events arrive together when it is back.  Whoever collects the events knows which sites are cut off,
and promises no more than it may.  CEDR report, section 1, scenario 1: strong consistency.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from scenarios.arrivals import Arrivals, Scenario, all_that_holds

INSTALL: Final = Schema.of([("machine", pa.int64()), ("patch", pa.int64())])
UP: Final = Schema.of([("machine", pa.int64())])

TEXT: Final = """\
CREATE STREAM Install (machine INT, patch INT, at TIMESTAMP) ORDERED BY at INSERT ONLY;
CREATE STREAM Up (machine INT, at TIMESTAMP) ORDERED BY at INSERT ONLY;
SELECT I.machine, I.patch
FROM Install LIFETIME(SHIFT 10 MINUTES) I
WHERE NOT EXISTS (SELECT * FROM Up WINDOW(RANGE 10 MINUTES) U WHERE U.machine = I.machine)
"""

SITES: Final = 8
MACHINES_PER_SITE: Final = 50
BETWEEN: Final = 3_600  # ticks from one patch of a machine to its next
BROKEN: Final = 0.03  # so many do not come up by themselves
LATE: Final = 0.10
LATENESS: Final = 120
CUT_OFF: Final = 1_800  # so long a site is away
AWAY_EVERY: Final = 7_200  # each site once in so many ticks


def _draw(events: int, rng: np.random.Generator) -> dict[str, Arrivals]:
    patches = max(events // 2, 1)
    i = np.arange(patches)
    machine = i % (SITES * MACHINES_PER_SITE)
    rounds = i // (SITES * MACHINES_PER_SITE)
    start = rounds * BETWEEN + rng.integers(0, BETWEEN // 2, patches)
    took = np.minimum(30 + rng.exponential(90, patches), 590).astype(np.int64)
    came = rng.random(patches) >= BROKEN
    site = machine // MACHINES_PER_SITE
    up = (start + took)[came]
    return {
        "Install": Arrivals.inserts(INSTALL, _arrival(start, site, rng), start, start + 1, (machine, 1_000 + rounds)),
        "Up": Arrivals.inserts(UP, _arrival(up, site[came], rng), up, up + 1, (machine[came],)),
    }


def _arrival(when: np.ndarray, site: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A little late, or when the site is back; sites are away in turn."""
    late = np.where(rng.random(len(when)) < LATE, rng.integers(1, LATENESS, len(when), endpoint=True), 0)
    phase = (when + site * (AWAY_EVERY // SITES)) % AWAY_EVERY
    back = np.where(phase < CUT_OFF, when - phase + CUT_OFF, when)
    found: np.ndarray = np.maximum(when + late, back)
    return found


MACHINES: Final = Scenario(
    name="machines",
    story="machine maintenance: who did not come up after a patch",
    text=TEXT,
    tick="1s",
    disorder=CUT_OFF + LATENESS,
    every=120,
    key=("machine", "patch"),
    amount=None,
    draw=_draw,
    promises=all_that_holds,
)

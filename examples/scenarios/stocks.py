"""A stock ticker whose prices may be corrected for 72 hours: trades are made at once, and backed out of later.

Every symbol has a price that holds for ten minutes (`Price`).  Some prices are wrong at first; the right one comes
within 72 hours, mostly much sooner, and that is all that the ticker promises.  Orders to buy (`Orders`) come in order;
one is a trade if the price of its instant is not above its ceiling.  A trade at a wrong price is taken back, which is
what leads to a compensation.  CEDR report, section 1, scenario 3: middle consistency.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from scenarios.arrivals import Arrivals, Scenario

PRICE: Final = Schema.of([("symbol", pa.string()), ("cents", pa.int64())])
ORDERS: Final = Schema.of([("id", pa.int64()), ("symbol", pa.string()), ("ceiling", pa.int64())])

TEXT: Final = """\
CREATE STREAM Price (symbol TEXT, cents INT);
CREATE STREAM Orders (id INT, symbol TEXT, ceiling INT, at TIMESTAMP) ORDERED BY at INSERT ONLY;
SELECT O.id, O.symbol, P.cents
FROM Orders O, Price P
WHERE O.symbol = P.symbol AND P.cents <= O.ceiling
"""

SYMBOLS: Final = 12
HOLDS: Final = 600  # ticks that a price stands
SLA: Final = 72 * 3_600
WRONG: Final = 0.05
MEAN_DELAY: Final = 10 * 3_600  # of a correction


def _draw(events: int, rng: np.random.Generator) -> dict[str, Arrivals]:
    per_symbol = max(events // (2 * SYMBOLS), 1)
    right = np.maximum(10_000 + rng.integers(-60, 61, (SYMBOLS, per_symbol)).cumsum(axis=1), 500)
    names = np.array([f"S{i:02d}" for i in range(SYMBOLS)], object)
    symbol, reading = (each.ravel(order="F") for each in np.indices((SYMBOLS, per_symbol)))
    vs, cents = reading * HOLDS, right[symbol, reading]

    wrong = np.flatnonzero(rng.random(len(vs)) < WRONG)
    said = cents.copy()
    said[wrong] += rng.choice(np.array([-1, 1]), len(wrong)) * rng.integers(50, 500, len(wrong))
    prices = Arrivals.inserts(PRICE, vs, vs, vs + HOLDS, (names[symbol], said))
    when = vs[wrong] + np.minimum(60 + rng.exponential(MEAN_DELAY, len(wrong)), SLA).astype(np.int64)
    removed = prices.removals(wrong, when)
    again = Arrivals.inserts(PRICE, when, vs[wrong], vs[wrong] + HOLDS, (names[symbol[wrong]], cents[wrong]))

    orders = max(events - len(vs), 1)
    at = np.sort(rng.integers(0, per_symbol * HOLDS, orders))
    wanted = rng.integers(0, SYMBOLS, orders)
    ceiling = right[wanted, at // HOLDS] + rng.integers(-100, 200, orders)
    return {
        "Price": prices.and_also(removed, again),
        "Orders": Arrivals.inserts(ORDERS, at, at, at + 1, (np.arange(orders), names[wanted], ceiling)),
    }


def _promises(name: str, stream: Arrivals, moments: np.ndarray) -> np.ndarray:
    """Prices stand when the 72 hours are over; orders come in order."""
    found: np.ndarray = moments - SLA if name == "Price" else moments + 1
    return found


STOCKS: Final = Scenario(
    name="stocks",
    story="stock corrections: trades at the price of their instant",
    text=TEXT,
    tick="1s",
    disorder=SLA,
    every=1_200,
    key=("id",),
    amount=None,
    draw=_draw,
    promises=_promises,
)

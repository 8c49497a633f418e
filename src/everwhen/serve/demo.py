"""What `everwhen serve --demo` shows: NEXMark with late, wrong and doubled bids, and queries that have to correct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from everwhen.demo.local import CONFIG
from everwhen.demo.nexmark.texts import DECLARATIONS
from everwhen.serve.engine_loop import EngineLoop
from everwhen.shell.input import Nexmark

RATE: Final = 1_000.0
"""Events a second: as many as there are in a second of the auction."""
PRICES: Final = """\
CREATE STREAM Price AS
  SELECT B.itemID, O.category, B.bid_price
  FROM Bid B WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND), OpenAuction O WINDOW(RANGE 20 SECONDS)
  WHERE B.itemID = O.itemID
"""
QUERIES: Final[Mapping[str, str]] = {
    "top_items": "SELECT itemID, COUNT(*) AS bids, MAX(bid_price) AS best\n"
    "FROM Bid WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND)\nGROUP BY itemID\nORDER BY bids DESC LIMIT 8",
    "by_category": "SELECT category, COUNT(*) AS bids, AVG(bid_price) AS average\nFROM Price GROUP BY category",
    "closed": "SELECT C.itemID, MAX(B.bid_price) AS price\n"
    "FROM ClosedAuction C WINDOW(RANGE 5 SECONDS), Bid B WINDOW(RANGE 20 SECONDS)\n"
    "WHERE C.itemID = B.itemID GROUP BY C.itemID",
    "settled": "SELECT COUNT(*) AS bids, MAX(bid_price) AS best\n"
    "FROM Bid WINDOW(RANGE 5 SECONDS SLIDE 5 SECONDS)\nCONSISTENCY STRONG",
    "new_sellers": "SELECT P.name, P.city, COUNT(*) AS auctions\n"
    "FROM Person P WINDOW(RANGE 10 SECONDS), OpenAuction O WINDOW(RANGE 5 SECONDS)\n"
    "WHERE P.id = O.sellerID GROUP BY P.name, P.city",
}


def show_demo(engine: EngineLoop) -> None:
    """Let NEXMark come, and start the queries; before the engine runs."""
    engine.feeds.nexmark = Nexmark(CONFIG)
    engine.from_zero = True
    engine.execute(DECLARATIONS + PRICES)
    for name, text in QUERIES.items():
        engine.execute(text, name)

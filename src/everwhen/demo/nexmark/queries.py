"""The thesis's NEXMark queries (sections 7.2, 9.3, 12.3.2, 17.1) in the fluent form, with its windows as defaults.

`QUERIES` names them all.  Every function can be called without arguments; the windows are parameters (ticks, or text
such as "10 minutes"), so that a short run can use short ones.  All of them read the same four source streams, which
therefore are read once when several queries run together.  A stream without a window is seen through the now-window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from everwhen.algebra.aggregates import calls as ew
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col
from everwhen.algebra.named_source import source
from everwhen.demo.nexmark.generator import SCHEMAS

Duration = int | str

PERSON: Final = source("Person", SCHEMAS["Person"], insert_only=True)
OPEN_AUCTION: Final = source("OpenAuction", SCHEMAS["OpenAuction"], insert_only=True)
CLOSED_AUCTION: Final = source("ClosedAuction", SCHEMAS["ClosedAuction"], insert_only=True)
BID: Final = source("Bid", SCHEMAS["Bid"])  # bids are corrected: see the generator

ITEMS: Final = (1007, 1020, 2001, 2019, 1087)


def currency_conversion(euros: float = 0.908) -> Stream:
    """Every bid with its price in euros instead of dollars.

    SELECT itemID, bid_price * 0.908 AS bid_price, bidderID FROM Bid
    """
    return BID.with_columns(bid_price=col("bid_price") * euros)


def selection(items: tuple[int, ...] = ITEMS) -> Stream:
    """The bids on five chosen items.

    SELECT * FROM Bid WHERE itemID IN (1007, 1020, 2001, 2019, 1087)
    """
    return BID.where(col("itemID").is_in(list(items)))


def short_auctions(within: Duration = "5 hours") -> Stream:
    """The auctions that close at most five hours after they opened, at the instant at which they close.

    SELECT O.* FROM OpenAuction O WINDOW(RANGE 5 HOURS), ClosedAuction C WHERE O.itemID = C.itemID
    """
    return OPEN_AUCTION.range(within).join(CLOSED_AUCTION, on="itemID").select(*OPEN_AUCTION.schema.names)


def highest_bid(window: Duration = "10 minutes", slide: Duration = 1) -> Stream:
    """The highest bid, or bids, of the last ten minutes.

    SELECT itemID, bid_price FROM Bid WINDOW(RANGE 10 MINUTES)
    WHERE bid_price = (SELECT MAX(bid_price) FROM Bid WINDOW(RANGE 10 MINUTES))

    The subquery becomes a semi-join with the maximum; both sides share the window.
    """
    recent = BID.range(window, slide)
    highest = recent.aggregate(bid_price=ew.max("bid_price"))
    return recent.join(highest, on="bid_price", how="semi").select("itemID", "bid_price")


def closing_price(longest: Duration = "2 days") -> Stream:
    """What each item went for and who sold it, at the instant at which its auction closes.

    SELECT P.itemID, O.sellerID, MAX(P.price) AS price
    FROM (SELECT itemID, bid_price AS price FROM Bid WINDOW(RANGE 2 DAYS)
          UNION ALL SELECT itemID, start_price AS price FROM OpenAuction WINDOW(RANGE 2 DAYS)) P,
         ClosedAuction C, OpenAuction O WINDOW(RANGE 2 DAYS)
    WHERE P.itemID = C.itemID AND C.itemID = O.itemID
    GROUP BY P.itemID, O.sellerID

    No auction is open for longer than the window, so it holds every price of an item; the start price counts where
    nobody has bid.
    """
    opened = OPEN_AUCTION.range(longest)
    offered = BID.range(longest).select("itemID", price=col("bid_price"))
    prices = offered.union(opened.select("itemID", price=col("start_price")))
    sold = prices.join(CLOSED_AUCTION, on="itemID").join(opened.select("itemID", "sellerID"), on="itemID")
    return sold.group_by("itemID", "sellerID").agg(price=ew.max("price"))


def hot_items(window: Duration = "1 hour") -> Stream:
    """The item, or items, with the most bids in the past hour.

    SELECT itemID FROM (SELECT itemID, COUNT(*) AS num FROM Bid WINDOW(RANGE 60 MINUTES) GROUP BY itemID)
    WHERE num >= ALL (SELECT COUNT(*) FROM Bid WINDOW(RANGE 60 MINUTES) GROUP BY itemID)

    "At least as many as all" becomes an anti-join: no item has more.  It compares every count with every other one;
    `hot_items_by_maximum` gives the same answer at a fraction of the cost.
    """
    counts = BID.range(window).group_by("itemID").agg(num=ew.count())
    others = counts.select(most=col("num"))
    return counts.join(others, where=col("num") < col("most"), how="anti").select("itemID")


def hot_items_by_maximum(window: Duration = "1 hour") -> Stream:
    """The same as `hot_items`, in the form of `highest_bid`: the items whose number of bids is the largest number.

    SELECT itemID FROM (SELECT itemID, COUNT(*) AS num FROM Bid WINDOW(RANGE 60 MINUTES) GROUP BY itemID) C
    WHERE num = (SELECT MAX(num) FROM C)
    """
    counts = BID.range(window).group_by("itemID").agg(num=ew.count())
    return counts.join(counts.aggregate(num=ew.max("num")), on="num", how="semi").select("itemID")


def average_selling_price(items: int = 10, longest: Duration = "2 days", closing: Stream | None = None) -> Stream:
    """For each seller the average price of the last ten items sold.

    SELECT sellerID, AVG(price) AS price FROM ClosingPrice WINDOW(PARTITION BY sellerID ROWS 10) GROUP BY sellerID

    `closing` is the stream of closing prices; given the one of another query, it is computed once for both.
    """
    sold = closing_price(longest) if closing is None else closing
    return sold.rows(items, partition_by=("sellerID",)).group_by("sellerID").agg(price=ew.avg("price"))


def new_sellers(within: Duration = "12 hours") -> Stream:
    """The people who put something up for sale at most twelve hours after they registered.

    SELECT P.id, P.name, O.itemID FROM Person P WINDOW(RANGE 12 HOURS), OpenAuction O WHERE P.id = O.sellerID
    """
    return PERSON.range(within).join(OPEN_AUCTION, on={"id": "sellerID"}).select("id", "name", "itemID")


def highest_bid_tumbling(window: Duration = "10 minutes") -> Stream:
    """Every ten minutes the highest bid, or bids, of the ten minutes before.

    SELECT itemID, bid_price FROM Bid WINDOW(RANGE 10 MINUTES SLIDE 10 MINUTES)
    WHERE bid_price = (SELECT MAX(bid_price) FROM Bid WINDOW(RANGE 10 MINUTES SLIDE 10 MINUTES))
    """
    return highest_bid(window, window)


QUERIES: Final[Mapping[str, Callable[[], Stream]]] = MappingProxyType(
    {
        "q1": currency_conversion,
        "q2": selection,
        "q3": short_auctions,
        "q4": highest_bid,
        "q5": closing_price,
        "q6": hot_items,
        "q7": average_selling_price,
        "q8": new_sellers,
        "q9": highest_bid_tumbling,
    }
)

"""The NEXMark queries as text: the same as `queries`, in the continuous query language.

`DECLARATIONS` declares the four streams as the generator makes them: rows that live one tick, people and auctions
never corrected, every auction opened and closed once.  `TEXTS` has the queries by the names of `queries.QUERIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DECLARATIONS: Final = """\
CREATE STREAM Person (id INT KEY, name TEXT, city TEXT, state TEXT, timestamp TIMESTAMP)
  ORDERED BY timestamp INSERT ONLY;
CREATE STREAM OpenAuction (itemID INT KEY, sellerID INT, start_price REAL, category INT, timestamp TIMESTAMP)
  ORDERED BY timestamp INSERT ONLY;
CREATE STREAM ClosedAuction (itemID INT KEY, buyerID INT, timestamp TIMESTAMP)
  ORDERED BY timestamp INSERT ONLY;
CREATE STREAM Bid (itemID INT, bid_price REAL, bidderID INT, timestamp TIMESTAMP)
  ORDERED BY timestamp;
"""

_CLOSING_PRICE: Final = """\
CREATE STREAM CurrentPrice AS
  SELECT P.itemID, P.price, O.sellerID AS sellerID
  FROM ((SELECT itemID, bid_price AS price FROM Bid WINDOW(RANGE 2 DAYS))
        UNION ALL
        (SELECT itemID, start_price AS price FROM OpenAuction WINDOW(RANGE 2 DAYS))) P,
       ClosedAuction C, OpenAuction O WINDOW(RANGE 2 DAYS)
  WHERE P.itemID = C.itemID AND C.itemID = O.itemID;
CREATE STREAM ClosingPriceStream AS
  SELECT itemID, sellerID, MAX(price) AS price FROM CurrentPrice GROUP BY itemID, sellerID;
"""

TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "q1": "SELECT itemID, bid_price * 0.908 AS bid_price, bidderID FROM Bid",
        "q2": "SELECT Bid.* FROM Bid WHERE itemID = 1007 OR itemID = 1020 OR itemID = 2001 OR itemID = 2019 "
        "OR itemID = 1087",
        "q3": "SELECT O.* FROM OpenAuction O WINDOW(RANGE 5 HOURS), ClosedAuction C WHERE O.itemID = C.itemID",
        "q4": "SELECT itemID, bid_price FROM Bid WINDOW(RANGE 10 MINUTES)\n"
        "WHERE bid_price = (SELECT MAX(bid_price) FROM Bid WINDOW(RANGE 10 MINUTES))",
        "q5": _CLOSING_PRICE + "SELECT * FROM ClosingPriceStream",
        "q6": "SELECT itemID\n"
        "FROM (SELECT B1.itemID AS itemID, COUNT(*) AS num FROM Bid [RANGE 60 MINUTES] B1 GROUP BY B1.itemID)\n"
        "WHERE num >= ALL (SELECT COUNT(*) FROM Bid [RANGE 60 MINUTES] B2 GROUP BY B2.itemID)",
        "q7": _CLOSING_PRICE + "SELECT sellerID, AVG(price) AS price\n"
        "FROM ClosingPriceStream WINDOW(PARTITION BY sellerID ROWS 10) GROUP BY sellerID",
        "q8": "SELECT P.id, P.name, O.itemID FROM Person P WINDOW(RANGE 12 HOURS), OpenAuction O\n"
        "WHERE P.id = O.sellerID",
        "q9": "SELECT itemID, bid_price FROM Bid WINDOW(RANGE 10 MINUTES SLIDE 10 MINUTES)\n"
        "WHERE bid_price = (SELECT MAX(bid_price) FROM Bid WINDOW(RANGE 10 MINUTES SLIDE 10 MINUTES))",
    }
)

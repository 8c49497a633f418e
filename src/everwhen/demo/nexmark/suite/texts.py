"""NEXMark's queries q0 to q23, over the streams of `streams`.

A bid happens; a person is there from registration on; an auction lives while it is open, so "a bid while the auction is
open" is a join and needs no comparison of times.  Where other systems let an answer grow for ever, the stream stands
under WINDOW(UNBOUNDED).  Differences from the suite are few: q12 goes by the time of the bids, since a query has no
clock; q10 writes no files; prices in euros are REAL.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DECLARATIONS: Final = """\
CREATE STREAM Person (id INT KEY, name TEXT, email_address TEXT, credit_card TEXT, city TEXT, state TEXT,
  date_time TIMESTAMP, extra TEXT);
CREATE STREAM Auction (id INT KEY, item_name TEXT, description TEXT, initial_bid INT, reserve INT, date_time TIMESTAMP,
  expires TIMESTAMP, seller INT, category INT, extra TEXT);
CREATE STREAM Bid (auction INT, bidder INT, price INT, channel TEXT, url TEXT, date_time TIMESTAMP, extra TEXT,
  at TIMESTAMP) ORDERED BY at;
CREATE CONSTANT RELATION Side (key INT KEY, value TEXT);
"""

_HITS: Final = """\
CREATE STREAM Hit AS
  SELECT b.auction, b.bidder, b.price, b.date_time, a.category, a.seller FROM Bid b JOIN Auction a ON b.auction = a.id;
"""

_HOT: Final = """\
CREATE STREAM Hot AS
  SELECT auction, COUNT(*) AS num, window_start, window_end
  FROM HOP(TABLE Bid, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
  GROUP BY auction, window_start, window_end;
"""

_RANKS: Final = """\
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids"""

_DISTINCT: Final = """\
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions"""

TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "q0": "SELECT auction, bidder, price, date_time, extra FROM Bid",
        "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM Bid",
        "q2": "SELECT auction, price FROM Bid WHERE auction % 123 = 0",
        "q3": """SELECT p.name, p.city, p.state, a.id
FROM Auction a JOIN Person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        "q4": _HITS
        + """SELECT category, AVG(final) AS final
FROM (SELECT auction, category, MAX(price) AS final FROM Hit WINDOW(UNBOUNDED) GROUP BY auction, category) q
GROUP BY category""",
        "q5": _HOT
        + """SELECT h.auction, h.num, h.window_start, h.window_end
FROM Hot h JOIN (SELECT MAX(num) AS num, window_start FROM Hot GROUP BY window_start) m
  ON h.window_start = m.window_start AND h.num = m.num""",
        "q6": _HITS
        + """CREATE STREAM Sold AS
  SELECT d.id, d.seller, p.price
  FROM DSTREAM(Auction) d
  JOIN (SELECT auction, MAX(price) AS price FROM Hit WINDOW(UNBOUNDED) GROUP BY auction) p ON p.auction = d.id;
SELECT seller, AVG(price) AS price FROM Sold WINDOW(PARTITION BY seller ROWS 10) GROUP BY seller""",
        "q7": """CREATE STREAM Recent AS
  SELECT auction, price, bidder, date_time, window_start
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '10' SECOND);
SELECT r.auction, r.price, r.bidder, r.date_time
FROM Recent r JOIN (SELECT MAX(price) AS price, window_start FROM Recent GROUP BY window_start) m
  ON r.price = m.price AND r.window_start = m.window_start""",
        "q8": """SELECT p.id, p.name, p.window_start
FROM (SELECT DISTINCT id, name, window_start FROM TUMBLE(TABLE Person, INTERVAL '10' SECOND)) p
JOIN (SELECT DISTINCT seller, window_start FROM TUMBLE(TABLE Auction, INTERVAL '10' SECOND)) a
  ON p.id = a.seller AND p.window_start = a.window_start""",
        "q9": _HITS
        + """SELECT auction, bidder, price, date_time
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM Hit WINDOW(UNBOUNDED)
) h WHERE place <= 1""",
        "q10": """SELECT auction, bidder, price, date_time, extra,
  date_format(date_time, 'yyyy-MM-dd') AS dt, date_format(date_time, 'HH:mm') AS hm
FROM Bid""",
        "q11": """SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
FROM SESSION(TABLE Bid PARTITION BY bidder, DESCRIPTOR(at), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end""",
        "q12": """SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
FROM TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end""",
        "q13": """SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM Bid b JOIN Side s ON b.auction % 10000 = s.key""",
        "q14": """SELECT auction, bidder, 0.908 * price AS price,
  CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
       WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
       ELSE 'otherTime' END AS bid_time_type,
  date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM Bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        "q15": f"""SELECT date_format(date_time, 'yyyy-MM-dd') AS day,
{_RANKS},
{_DISTINCT}
FROM Bid WINDOW(UNBOUNDED) GROUP BY date_format(date_time, 'yyyy-MM-dd')""",
        "q16": f"""SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day,
  MAX(date_format(date_time, 'HH:mm')) AS minute,
{_RANKS},
{_DISTINCT}
FROM Bid WINDOW(UNBOUNDED) GROUP BY channel, date_format(date_time, 'yyyy-MM-dd')""",
        "q17": f"""SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day,
{_RANKS},
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM Bid WINDOW(UNBOUNDED) GROUP BY auction, date_format(date_time, 'yyyy-MM-dd')""",
        "q18": """SELECT auction, bidder, price, channel, url, date_time, extra
FROM Bid WINDOW(PARTITION BY bidder, auction ROWS 1)""",
        "q19": """SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM Bid WINDOW(UNBOUNDED)
) b WHERE rank_number <= 10""",
        "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.item_name,
  a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
  a.extra AS auction_extra
FROM Bid b JOIN Auction a ON b.auction = a.id WHERE a.category = 10""",
        "q21": """SELECT auction, bidder, price, channel,
  CASE WHEN lower(channel) = 'apple' THEN '0'
       WHEN lower(channel) = 'google' THEN '1'
       WHEN lower(channel) = 'facebook' THEN '2'
       WHEN lower(channel) = 'baidu' THEN '3'
       ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM Bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
   OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
        "q22": """SELECT auction, bidder, price, channel,
  split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM Bid""",
        "q23": """SELECT b.auction, b.bidder, b.price, a.item_name, a.category, p.name, p.city
FROM Bid b JOIN Auction a ON b.auction = a.id JOIN Person p ON a.seller = p.id""",
    }
)
"""The queries by name."""


def text(name: str) -> str:
    """A query with the declarations of what it reads.

    >>> import everwhen as ew
    >>> ew.sql(text("q2")).schema.names
    ('auction', 'price')
    """
    return DECLARATIONS + TEXTS[name]

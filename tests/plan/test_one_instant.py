"""Rows that live one tick meet those of the same instant only: that is said where it may not be meant."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.engine.session.sql_session import SqlSession
from everwhen.jobs.plan import job_plan
from everwhen.plan.explain import explain_text
from everwhen.plan.sanity.instants import one_instant

STREAMS = """
CREATE STREAM Bid (ts TIMESTAMP, item INT, price INT) ORDERED BY ts;
CREATE STREAM Auction (at TIMESTAMP, id INT, seller TEXT) ORDERED BY at;
CREATE STREAM Offer (item INT, price INT);
CREATE CONSTANT RELATION Item (id INT, name TEXT);
"""

TOLD = {
    "SELECT seller, price FROM Bid, Auction WHERE item = id": "rows of Bid and Auction live one tick, so only rows of "
    "the same instant meet in the join; to meet those of the last hour write Auction WINDOW(RANGE 1 HOUR)",
    "SELECT b.item FROM Bid b JOIN Auction a ON b.item = a.id AND b.ts BETWEEN a.at AND a.at + INTERVAL '1' HOUR":
    "only rows of the same instant meet",
    "SELECT item, COUNT(*) AS n FROM Bid GROUP BY item": "every instant has groups of its own; for the last "
    "hour write Bid WINDOW(RANGE 1 HOUR), for every hour TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
    "SELECT date_trunc('hour', ts) AS h, COUNT(*) AS n FROM Bid GROUP BY 1": "every instant has groups of its own",
    "SELECT item, LAG(price) OVER (PARTITION BY item ORDER BY ts) AS p FROM Bid": "neighbours of its own",
    "SELECT * FROM (SELECT item, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price) AS r FROM Bid) WHERE r < 3":
    "ranks of its own",
}  # fmt: skip


@pytest.mark.parametrize("text", TOLD)
def test_it_is_told_once(text: str) -> None:
    (hint,) = one_instant(ew.sql(STREAMS + text).node)
    assert TOLD[text] in hint


MEANT = (
    "SELECT item, price FROM Bid WHERE price > 3",
    "SELECT item, COUNT(*) AS n FROM Bid WINDOW(RANGE 1 HOUR) GROUP BY item",
    "SELECT item, COUNT(*) AS n FROM TUMBLE(Bid, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY item, window_start",
    "SELECT ts, COUNT(*) AS n FROM Bid GROUP BY ts",
    "SELECT price, seller FROM Bid b JOIN Auction a ON b.ts = a.at",
    "SELECT price, seller FROM Bid, Auction WINDOW(RANGE 1 HOUR) WHERE item = id",
    "SELECT name, price FROM Bid, Item WHERE item = id",
    "SELECT item, COUNT(*) AS n FROM Offer GROUP BY item",
)


@pytest.mark.parametrize("text", MEANT)
def test_what_is_meant_is_not_told(text: str) -> None:
    assert one_instant(ew.sql(STREAMS + text).node) == []


# -- wherever a query is started or looked at --------------------------------------------------------------------------

COUNT = "SELECT item, COUNT(*) AS n FROM Bid GROUP BY item"
SAYS = "rows of Bid live one tick, so every instant has groups of its own"


def test_explain_tells_it() -> None:
    text = explain_text("q", ew.sql(STREAMS + COUNT).node)
    assert "What may not be meant\n  - " + SAYS in text
    assert "What may not be meant" not in explain_text("q", ew.sql(STREAMS + MEANT[1]).node)


def test_a_session_tells_it() -> None:
    (started,) = (each for each in SqlSession().execute(STREAMS + COUNT) if each.kind == "started")
    (told,) = started.warnings
    assert told.startswith(SAYS)


def test_a_job_tells_it_once() -> None:
    source = "CREATE STREAM Bid (ts TIMESTAMP, item INT, price INT) ORDERED BY ts SOURCE file('bids.csv');"
    sinks = "".join(f"CREATE SINK {name} INTO discard() AS {COUNT};" for name in ("a", "b"))
    (told,) = job_plan(source + sinks).alone
    assert told.startswith(SAYS)

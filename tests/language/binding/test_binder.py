"""What the binder refuses: the place (between » and «), what is wrong, what there is, what to do."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.errors import QueryError, SqlError
from everwhen.language.catalog import Catalog, Declaration
from everwhen.language.program import program

BID = ew.source("Bid", {"itemID": "int64", "price": "float64", "who": "string", "ts": "timestamp[us]"})
AUCTION = ew.source("Auction", {"itemID": "int64", "seller": "int64"})

REFUSED = [
    ("SELECT »prise« FROM Bid", "unknown column 'prise'; did you mean 'price'? There is itemID, price, who, ts"),
    ("SELECT itemID FROM »Bids«", "unknown stream 'Bids'; did you mean 'Bid'?"),
    ("SELECT »b.itemID« FROM Bid a", "unknown stream 'b' in b.itemID; there is a"),
    ("SELECT »itemID« FROM Bid, Auction", "itemID could be that of Bid or Auction; write for example Bid.itemID"),
    ("SELECT »itemID«, COUNT(*) FROM Bid", "neither grouped by nor inside an aggregate; add it to GROUP BY"),
    ("SELECT »*« FROM Bid GROUP BY itemID", "* has the column price, which is neither grouped by"),
    ("SELECT »who + 1« FROM Bid", "needs numbers"),
    ("SELECT price * (»who + 1«) FROM Bid", "needs numbers"),
    ("SELECT * FROM Bid WHERE »price«", "a condition is true or false; this is of type double"),
    ("SELECT * FROM Bid WHERE »COUNT(*)« > 1", "conditions on aggregates stand in HAVING"),
    ("SELECT MAX(»MIN(price)«) FROM Bid", "cannot stand inside another aggregate"),
    ("SELECT »summ(price)« FROM Bid", "unknown function SUMM; did you mean SUM?"),
    ("SELECT »sum(who)« FROM Bid", "needs numbers; who is of type string"),
    ("SELECT »now()« FROM Bid", "a query has no clock"),
    ("SELECT »round(price, 1, 2)« FROM Bid", "round does not take 3 arguments"),
    ("SELECT »upper(DISTINCT who)« FROM Bid", "takes no DISTINCT"),
    ("SELECT * FROM Bid »WINDOW(RANGE 0 MINUTES)«", "at least one tick"),
    ("SELECT * FROM Bid WINDOW(RANGE »1 NANOSECOND«)", "not a whole number of ticks"),
    ("SELECT * FROM Bid WINDOW(PARTITION BY »foo« ROWS 3)", "unknown column 'foo'"),
    ("SELECT itemID FROM Bid UNION »SELECT who FROM Bid«", "do not fit together"),
    ("SELECT itemID FROM Bid UNION »SELECT itemID, price FROM Bid«", "1 on the left, 2 on the right"),
    ("SELECT »(SELECT price FROM Bid)« FROM Auction", "must be a single row at every instant"),
    ("SELECT * FROM Bid WHERE »itemID IN (SELECT itemID, price FROM Bid)«", "2 columns where 1 is compared"),
    ("SELECT * FROM Bid »a«, Bid a", "two of the streams are called a"),
    ("SELECT CAST(price AS »foo«) FROM Bid", "unknown type FOO"),
    ("SELECT * FROM Bid WHERE ts > »'yesterday'«", "'yesterday' cannot be cast"),
    ("SELECT »DATE '2026-13-01'« FROM Bid", "cannot be cast"),
    ("SELECT x FROM (SELECT price FROM Bid) WHERE »y« = 1", "unknown column 'y'; there is price"),
    ("SELECT quantile(price, »itemID«) FROM Bid", "the last argument of QUANTILE is a constant"),
    ("SELECT »first(price)« FROM Bid", "FIRST takes 2 values"),
    ("SELECT MAX(»NULL«) FROM Bid", "a NULL here has no type"),
    ("SELECT price FROM Bid GROUP BY »'a'«", "the number of a column of the answer, 1 to 1"),
    ("SELECT 1 FROM Bid GROUP BY »(SELECT MAX(price) FROM Bid)«", "GROUP BY has no subqueries"),
    ("SELECT * FROM Bid JOIN Auction USING (»price«)", "unknown column 'price'; there is itemID, seller"),
    ("SELECT price AS a, »who AS a« FROM Bid", "two columns are called a"),
    ("SELECT * FROM Bid WHERE »price > ALL (SELECT who FROM Bid)«", "do not fit together"),
    ("SELECT 1 FROM Bid a WHERE EXISTS (SELECT 1 FROM Auction b WHERE »b.foo« = a.itemID)", "unknown column 'b.foo'"),
    ("WITH a AS (SELECT 1 FROM Bid), »a« AS (SELECT 1 FROM Bid) SELECT * FROM a", "two queries a"),
    ("WITH a(»x, y«) AS (SELECT price FROM Bid) SELECT * FROM a", "2 names for a query of 1 columns"),
    ('SELECT * FROM Bid WHERE who = »"ann"«', "a text stands in single quotation marks"),
    ("CREATE STREAM X (a INT, b »FOO«); SELECT * FROM X", "unknown type FOO"),
    ("CREATE STREAM X (a INT, »a« TEXT); SELECT * FROM X", "two columns are called a"),
    ("CREATE STREAM X (a INT) ORDERED BY »b«; SELECT * FROM X", "unknown column 'b'"),
    ("CREATE STREAM X (a TEXT) ORDERED BY »a«; SELECT 1 FROM X", "a time is an integer or a timestamp"),
    ("CREATE STREAM X (a INT KEY, b INT) ORDERED BY b; CREATE STREAM »X« (a INT); SELECT 1 FROM X", "already"),
    ("CREATE STREAM X AS SELECT * FROM Bid; DROP STREAM »Bid«; SELECT 1 FROM X", "X is made from it; drop that first"),
    ("DROP STREAM »Nothing«; SELECT 1 FROM Bid", "unknown stream 'Nothing'"),
    ("»SELECT price FROM Bid«; SELECT who FROM Bid", "one query, at its end"),
    ("»CREATE STREAM X (a INT)«", "the text ends without a query"),
]


@pytest.mark.parametrize(("marked", "message"), REFUSED)
def test_refused_with_its_place(marked: str, message: str) -> None:
    start, end = marked.index("»"), marked.index("«") - 1
    text = marked.replace("»", "").replace("«", "")
    with pytest.raises(SqlError) as caught:
        ew.sql(text, BID, AUCTION)
    error = caught.value
    assert message in error.problem, error
    assert (error.line, error.column) == (1, start + 1), error
    assert str(error).splitlines()[-1].strip() == "^" * (end - start), error


def test_a_place_further_down() -> None:
    with pytest.raises(SqlError) as caught:
        ew.sql("SELECT itemID,\n\t  prise\nFROM Bid", BID)
    assert (caught.value.line, caught.value.column) == (2, 4)
    assert str(caught.value).splitlines()[1:] == ["  \t  prise", "  \t  ^^^^^"]


def test_of_a_long_line_the_part_around_the_place_is_shown() -> None:
    text = "SELECT " + ", ".join(["price"] * 100) + ", prise, " + ", ".join(["who"] * 100) + " FROM Bid"
    with pytest.raises(SqlError) as caught:
        ew.sql(text, BID)
    _, shown, caret = str(caught.value).splitlines()
    assert len(shown) < 120 and shown.startswith("  …") and shown.endswith("…")
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "prise"


def test_the_schema_of_an_undeclared_stream_is_asked_for() -> None:
    asked = []

    def found_in_a_file(name: str) -> Declaration | None:
        asked.append(name)
        return Declaration(n.Source(name, BID.schema), declared=False) if name == "Bid" else None

    found = program("SELECT price FROM Bid", Catalog(found=found_in_a_file))
    assert list(found.sources) == ["Bid"] and not found.sources["Bid"].declared
    with pytest.raises(SqlError, match="unknown stream 'Bod'"):
        program("SELECT price FROM Bod", Catalog(found=found_in_a_file))
    assert "Bod" in asked


def test_a_text_may_ask_for_a_level() -> None:
    assert ew.sql("SELECT price FROM Bid CONSISTENCY STRONG", BID).level == "strong"
    assert ew.sql("SELECT price FROM Bid CONSISTENCY (BLOCK 5 SECONDS, REMEMBER 1 HOUR)", BID).level == (5000, 3600000)
    query = ew.sql("SELECT COUNT(*) AS n FROM Bid CONSISTENCY (BLOCK 5 SECONDS, REMEMBER 1 SECOND)", BID)
    with pytest.raises(QueryError):
        list(ew.run(query, {"Bid": []}))


def test_streams_are_given_by_name() -> None:
    dear = BID.where(ew.col("price") > 5)
    assert ew.sql("SELECT who FROM Dear", {"Dear": dear}).schema.names == ("who",)
    with pytest.raises(QueryError, match="has no name"):
        ew.sql("SELECT who FROM Dear", dear)
    with pytest.raises(QueryError, match="takes streams"):
        ew.sql("SELECT who FROM Bid", 5)  # type: ignore[arg-type]

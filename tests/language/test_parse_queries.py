"""Queries and what stands in FROM: the tree of each construct."""

from __future__ import annotations

import pytest

from everwhen.language.parse import parse
from language.shown import shown

SOURCES = [
    ("Bid", "Bid"),
    ("Bid B", "Bid B"),
    ("Bid AS B", "Bid B"),
    ('"Bid" "B"', '"Bid" "B"'),
    ("Bid WINDOW(RANGE 10 MINUTES)", "Bid [range 10 MINUTES]"),
    ("Bid B WINDOW(RANGE 10 MINUTES)", "Bid [range 10 MINUTES] B"),
    ("Bid WINDOW(RANGE 10 MINUTES) B", "Bid [range 10 MINUTES] B"),
    ("Bid WINDOW(RANGE 10 MINUTES) AS B", "Bid [range 10 MINUTES] B"),
    ("Bid AS B window ( range 10 minutes )", "Bid [range 10 minutes] B"),
    ("Bid [RANGE 60 MINUTES] B1", "Bid [range 60 MINUTES] B1"),
    ("Bid B1 [ROWS 5]", "Bid [rows 5] B1"),
    ("Bid [NOW]", "Bid [range 1]"),
    ("Bid [RANGE UNBOUNDED]", "Bid [range unbounded]"),
    ("Bid [UNBOUNDED]", "Bid [range unbounded]"),
    ("Bid [Partition By a Rows 3]", "Bid [rows 3 by (a)]"),
    ("Bid WINDOW(UNBOUNDED)", "Bid [range unbounded]"),
    ("Bid WINDOW(NOW)", "Bid [range 1]"),
    ("Bid WINDOW(ROWS 10)", "Bid [rows 10]"),
    ("Bid WINDOW(ROWS UNBOUNDED)", "Bid [rows unbounded]"),
    ("Bid WINDOW(ROWS 10 SLIDE 5)", "Bid [rows 10 slide 5]"),
    ("Bid WINDOW(PARTITION BY sellerID, B.x ROWS 10)", "Bid [rows 10 by (sellerID B.x)]"),
    ("Bid WINDOW(PARTITION BY rows ROWS 10 SLIDE 2)", "Bid [rows 10 slide 2 by (rows)]"),
    ("Bid WINDOW(RANGE 10 MINUTES SLIDE 5 MINUTES)", "Bid [range 10 MINUTES slide 5 MINUTES]"),
    ("Bid WINDOW(ROWS 10 SLIDE 2 PARTITION BY a, b)", "Bid [rows 10 slide 2 by (a b)]"),
    ("Bid WINDOW(RANGE 100)", "Bid [range 100]"),
    ("Bid WINDOW(RANGE 100 SLIDE 10)", "Bid [range 100 slide 10]"),
    ("Bid WINDOW(RANGE 1.5 HOURS)", "Bid [range 1.5 HOURS]"),
    ("Bid WINDOW(RANGE 10min)", "Bid [range 10 min]"),
    ("Bid WINDOW(RANGE 5 ms)", "Bid [range 5 ms]"),
    ("Bid WINDOW(RANGE INTERVAL '10' MINUTE)", "Bid [range 10 MINUTE]"),
    ("Bid WINDOW(RANGE INTERVAL 10 MINUTE SLIDE 1 s)", "Bid [range 10 MINUTE slide 1 s]"),
    ("Bid WINDOW(RANGE INTERVAL '2 us')", "Bid [range 2000 ns]"),
    ("Bid WINDOW(RANGE INTERVAL '1ms 1us')", "Bid [range 1001000 ns]"),
    (
        "sensor WINDOW(RANGE 1 HOUR) GRANULARITY(1 MINUTE)",
        "sensor [range 1 HOUR] [granularity 1 MINUTE]",
    ),
    ("sensor GRANULARITY(10) S", "sensor [granularity 10] S"),
    (
        "Bid LIFETIME(HOP 10 MINUTES SHIFT 5 LENGTH 1 HOUR)",
        "Bid [lifetime hop 10 MINUTES shift 5 length 1 HOUR]",
    ),
    ("Bid LIFETIME(HOP 10, SHIFT 5, LENGTH 20) B", "Bid [lifetime hop 10 shift 5 length 20] B"),
    ("Bid LIFETIME(LENGTH UNBOUNDED)", "Bid [lifetime unbounded]"),
    ("Bid LIFETIME(LENGTH 5 SHIFT 1)", "Bid [lifetime shift 1 length 5]"),
    ("window window WINDOW(RANGE 1)", "window [range 1] window"),
    ("(SELECT a FROM t) P WINDOW(RANGE 1)", "(select a from t) [range 1] P"),
    ("(SELECT a FROM t) [ROWS 2] AS P", "(select a from t) [rows 2] P"),
    ("(SELECT a, b FROM t) AS P (x, y)", "(select a, b from t) P(x y)"),
    ("(SELECT a FROM t)", "(select a from t)"),
    ("((SELECT a FROM t)) P", "(select a from t) P"),
    ("((SELECT a FROM t) UNION ALL (SELECT b FROM u)) P", "((select a from t union all select b from u)) P"),
    ("(WITH x AS (SELECT a FROM t) SELECT * FROM x) P", "(with x = (select a from t) in select * from x) P"),
    ("SELECT a FROM t WHERE b", "(select a from t where b)"),
    ("Istream(Person) P", "istream(Person) P"),
    ("DSTREAM(Person) WINDOW(RANGE 5) P", "dstream(Person) [range 5] P"),
    ("RSTREAM(Person WINDOW(RANGE 5) Q) P", "rstream(Person [range 5] Q) P"),
    ("INSERTS(Bid)", "inserts(Bid)"),
    ("DELETES(Bid)", "deletes(Bid)"),
    ("COALESCE(Bid) C", "coalesce(Bid) C"),
    ("ISTREAM(SELECT a FROM t) P", "istream((select a from t)) P"),
    ("ISTREAM((SELECT a FROM t) Q WINDOW(RANGE 5)) P", "istream((select a from t) [range 5] Q) P"),
    (
        "ISTREAM((SELECT a FROM t) EXCEPT (SELECT b FROM u))",
        "istream(((select a from t except select b from u)))",
    ),
    ("ISTREAM(COALESCE(Bid))", "istream(coalesce(Bid))"),
    ("istream", "istream"),
    ("istream istream", "istream istream"),
    ("A, B b, C", "A, B b, C"),
    ("A JOIN B ON A.x = B.x", "<A inner B on (= A.x B.x)>"),
    ("A INNER JOIN B USING (x, y)", "<A inner B using (x y)>"),
    ("A LEFT JOIN B ON c", "<A left B on c>"),
    ("A LEFT OUTER JOIN B ON c", "<A left B on c>"),
    ("A RIGHT JOIN B ON c", "<A right B on c>"),
    ("A FULL OUTER JOIN B ON c", "<A full B on c>"),
    ("A CROSS JOIN B", "<A cross B>"),
    ("A SEMI JOIN B ON c", "<A semi B on c>"),
    ("A LEFT SEMI JOIN B ON c", "<A semi B on c>"),
    ("A a LEFT ANTI JOIN B b ON c", "<A a anti B b on c>"),
    ("A ANTI JOIN B USING (k)", "<A anti B using (k)>"),
    ("A JOIN B ON c JOIN C ON d", "<<A inner B on c> inner C on d>"),
    ("A JOIN B JOIN C ON d ON c", "<A inner <B inner C on d> on c>"),
    ("A JOIN (B JOIN C ON d) ON c", "<A inner <B inner C on d> on c>"),
    ("(A JOIN B ON c) LEFT JOIN C ON d, D", "<<A inner B on c> left C on d>, D"),
    ("((SELECT a FROM t) P JOIN B ON c)", "<(select a from t) P inner B on c>"),
    ("(A)", "A"),
    ("(A a WINDOW(RANGE 5))", "A [range 5] a"),
    (
        "A a WINDOW(RANGE 5) JOIN B [NOW] b ON a.x = b.x CROSS JOIN C GRANULARITY(2)",
        "<<A [range 5] a inner B [range 1] b on (= a.x b.x)> cross C [granularity 2]>",
    ),
    ("A SEMI", "A SEMI"),
    ("A,", "A"),
    ("A P,", "A P"),
]


@pytest.mark.parametrize(("text", "tree"), SOURCES, ids=[text for text, _ in SOURCES])
def test_what_stands_in_from(text: str, tree: str) -> None:
    assert shown(parse(f"SELECT * FROM {text}")) == f"select * from {tree}"


QUERIES = [
    ("SELECT ALL a FROM t", "select a from t"),
    ("SELECT DISTINCT a, b FROM t", "select distinct a, b from t"),
    ("SELECT DISTINCT(P.id, P.name) FROM P", "select distinct P.id, P.name from P"),
    ("SELECT DISTINCT (a) FROM t", "select distinct a from t"),
    ("SELECT DISTINCT (a), b FROM t", "select distinct a, b from t"),
    ("SELECT DISTINCT (a + b) * 2 c FROM t", "select distinct (* (+ a b) 2) as c from t"),
    ('SELECT a x, b AS y, c + 1 AS "Z" FROM t', 'select a as x, b as y, (+ c 1) as "Z" from t'),
    ("SELECT *, t.*, a FROM t", "select *, t.*, a from t"),
    ("SELECT OpenAuction.* FROM OpenAuction O", "select OpenAuction.* from OpenAuction O"),
    ("SELECT a FROM t, WHERE b", "select a from t where b"),
    ("SELECT a FROM t, GROUP BY a", "select a from t group a"),
    ("SELECT a FROM t, HAVING b", "select a from t having b"),
    ("SELECT (SELECT a FROM t,) FROM u", "select (scalar select a from t) from u"),
    (
        "SELECT a, COUNT(*) FROM t WHERE b > 1 GROUP BY a, 2, c + 1 HAVING COUNT(*) > 2",
        "select a, count[*] from t where (> b 1) group a, 2, (+ c 1) having (> count[*] 2)",
    ),
    ("SELECT a FROM t GROUP BY (a, b), c", "select a from t group a, b, c"),
    ("SELECT a FROM t GROUP BY (a)", "select a from t group a"),
    (
        "SELECT a FROM t UNION SELECT b FROM u UNION ALL SELECT c FROM v",
        "((select a from t union select b from u) union all select c from v)",
    ),
    (
        "SELECT a FROM t UNION DISTINCT SELECT b FROM u INTERSECT ALL SELECT c FROM v",
        "(select a from t union (select b from u intersect all select c from v))",
    ),
    (
        "SELECT a FROM t INTERSECT SELECT b FROM u EXCEPT ALL SELECT c FROM v",
        "((select a from t intersect select b from u) except all select c from v)",
    ),
    (
        "SELECT a FROM t EXCEPT (SELECT b FROM u EXCEPT SELECT c FROM v)",
        "(select a from t except (select b from u except select c from v))",
    ),
    ("(SELECT a FROM t)", "select a from t"),
    (
        "WITH x AS (SELECT a FROM t), y (b) AS ((SELECT a FROM x)) SELECT * FROM x, y",
        "with x = (select a from t), y(b) = (select a from x) in select * from x, y",
    ),
    (
        "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION SELECT a FROM x",
        "with x = (select a from t) in (select a from x union select a from x)",
    ),
    (
        "WITH recursive AS (SELECT a FROM t) SELECT a FROM recursive",
        "with recursive = (select a from t) in select a from recursive",
    ),
    ("ISTREAM(SELECT a FROM t)", "istream(select a from t)"),
    ("RSTREAM (SELECT a FROM t)", "rstream(select a from t)"),
    ("Dstream(SELECT a FROM t UNION ALL SELECT a FROM u)", "dstream((select a from t union all select a from u))"),
    (
        "ISTREAM(SELECT a FROM t) UNION ALL DSTREAM(SELECT a FROM t)",
        "(istream(select a from t) union all dstream(select a from t))",
    ),
    ("SELECT ISTREAM(a, b x) FROM t", "istream(select a, b as x from t)"),
    ("SELECT ISTREAM * FROM t", "istream(select * from t)"),
    ("SELECT ISTREAM(*) FROM t WHERE c", "istream(select * from t where c)"),
    ("SELECT Rstream(DISTINCT a) FROM t", "rstream(select distinct a from t)"),
    ("SELECT DISTINCT DSTREAM(a) FROM t", "dstream(select distinct a from t)"),
    ("SELECT istream * 2 FROM t", "select (* istream 2) from t"),
    ("SELECT istream.a FROM istream", "select istream.a from istream"),
    ("SELECT a FROM t CONSISTENCY STRONG", "select a from t @ strong"),
    ("SELECT a FROM t b CONSISTENCY middle;", "select a from t b @ middle"),
    ("SELECT a FROM t WHERE c CONSISTENCY Weak", "select a from t where c @ weak"),
    (
        "SELECT a FROM t CONSISTENCY (BLOCK 5 SECONDS, REMEMBER 1 HOUR)",
        "select a from t @ block 5 SECONDS remember 1 HOUR",
    ),
    ("SELECT a FROM t CONSISTENCY (REMEMBER 7)", "select a from t @ block unbounded remember 7"),
    ("SELECT a FROM t consistency", "select a from t consistency"),
    ("SELECT a /* x /* y */ z */ FROM -- no\n t", "select a from t"),
    ("\r\n SELECT\ta\r\nFROM t\u00a0", "select a from t"),
]


@pytest.mark.parametrize(("text", "tree"), QUERIES, ids=[text for text, _ in QUERIES])
def test_the_tree_of_a_query(text: str, tree: str) -> None:
    assert shown(parse(text)) == tree


def test_length_given_in_no_part_is_none() -> None:
    (ask,) = parse("SELECT a FROM t CONSISTENCY (REMEMBER 7)")
    assert ask.consistency.block is None  # type: ignore[union-attr]
    assert ask.consistency.remember.number == "7"  # type: ignore[union-attr]


THESIS = {
    "7.1": (
        """CREATE STREAM OpenAuction(itemID INT, sellerID INT,
                           start_price REAL, timestamp TIMESTAMP)
          SOURCE establishConnection('port34100', 'converter')
          ORDERED BY timestamp;""",
        "create stream OpenAuction (itemID int, sellerID int, start_price real, timestamp timestamp) "
        "source establishConnection('port34100', 'converter') ordered by timestamp",
    ),
    "7.2 currency": (
        "SELECT itemID, DolToEuro(bid_price), bidderID\nFROM Bid;",
        "select itemID, doltoeuro[bid_price], bidderID from Bid",
    ),
    "7.2 selection": (
        """SELECT Bid.* FROM Bid WHERE itemID = 1007 OR itemID = 1020
           OR itemID = 2001 OR itemID = 2019 OR itemID = 1087;""",
        "select Bid.* from Bid where (or (or (or (or (= itemID 1007) (= itemID 1020)) (= itemID 2001)) "
        "(= itemID 2019)) (= itemID 1087))",
    ),
    "7.2 short auctions": (
        """SELECT OpenAuction.* FROM OpenAuction O WINDOW(RANGE 5 HOURS), ClosedAuction C
           WHERE O.itemID = C.itemID;""",
        "select OpenAuction.* from OpenAuction [range 5 HOURS] O, ClosedAuction C where (= O.itemID C.itemID)",
    ),
    "7.3": (
        """CREATE STREAM CurrentPrice AS
             SELECT P.itemID, P.price, O.sellerID AS sellerID
             FROM ((SELECT itemID, bid_price AS price FROM Bid WINDOW(RANGE 2 DAYS))
                   UNION ALL
                   (SELECT itemID, start_price AS price FROM OpenAuction WINDOW(RANGE 2 DAYS))) P,
                  ClosedAuction C, OpenAuction O WINDOW(RANGE 2 DAYS)
             WHERE P.itemID = C.itemID AND C.itemID = O.itemID;
           CREATE STREAM ClosingPriceStream AS
             SELECT itemID, sellerID, MAX(P.price) AS price
             FROM CurrentPrice P,
             GROUP BY P.itemID, P.sellerID;""",
        "create CurrentPrice = select P.itemID, P.price, O.sellerID as sellerID from "
        "((select itemID, bid_price as price from Bid [range 2 DAYS] union all "
        "select itemID, start_price as price from OpenAuction [range 2 DAYS])) P, "
        "ClosedAuction C, OpenAuction [range 2 DAYS] O where (and (= P.itemID C.itemID) (= C.itemID O.itemID)) "
        "create ClosingPriceStream = select itemID, sellerID, max[P.price] as price from CurrentPrice P "
        "group P.itemID, P.sellerID",
    ),
    "7.4 highest bid": (
        """SELECT itemID, bid_price
           FROM   Bid WINDOW(RANGE 10 MINUTES),
           WHERE  bid_price = (SELECT MAX(bid_price) FROM BID WINDOW(RANGE 10 MINUTES));""",
        "select itemID, bid_price from Bid [range 10 MINUTES] where "
        "(= bid_price (scalar select max[bid_price] from BID [range 10 MINUTES]))",
    ),
    "7.4 hot item": (
        """SELECT itemID
           FROM  (SELECT    B1.itemID AS itemID, COUNT(*) AS num
                  FROM      Bid [RANGE 60 MINUTES] B1
                  GROUP BY B1.itemID)
           WHERE num >= ALL(SELECT COUNT(*)
                  FROM Bid [RANGE 60 MINUTES] B2
                  GROUP BY B2.itemID);""",
        "select itemID from (select B1.itemID as itemID, count[*] as num from Bid [range 60 MINUTES] B1 "
        "group B1.itemID) where (>= all num select count[*] from Bid [range 60 MINUTES] B2 group B2.itemID)",
    ),
    "17.7": (
        """CREATE STREAM NewPersonStream AS
             SELECT P.id, P.name
             FROM   Istream(Person) P;
           SELECT DISTINCT(P.id, P.name)
           FROM   SELECT P.id, P.name
                  FROM   NewPersonStream WINDOW(RANGE 12 HOURS) P, OpenAuction O
                  WHERE  P.id = O.sellerID;""",
        "create NewPersonStream = select P.id, P.name from istream(Person) P "
        "select distinct P.id, P.name from (select P.id, P.name from "
        "NewPersonStream [range 12 HOURS] P, OpenAuction O where (= P.id O.sellerID))",
    ),
    "20.1": (
        """SELECT AVG(temperature)
             FROM sensor WINDOW(RANGE 1 HOUR) GRANULARITY(1 MINUTE);""",
        "select avg[temperature] from sensor [range 1 HOUR] [granularity 1 MINUTE]",
    ),
}


@pytest.mark.parametrize("example", THESIS)
def test_examples_of_the_thesis(example: str) -> None:
    text, tree = THESIS[example]
    assert shown(parse(text)) == tree

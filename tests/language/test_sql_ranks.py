"""LIMIT, DISTINCT ON and OVER in SQL: what they mean as plans, and what is said where they are wrong.

Whether answers are right says DuckDB (`test_sql_duckdb`, shapes in `rank_shapes`)."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Map, Ordering, Over, Rank, walk
from everwhen.errors import SqlError
from everwhen.language.program import program

DECLARED = "CREATE STREAM Bid (item TEXT, price INT, who TEXT, due TIMESTAMP);\n"


def rank_of(text: str) -> Rank:
    """The only rank of a query, rewritten."""
    found = [node for node in walk(ew.sql(DECLARED + text).node) if isinstance(node, Rank)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("text", "limit", "offset"),
    [
        ("SELECT item FROM Bid ORDER BY item LIMIT 3", 3, 0),
        ("SELECT item FROM Bid ORDER BY item LIMIT 3 OFFSET 2", 3, 2),
        ("SELECT item FROM Bid ORDER BY item OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY", 3, 2),
        ("SELECT item FROM Bid ORDER BY item OFFSET 2", None, 2),
        ("SELECT item FROM Bid FETCH FIRST ROW ONLY", 1, 0),
        ("(SELECT item FROM Bid) ORDER BY 1 LIMIT 3", 3, 0),
        ("WITH b AS (SELECT item FROM Bid) SELECT item FROM b ORDER BY item LIMIT 3", 3, 0),
    ],
)
def test_limits(text: str, limit: int | None, offset: int) -> None:
    rank = rank_of(text)
    assert (rank.limit, rank.offset, rank.name, rank.kind) == (limit, offset, None, "row_number")


def test_a_limit_with_ties_is_a_rank() -> None:
    rank = rank_of("SELECT item, price FROM Bid ORDER BY price DESC FETCH FIRST 2 ROWS WITH TIES")
    assert (rank.kind, rank.limit, rank.order) == ("rank", 2, (Ordering("price", True),))


def test_what_is_ordered_by_need_not_be_in_the_answer() -> None:
    query = ew.sql(DECLARED + "SELECT item FROM Bid ORDER BY price * 2 DESC NULLS FIRST LIMIT 1")
    assert isinstance(query.node, Map) and query.schema.names == ("item",)
    assert rank_of("SELECT item FROM Bid ORDER BY price * 2 DESC NULLS FIRST LIMIT 1").order[0][1:] == (True, True)


_TOP = "SELECT item, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS rn FROM Bid) x "


@pytest.mark.parametrize(
    ("test", "limit", "offset"),
    [
        ("rn <= 3", 3, 0),
        ("rn < 3", 2, 0),
        ("3 >= rn", 3, 0),
        ("rn = 1", 1, 0),
        ("rn = 3", 1, 2),
        ("rn BETWEEN 2 AND 4", 3, 1),
        ("rn > 2", None, 2),
        ("rn <= 3 AND rn > 5", 0, 5),
        ("rn = 0", 0, 0),
    ],
)
def test_a_condition_on_a_rank_is_its_limit(test: str, limit: int | None, offset: int) -> None:
    rank = rank_of(f"{_TOP} WHERE {test}")
    assert (rank.limit, rank.offset, rank.name, rank.partition) == (limit, offset, None, ("item",))


def test_conditions_on_partitions_go_below_and_others_stay() -> None:
    text = str(ew.sql(f"{DECLARED}{_TOP} WHERE rn <= 2 AND item = 'pen' AND price > 3"))
    lines = [line.strip("└─ ") for line in text.splitlines()]
    assert [line.split()[0] for line in lines] == ["Select", "Filter", "Rank", "Filter", "Source"]
    assert lines[1] == "Filter price > 3" and lines[3] == "Filter item = 'pen'"


def test_a_rank_that_nobody_reads_is_none() -> None:
    query = ew.sql(DECLARED + "SELECT item FROM (SELECT item, RANK() OVER (ORDER BY price) AS r FROM Bid) x")
    assert not any(isinstance(node, Rank) for node in walk(query.node))


def test_calls_of_one_order_are_one_operator() -> None:
    query = ew.sql(
        DECLARED
        + "SELECT item, SUM(price) OVER (PARTITION BY item ORDER BY due) AS s, LAG(price) OVER (PARTITION BY item "
        "ORDER BY due) AS l, SUM(price) OVER (PARTITION BY item ORDER BY due) + 1 AS t FROM Bid"
    )
    (over,) = [node for node in walk(query.node) if isinstance(node, Over)]
    assert [each.function for each in over.functions] == ["sum", "lag"]


def test_an_interval_is_a_range_of_times() -> None:
    query = ew.sql(
        DECLARED
        + "SELECT AVG(price) OVER (ORDER BY due RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT ROW) AS a "
        "FROM Bid"
    )
    (over,) = [node for node in walk(query.node) if isinstance(node, Over)]
    assert str(over.functions[0].frame) == "range -300000000 to current"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT item FROM Bid WHERE RANK() »OVER (ORDER BY price)« < 3", "not in WHERE"),
        ("SELECT item FROM Bid GROUP BY item HAVING RANK() »OVER (ORDER BY item)« < 3", "not in HAVING"),
        ("SELECT »RANK() OVER (ORDER BY SUM(price) OVER ())« FROM Bid", "inside OVER"),
        ("SELECT ROW_NUMBER() »OVER (PARTITION BY item)« FROM Bid", "needs an ORDER BY in OVER"),
        ("SELECT »RANK(price) OVER (ORDER BY price)« FROM Bid", "takes nothing"),
        ("SELECT RANK() OVER (ORDER BY price »ROWS 1 PRECEDING«) FROM Bid", "takes no frame"),
        ("SELECT »LAG(price) OVER ()« FROM Bid", "LAG needs an ORDER BY"),
        ("SELECT LAG(price, »who«) OVER (ORDER BY due) FROM Bid", "is a constant"),
        ("SELECT »LAG(price, 1, 'x') OVER (ORDER BY due)« FROM Bid", "not of the column's type"),
        ("SELECT »MEDIAN(price) OVER (ORDER BY due)« FROM Bid", "there is no MEDIAN OVER"),
        ("SELECT »SUM(DISTINCT price) OVER (ORDER BY due)« FROM Bid", "DISTINCT"),
        ("SELECT »SUM(who) OVER (ORDER BY due)« FROM Bid", "needs numbers"),
        ("SELECT SUM(price) OVER (ORDER BY due RANGE »price PRECEDING«) FROM Bid", "a constant from 0 on"),
        ("SELECT »SUM(price) OVER (ORDER BY who RANGE 1 PRECEDING)« FROM Bid", "whole numbers, floats or times"),
        ("SELECT item, price FROM Bid ORDER BY »3« LIMIT 1", "1 to 2"),
        ("SELECT item FROM Bid ORDER BY »nope« LIMIT 1", "unknown column 'nope'"),
        ("SELECT DISTINCT item FROM Bid ORDER BY »price« LIMIT 1", "names columns of the answer"),
        ("SELECT item FROM Bid UNION SELECT who FROM Bid ORDER BY »price + 1« LIMIT 1", "is no SELECT"),
        ("»SELECT item FROM Bid ORDER BY item OFFSET 1 ROW FETCH FIRST 2 ROWS WITH TIES«", "do not go together"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_place(text: str, problem: str) -> None:
    start = len(DECLARED) + text.index("»")
    with pytest.raises(SqlError) as raised:
        program(DECLARED + text.replace("»", "").replace("«", ""))
    assert problem in raised.value.problem
    assert raised.value.start == start
    assert str(raised.value).splitlines()[-1].count("^") == text.index("«") - text.index("»") - 1

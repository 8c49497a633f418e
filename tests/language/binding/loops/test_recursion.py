"""WITH RECURSIVE: what is refused and where, and the plans of what is not."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Fixpoint, Recursion, walk
from everwhen.core.loop_options import LoopOptions
from everwhen.errors import SqlError

STREAMS = (
    ew.source("Start", {"n": "int64"}),
    ew.source("Link", {"a": "int64", "b": "int64", "w": "int64"}),
    ew.source("Word", {"s": "string"}),
)

SET = "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION {}) SELECT * FROM r"
BAG = "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION ALL {}) SELECT * FROM r"
MIN = (
    "WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) AS c FROM (SELECT n, 0 AS c FROM Start UNION ALL {}) u GROUP BY n) "
    "SELECT * FROM d"
)
MAX = MIN.replace("MIN(", "MAX(")

REFUSED = [
    # what takes back when the recursion grows
    (SET.format("(SELECT b FROM Link EXCEPT SELECT n FROM »r«)"), "EXCEPT over r inside its own recursion"),
    (SET.format("(SELECT n FROM »r« EXCEPT SELECT b FROM Link)"), "write WHERE NOT EXISTS"),
    (SET.format("(SELECT n FROM »r« EXCEPT ALL SELECT b FROM Link)"), "write WHERE NOT EXISTS"),
    (SET.format("SELECT b FROM Link WHERE a NOT IN (SELECT n FROM »r«)"), "NOT IN, NOT EXISTS or an anti-join over r"),
    (SET.format("SELECT b FROM Link WHERE NOT EXISTS (SELECT * FROM »r« WHERE n = a)"), "ask for it behind"),
    (SET.format("SELECT b FROM Link WHERE NOT EXISTS (SELECT * FROM »r«)"), "ask for it behind"),
    (SET.format("SELECT b FROM Link ANTI JOIN »r« ON a = n"), "ask for it behind"),
    (SET.format("SELECT b FROM Link LEFT JOIN »r« ON a = n"), "padded with nulls"),
    (SET.format("SELECT b FROM »r« RIGHT JOIN Link ON a = n"), "padded with nulls"),
    (SET.format("SELECT b FROM »r« FULL JOIN Link ON a = n"), "padded with nulls"),
    (SET.format("SELECT b FROM Link WHERE a < ALL (SELECT n FROM »r«)"), "more is asked than whether"),
    (SET.format("SELECT b FROM Link WHERE a IN (SELECT n FROM »r«) OR b = 1"), "more is asked than whether"),
    # aggregates
    (SET.format("SELECT COUNT(*) FROM »r«"), "count(*) over r inside its own recursion would depend on the round"),
    (SET.format("SELECT MAX(b) FROM Link, »r« WHERE a = n GROUP BY a"), "max(b) over r"),
    (SET.format("SELECT n FROM »r« GROUP BY n"), "GROUP BY over r"),
    (
        "WITH RECURSIVE d(n, c) AS (SELECT n, »SUM(c)« FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT b, c FROM "
        "d, Link) "
        "u GROUP BY n) SELECT * FROM d",
        "SUM cannot stand over a recursion",
    ),
    (
        "WITH RECURSIVE d(n, c) AS (SELECT n, »MIN(c)« + 1 FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT b, c "
        "FROM d, "
        "Link) u GROUP BY n) SELECT * FROM d",
        "MIN cannot stand over a recursion",
    ),
    (
        "WITH RECURSIVE d(n, c, e) AS (SELECT n, MIN(c), »MAX(c)« FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT "
        "b, c "
        "FROM d, Link) u GROUP BY n) SELECT * FROM d",
        "exactly one MIN or MAX",
    ),
    (
        "WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT b, c FROM d, "
        "Link) u "
        "GROUP BY n HAVING »MIN(c) > 1«) SELECT * FROM d",
        "HAVING cannot stand inside",
    ),
    (
        "WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT b, c FROM d, "
        "Link) u "
        "»WINDOW(RANGE 5)« GROUP BY n) SELECT * FROM d",
        "a window cannot stand over the recursion d",
    ),
    (
        "WITH RECURSIVE d(c) AS (»SELECT MIN(c) FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT b, c FROM d, "
        "Link) u "
        "GROUP BY n«) SELECT * FROM d",
        "the columns of SELECT are those of GROUP BY",
    ),
    # other instants
    (SET.format("SELECT n FROM »r« WINDOW(RANGE 5)"), "a window over r inside its own recursion"),
    (SET.format("SELECT n FROM »r« WINDOW(ROWS 5)"), "a window of rows over r"),
    (SET.format("SELECT n FROM »r« GRANULARITY(5)"), "GRANULARITY over r"),
    (SET.format("SELECT n FROM ISTREAM(»r«)"), "ISTREAM over r"),
    (SET.format("DSTREAM(SELECT n FROM »r«)"), "DSTREAM over r"),
    (SET.format("RSTREAM(SELECT n FROM »r«)"), "RSTREAM over r"),
    (SET.format("SELECT n FROM »r« LIFETIME(LENGTH 3)"), "LIFETIME or INSERTS over r"),
    (SET.format("SELECT n FROM DELETES(»r«)"), "DELETES over r"),
    (SET.format("SELECT n FROM LMERGE(»r«, Start)"), "LMERGE cannot stand over r"),
    # copies
    (BAG.format("SELECT DISTINCT b FROM »r«, Link WHERE a = n"), "which counts them (UNION ALL)"),
    (BAG.format("SELECT b FROM Link WHERE a IN (SELECT n FROM »r«)"), "takes it as a set"),
    (BAG.format("(SELECT n FROM »r« INTERSECT ALL SELECT a FROM Link)"), "INTERSECT takes r as a set"),
    (
        "WITH RECURSIVE »r«(n) AS (SELECT n FROM Start UNION SELECT b FROM r, Link WHERE a = n UNION ALL SELECT n "
        "FROM r) "
        "SELECT * FROM r",
        "mixes UNION and UNION ALL",
    ),
    # no base, other columns
    ("WITH RECURSIVE »r«(n) AS (SELECT n FROM r) SELECT * FROM r", "nothing to begin with"),
    ("WITH RECURSIVE »r« AS (SELECT n FROM r UNION SELECT n + 1 FROM r) SELECT * FROM r", "nothing to begin with"),
    (
        "WITH RECURSIVE »a«(n) AS (SELECT n FROM b UNION SELECT n FROM a), b(n) AS (SELECT n FROM a) SELECT * FROM a",
        "a and b use each other, and none has a part that reads none of them",
    ),
    (
        "WITH RECURSIVE »r«(n) AS (SELECT n FROM Start UNION SELECT b FROM Link EXCEPT SELECT n FROM r) SELECT * "
        "FROM r",
        "is an EXCEPT as a whole",
    ),
    (SET.format("»SELECT a, b FROM r, Link WHERE a = n«"), "r has 1, this one has 2"),
    (SET.format("»SELECT s FROM r, Word«"), "column n of r"),
    ("WITH RECURSIVE r(»n, m«) AS (SELECT n FROM Start UNION SELECT b FROM r, Link) SELECT * FROM r", "2 names for a "
    "query"),
    (
        "WITH RECURSIVE »r«(x) AS (SELECT CAST(1 AS DECIMAL(3, 1)) FROM Start UNION SELECT x * CAST(1.5 AS "
        "DECIMAL(2, 1)) FROM r) SELECT * FROM r",
        "wider in every round",
    ),
    # several names
    (
        "WITH RECURSIVE a(n) AS (SELECT n FROM Start UNION SELECT n FROM b), »b«(n) AS (SELECT n FROM a UNION ALL "
        "SELECT n "
        "FROM b) SELECT * FROM a",
        "copies cannot be counted through a set",
    ),
    (
        "WITH RECURSIVE a(n, c) AS (SELECT n, MIN(c) FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT n, c FROM b) "
        "u GROUP "
        "BY n), »b«(n, c) AS (SELECT n, MAX(c) FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT n, c FROM a) u "
        "GROUP BY n) "
        "SELECT * FROM a",
        "all values get smaller or all get larger",
    ),
    (
        "WITH RECURSIVE a ROUNDS 1 AS (SELECT n FROM Start UNION SELECT n FROM b), b »ROUNDS 2« AS (SELECT n FROM a "
        "UNION "
        "SELECT n + 1 FROM a) SELECT * FROM a",
        "say it once",
    ),
    ("WITH RECURSIVE a »ROUNDS 1« AS (SELECT n FROM Start) SELECT * FROM a", "a does not read itself"),
    ("WITH RECURSIVE r AS (SELECT n FROM Start), »R« AS (SELECT n FROM Start) SELECT * FROM r", "two queries R"),
    (
        SET.format("SELECT m FROM (WITH RECURSIVE q(m) AS (SELECT n FROM »r« UNION SELECT b FROM q, Link WHERE a = "
        "m) SELECT "
        "m FROM q)"),
        "q is a recursion of its own and reads r",
    ),
    # the value of MIN and MAX
    (MIN.format("SELECT b, c + w FROM »d«, Link WHERE a = n AND c > 3"), "the condition c > 3"),
    (MIN.format("SELECT b, w - c FROM »d«, Link WHERE a = n"), "its next value"),
    (MIN.format("SELECT b, c * w FROM »d«, Link WHERE a = n"), "its next value"),
    (MIN.format("SELECT b, c FROM »d«, Link WHERE a = n AND w = c"), "equality"),
    (MIN.format("SELECT c, w FROM »d«, Link WHERE a = n"), "makes the column n of the value that MIN takes"),
    (MIN.format("SELECT p.n, p.c FROM »d« p, d q WHERE p.c < q.c"), "the condition"),
    (MIN.format("SELECT n, CASE WHEN c > 1 THEN 0 ELSE c END FROM »d«"), "its next value"),
    (MAX.format("SELECT b, c + w FROM »d«, Link WHERE a = n AND c < 3"), "x > e and x >= e"),
    (MIN.format("SELECT n, c FROM »d« ANTI JOIN Link ON c = b"), "equality"),
]  # fmt: skip

ALLOWED = [
    SET.format("SELECT b FROM r JOIN Link ON a = n"),
    SET.format("SELECT b FROM Link WHERE a IN (SELECT n FROM r)"),
    SET.format("SELECT b FROM Link WHERE EXISTS (SELECT * FROM r WHERE n = a)"),
    SET.format("SELECT DISTINCT b FROM r, Link WHERE a = n"),
    SET.format("(SELECT n + 1 FROM r INTERSECT SELECT a FROM Link)"),
    SET.format("SELECT p.n + q.n FROM r p, r q WHERE p.n + q.n < 9"),
    SET.format("SELECT n + 1 FROM r WHERE n NOT IN (SELECT a FROM Link)"),
    SET.format("SELECT n + 1 FROM r WHERE n > (SELECT MAX(a) FROM Link)"),
    SET.format("SELECT n + w FROM r LEFT JOIN Link ON a = n"),
    SET.format("SELECT b FROM r, Link WINDOW(RANGE 5) WHERE a = n"),
    BAG.format("SELECT b FROM r, Link WHERE a = n"),
    BAG.format("SELECT n + 1 FROM r WHERE n IN (SELECT a FROM Link)"),
    BAG.format("SELECT n + 1 FROM r WHERE n NOT IN (SELECT a FROM Link) AND n < 5"),
    MIN.format("SELECT b, c + w FROM d, Link WHERE a = n AND c < 9 AND c + 1 <= w"),
    MIN.format("SELECT b, c - w FROM d, Link WHERE a = n"),
    MIN.format("SELECT b, LEAST(c, w) FROM d, Link WHERE a = n"),
    MIN.format("SELECT b, GREATEST(c + 1, w) FROM d, Link WHERE a = n AND NOT c > 3"),
    MIN.format("SELECT q.n, p.c + q.c FROM d p, d q WHERE p.n < q.n"),
    MIN.format("SELECT n + 1, 2 * c FROM d WHERE n IN (SELECT n FROM d) AND c IS NOT NULL"),
    MAX.format("SELECT b, LEAST(c, w) FROM d, Link WHERE a = n AND c > 3"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_refused_and_where(text: str, message: str) -> None:
    start = text.index("»")
    plain = text.replace("»", "").replace("«", "")
    with pytest.raises(SqlError) as caught:
        ew.sql(plain, *STREAMS)
    assert message in caught.value.problem
    assert caught.value.start == start, caught.value
    with pytest.raises(SqlError) as as_written:
        ew.sql(plain, *STREAMS, optimize=False)
    assert (as_written.value.start, as_written.value.problem) == (start, caught.value.problem)


def test_the_place_in_a_text_of_several_lines() -> None:
    text = "WITH RECURSIVE r(n) AS (\n  SELECT n FROM Start\n  UNION\n  SELECT COUNT(*) FROM r\n)\nSELECT * FROM r"
    with pytest.raises(SqlError) as caught:
        ew.sql(text, *STREAMS)
    assert (caught.value.line, caught.value.column) == (4, 24)
    assert str(caught.value).endswith("  SELECT COUNT(*) FROM r\n                         ^")


@pytest.mark.parametrize("text", ALLOWED)
def test_what_is_allowed(text: str) -> None:
    for optimize in (True, False):
        query = ew.sql(text, *STREAMS, optimize=optimize)
        assert any(isinstance(node, Fixpoint) for node in walk(query.node))


def loop(text: str) -> Fixpoint:
    (found,) = [node for node in walk(ew.sql(text, *STREAMS, optimize=False).node) if isinstance(node, Fixpoint)]
    return found


def test_options() -> None:
    clause = "MAX RECURSION LEVEL 7 ROUNDS 2 PROGRESS HIGH WATER MARK"
    text = (
        f"WITH RECURSIVE r(n) {clause} AS (SELECT n FROM Start UNION SELECT b FROM r, Link WHERE a = n) SELECT * FROM r"
    )
    assert loop(text).options == LoopOptions(2, "high water mark", 7)
    assert loop(text.replace(clause, "")).options == LoopOptions()
    assert loop(text.replace(clause, "PROGRESS PROBING")).options == LoopOptions(progress="probing")
    assert loop(text.replace(clause, "ACROSS PARTITIONS")).options == LoopOptions(across=True)
    with pytest.raises(ew.QueryError, match="leave out one of the two"):
        loop(text.replace(clause, "ROUNDS 2 ACROSS PARTITIONS"))


def test_branches_that_do_not_read_the_name_are_the_base() -> None:
    found = loop(SET.format("SELECT b FROM r, Link WHERE a = n UNION SELECT a FROM Link UNION SELECT n + 1 FROM r"))
    assert found.kind == "union"
    assert not any(isinstance(node, Recursion) for node in walk(found.base))
    assert sum(isinstance(node, Recursion) for node in walk(found.step)) == 2


def test_a_with_around_the_union_goes_into_its_branches() -> None:
    found = loop(
        "WITH RECURSIVE r(n) AS (WITH one AS (SELECT n + 1 AS n FROM r), two AS (SELECT a FROM Link) "
        "SELECT a FROM two UNION SELECT n FROM one) SELECT * FROM r"
    )
    assert [node.place for node in walk(found.step) if isinstance(node, Recursion)] == [(1, 61)]


def test_types_are_those_of_union() -> None:
    assert str(
        loop("WITH RECURSIVE r(x) AS (SELECT n FROM Start UNION SELECT x * 0.5e0 FROM r) SELECT * FROM r").schema
    ) == ("(x double)")


def test_columns_of_a_min_are_in_the_order_of_the_text() -> None:
    found = loop(
        "WITH RECURSIVE d AS (SELECT MIN(c) AS c, n FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT b, c + w FROM "
        "d, Link "
        "WHERE a = n) u GROUP BY n) SELECT * FROM d"
    )
    assert (found.kind, found.value, found.schema.names, found.keys) == ("min", "c", ("c", "n"), ("n",))


def test_names_that_do_not_read_themselves_are_plain_and_may_come_later() -> None:
    query = ew.sql("WITH RECURSIVE a AS (SELECT n FROM b), b AS (SELECT n FROM Start) SELECT * FROM a", *STREAMS)
    assert str(query) == "Source Start (n int64)"


def test_several_variables_are_one_loop_over_tagged_rows() -> None:
    text = (
        "WITH RECURSIVE a(n) AS (SELECT n FROM Start UNION SELECT x FROM b), "
        "b(x, y) AS (SELECT n, 'b' FROM a UNION SELECT n + 1, 'c' FROM a WHERE n < 5) SELECT * FROM b"
    )
    found = loop(text)
    assert str(found.schema) == "(variable int8, a.n int64, b.x int64, b.y string)"
    assert str(ew.sql(text, *STREAMS).schema) == "(x int64, y string)"


def test_a_set_beside_a_min_has_a_constant_value() -> None:
    found = loop(
        "WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) FROM (SELECT n, 0 AS c FROM Start UNION ALL SELECT n, 1 FROM s) "
        "u GROUP "
        "BY n), s(n) AS (SELECT n + 1 FROM d WHERE n < 5 UNION SELECT n + 2 FROM d WHERE n < 5) SELECT * FROM s"
    )
    assert (found.kind, found.value, str(found.schema)) == (
        "min", "value", "(variable int8, d.n int64, s.n int64, value int64)",
    )  # fmt: skip


def test_names_without_union_are_put_in_where_they_are_read() -> None:
    found = loop(
        "WITH RECURSIVE a(n) AS (SELECT n FROM Start UNION SELECT n FROM b), b(n) AS (SELECT b FROM a, Link WHERE a "
        "= n) "
        "SELECT * FROM b"
    )
    assert found.schema.names == ("n",)


def test_a_name_read_only_where_it_does_not_matter_makes_no_loop() -> None:
    text = SET.format("SELECT b FROM Link WHERE EXISTS (SELECT COUNT(*) FROM r)")
    assert not any(isinstance(node, Fixpoint) for node in walk(ew.sql(text, *STREAMS).node))


def test_wherever_with_may_stand() -> None:
    inner = SET.format("SELECT b FROM r, Link WHERE a = n")
    texts = [
        f"SELECT n FROM ({inner}) p",
        f"SELECT n FROM Start WHERE n IN ({inner})",
        f"CREATE STREAM Reach AS {inner}; SELECT n FROM Reach WHERE n > 1",
        f"WITH x AS ({inner}) SELECT n FROM x",
    ]
    for text in texts:
        assert any(isinstance(node, Fixpoint) for node in walk(ew.sql(text, *STREAMS).node)), text

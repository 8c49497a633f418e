"""CREATE and DROP, several statements in a text, and the place of every node."""

from __future__ import annotations

import pytest

from everwhen.language import syntax as s
from everwhen.language.parse import parse
from language.shown import shown, walk

STATEMENTS = [
    ("CREATE STREAM S (a INT)", "create stream S (a int)"),
    ("create or replace stream S (a INT)", "create or replace stream S (a int)"),
    (
        "CREATE STREAM S (a INT KEY, b TEXT PRIMARY KEY, c REAL UNIQUE)",
        "create stream S (a int key, b text key, c real key)",
    ),
    (
        "CREATE STREAM S (a INT, b INT, KEY (a, b), PRIMARY KEY (a), UNIQUE (b))",
        "create stream S (a int, b int) key (a b) key (a) key (b)",
    ),
    (
        "CREATE STREAM S (key INT, unique INT, period INT, primary INT)",
        "create stream S (key int, unique int, period int, primary int)",
    ),
    (
        "CREATE STREAM S (a DECIMAL(10,2), b VARCHAR(20), c DOUBLE PRECISION, d TIMESTAMP, e time with time zone)",
        "create stream S (a decimal(10, 2), b varchar(20), c double precision, d timestamp, e time with time zone)",
    ),
    (
        "CREATE STREAM S (a INT, t INT) INSERT ONLY ORDERED BY t SOURCE f('x', 3, -1.5, TRUE, NULL)",
        "create stream S (a int, t int) source f('x', 3, -1.5, True, None) ordered by t insert only",
    ),
    (
        "CREATE STREAM S (a INT) ARRIVES IN ORDER STRICTLY INSERT ONLY",
        "create stream S (a int) insert only arrives strictly",
    ),
    ("CREATE STREAM S (a INT) ARRIVES IN ORDER", "create stream S (a int) arrives in order"),
    ("CREATE STREAM S (a INT) SOURCE f() INSERT ONLY", "create stream S (a int) source f() insert only"),
    ("CREATE STREAM S (a INT, f INT, u INT, PERIOD (f, u))", "create stream S (a int, f int, u int) period (f u)"),
    ("CREATE RELATION R (a INT)", "create constant R (a int)"),
    ("CREATE CONSTANT RELATION R (a INT) SOURCE f('x')", "create constant R (a int) source f('x',)"),
    ("CREATE RELATION R (a INT, f INT, u INT, PERIOD (f, u))", "create temporal R (a int, f int, u int) period (f u)"),
    ("CREATE TEMPORAL RELATION R (f INT, PERIOD (f, u), u INT)", "create temporal R (f int, u int) period (f u)"),
    ("CREATE OR REPLACE VARYING RELATION R (a INT)", "create or replace varying R (a int)"),
    ("CREATE STREAM S AS SELECT a FROM t", "create S = select a from t"),
    (
        'CREATE OR REPLACE STREAM "S" (x, "y") AS (SELECT a, b FROM t)',
        'create or replace "S"(x "y") = select a, b from t',
    ),
    (
        "CREATE STREAM S AS WITH x AS (SELECT a FROM t) SELECT a FROM x",
        "create S = with x = (select a from t) in select a from x",
    ),
    ("CREATE STREAM S AS ISTREAM(SELECT a FROM t)", "create S = istream(select a from t)"),
    ("DROP STREAM S", "drop S"),
    ("DROP RELATION IF EXISTS R;", "drop if exists R"),
    ("DROP STREAM if", "drop if"),
    (";; SELECT a FROM t;; DROP STREAM t ; -- done", "select a from t drop t"),
]


@pytest.mark.parametrize(("text", "tree"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_the_tree_of_a_statement(text: str, tree: str) -> None:
    assert shown(parse(text)) == tree


# -- places ------------------------------------------------------------------------------------------------------------

LONG = """-- a comment
SELECT DISTINCT b.price  +  1 AS p, COUNT( DISTINCT a ) FILTER (WHERE (a) > (2)), 'it''s' || "q c", -  5
FROM (SELECT x FROM t [RANGE 5 MINUTES SLIDE 1 s] u) P (y) WINDOW(PARTITION BY y ROWS 3)
  LEFT JOIN ISTREAM(Person  GRANULARITY(1 MINUTE)) I ON (P.y = I.y) AND NOT (I.z) IS NULL
WHERE CASE a WHEN 1 THEN CAST(b AS DECIMAL(10, 2)) END >= ALL (SELECT q FROM r) AND EXISTS (SELECT * FROM r)
  AND (a, b) IN (SELECT c, d FROM r) AND a + INTERVAL '5' MINUTE < DATE '2020-01-01'
GROUP BY a HAVING a BETWEEN 1 AND (2)
CONSISTENCY (BLOCK 5 s, REMEMBER 7) ;
CREATE STREAM S (a INT, KEY (a)) SOURCE f('x') ORDERED BY a; DROP STREAM IF EXISTS S;
CREATE STREAM T AS ISTREAM(WITH w (a) AS (SELECT * FROM S) SELECT a FROM w UNION ALL (SELECT S.* FROM S))"""

PLACES = [
    (s.Name, "b.price"),
    (s.Operator, "b.price  +  1"),
    (s.Item, "b.price  +  1 AS p"),
    (s.Function, "COUNT( DISTINCT a ) FILTER (WHERE (a) > (2))"),
    (s.Operator, "(a) > (2)"),
    (s.Operator, "'it''s' || \"q c\""),
    (s.Constant, "'it''s'"),
    (s.Ident, '"q c"'),
    (s.Constant, "-  5"),
    (s.StreamRef, "t [RANGE 5 MINUTES SLIDE 1 s] u"),
    (s.RangeWindow, "[RANGE 5 MINUTES SLIDE 1 s]"),
    (s.Length, "5 MINUTES"),
    (s.Length, "1 s"),
    (s.Derived, "(SELECT x FROM t [RANGE 5 MINUTES SLIDE 1 s] u) P (y) WINDOW(PARTITION BY y ROWS 3)"),
    (s.Select, "SELECT x FROM t [RANGE 5 MINUTES SLIDE 1 s] u"),
    (s.RowsWindow, "WINDOW(PARTITION BY y ROWS 3)"),
    (s.Converted, "ISTREAM(Person  GRANULARITY(1 MINUTE)) I"),
    (s.Granularity, "GRANULARITY(1 MINUTE)"),
    (s.Operator, "(P.y = I.y) AND NOT (I.z) IS NULL"),
    (s.Operator, "NOT (I.z) IS NULL"),
    (s.Operator, "(I.z) IS NULL"),
    (s.Case, "CASE a WHEN 1 THEN CAST(b AS DECIMAL(10, 2)) END"),
    (s.CastTo, "CAST(b AS DECIMAL(10, 2))"),
    (s.TypeName, "DECIMAL(10, 2)"),
    (s.Quantified, "CASE a WHEN 1 THEN CAST(b AS DECIMAL(10, 2)) END >= ALL (SELECT q FROM r)"),
    (s.Exists, "EXISTS (SELECT * FROM r)"),
    (s.Star, "*"),
    (s.Star, "S.*"),
    (s.Row, "(a, b)"),
    (s.Quantified, "(a, b) IN (SELECT c, d FROM r)"),
    (s.Duration, "INTERVAL '5' MINUTE"),
    (s.CastTo, "DATE '2020-01-01'"),
    (s.TypeName, "DATE"),
    (s.Operator, "a BETWEEN 1 AND (2)"),
    (s.Consistency, "CONSISTENCY (BLOCK 5 s, REMEMBER 7)"),
    (s.CreateSource, "CREATE STREAM S (a INT, KEY (a)) SOURCE f('x') ORDERED BY a"),
    (s.SourceCall, "f('x')"),
    (s.TypeName, "INT"),
    (s.Drop, "DROP STREAM IF EXISTS S"),
    (s.Cql, "ISTREAM(WITH w (a) AS (SELECT * FROM S) SELECT a FROM w UNION ALL (SELECT S.* FROM S))"),
    (s.Common, "w (a) AS (SELECT * FROM S)"),
    (s.With, "WITH w (a) AS (SELECT * FROM S) SELECT a FROM w UNION ALL (SELECT S.* FROM S)"),
    (s.SetQuery, "SELECT a FROM w UNION ALL (SELECT S.* FROM S)"),
]


@pytest.mark.parametrize(("kind", "written"), PLACES, ids=[f"{kind.__name__} {text}" for kind, text in PLACES])
def test_the_place_of_a_node_is_what_was_written(kind: type, written: str) -> None:
    found = [LONG[n.span.start : n.span.end] for n in walk(parse(LONG)) if isinstance(n, kind)]
    assert written in found


def test_every_node_lies_within_its_parent() -> None:
    def check(node: object, outer: s.Span) -> None:
        span = getattr(node, "span", outer)
        assert outer.start <= span.start < span.end <= outer.end
        text = LONG[span.start : span.end]
        assert text == text.strip()
        for child in walk(node):
            if child is not node:
                assert span.start <= getattr(child, "span", span).start
                assert getattr(child, "span", span).end <= span.end

    for node in walk(parse(LONG)):
        check(node, s.Span(0, len(LONG)))


def test_places_count_characters_not_bytes() -> None:
    text = "SELECT 'äöü😀', prïce FROM t"
    names = [text[n.span.start : n.span.end] for n in walk(parse(text)) if isinstance(n, s.Name)]
    assert names == ["prïce"]

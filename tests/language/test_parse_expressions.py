"""Expressions: the tree of each construct, and its precedence as DuckDB has it."""

from __future__ import annotations

import itertools
import random

import duckdb
import pytest

from everwhen.algebra.expressions.functions import FUNCTIONS, OPERATORS
from everwhen.language import syntax as s
from everwhen.language.parse import parse
from language.shown import shown


def expression(text: str) -> s.Expression:
    (ask,) = parse(f"SELECT {text} FROM t")
    assert isinstance(ask, s.Ask)
    assert isinstance(ask.query, s.Select)
    (item,) = ask.query.items
    assert isinstance(item, s.Item)
    assert item.alias is None
    return item.expression


CASES = [
    ("a", "a"),
    ("B.price", "B.price"),
    ('"A b"', '"A b"'),
    ("`x`.`y z`", '"x"."y z"'),
    ("P.end", "P.end"),
    ("1", "1"),
    ("123456789012345678901234567890", "123456789012345678901234567890"),
    ("1.5", "1.5"),
    (".5", "0.5"),
    ("1.", "1.0"),
    ("0.", "0.0"),
    ("-.5e1", "(negate 5.0)"),
    ("1e3", "1000.0"),
    ("2.5E-1", "0.25"),
    ("-5", "-5"),
    ("- 5", "-5"),
    ("-1.5", "-1.5"),
    ("- -5", "(negate -5)"),
    ("-5::int", "(negate (5 :: int))"),
    ("-a", "(negate a)"),
    ("+a", "a"),
    ("a - -1", "(- a -1)"),
    ("'it''s'", '"it\'s"'),
    ("''", "''"),
    ("'a -- b /* c */'", "'a -- b /* c */'"),
    ("TRUE", "True"),
    ("false", "False"),
    ("Null", "None"),
    ("a + b * c", "(+ a (* b c))"),
    ("a - b - c", "(- (- a b) c)"),
    ("a / b % c // d", "(// (% (/ a b) c) d)"),
    ("(a + b) * c", "(* (+ a b) c)"),
    ("((a))", "a"),
    ("-a * b", "(* (negate a) b)"),
    ("a || b + c", "(|| a (+ b c))"),
    ("a || b || c", "(|| (|| a b) c)"),
    ("a = b", "(= a b)"),
    ("a == b", "(= a b)"),
    ("a != b", "(<> a b)"),
    ("a <> b", "(<> a b)"),
    ("a<=b", "(<= a b)"),
    ("a>=-1", "(>= a -1)"),
    ("a<>-1", "(<> a -1)"),
    ("a < b OR c > d AND e", "(or (< a b) (and (> c d) e))"),
    ("a OR b OR c", "(or (or a b) c)"),
    ("a AND (b OR c)", "(and a (or b c))"),
    ("NOT a = b AND c", "(and (not (= a b)) c)"),
    ("NOT NOT a", "(not (not a))"),
    ("NOT a IS NULL", "(not (is_null a))"),
    ("a IS NULL", "(is_null a)"),
    ("a IS NOT NULL", "(not_null a)"),
    ("a ISNULL", "(is_null a)"),
    ("a NOTNULL", "(not_null a)"),
    ("a IS UNKNOWN", "(is_null a)"),
    ("a = b IS NULL", "(is_null (= a b))"),
    ("a IS TRUE", "(is_true a)"),
    ("a IS NOT TRUE", "(is_not_true a)"),
    ("a IS FALSE", "(is_false a)"),
    ("a IS NOT FALSE", "(is_not_false a)"),
    ("a IS DISTINCT FROM b + 1", "(is_distinct a (+ b 1))"),
    ("a IS NOT DISTINCT FROM b", "(is_not_distinct a b)"),
    ("a BETWEEN 1 AND 2", "(between a 1 2)"),
    ("a BETWEEN 1 AND 2 AND b", "(and (between a 1 2) b)"),
    ("a NOT BETWEEN b - 1 AND b + 1", "(not (between a (- b 1) (+ b 1)))"),
    ("a + 1 IN (1, 2, b)", "(in (+ a 1) 1 2 b)"),
    ("a NOT IN (1)", "(not (in a 1))"),
    ("a IN ((SELECT b FROM t), 2)", "(in a (scalar select b from t) 2)"),
    ("a LIKE 'x%'", "(like a 'x%')"),
    ("a NOT LIKE b || '%'", "(not (like a (|| b '%')))"),
    ("a ILIKE 'x'", "(ilike a 'x')"),
    ("a NOT ILIKE 'x'", "(not (ilike a 'x'))"),
    ("CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END", "(case -: a->1 b->2 else 3)"),
    ("case a when 1 then 'x' end", "(case a: 1->'x' else -)"),
    ("CAST(a AS INT)", "(a :: int)"),
    ("CAST(a + 1 AS Decimal(10,2))", "((+ a 1) :: decimal(10, 2))"),
    ("a::VARCHAR(20)", "(a :: varchar(20))"),
    ("a::double precision + 1", "(+ (a :: double precision) 1)"),
    ("a::timestamp with time zone", "(a :: timestamp with time zone)"),
    ("a::timestamp(3) without time zone", "(a :: timestamp(3) without time zone)"),
    ("a::int::text", "((a :: int) :: text)"),
    ("a::int < b", "(< (a :: int) b)"),
    ("DATE '2020-01-01'", "('2020-01-01' :: date)"),
    ("timestamp '2020-01-01 00:00:00'", "('2020-01-01 00:00:00' :: timestamp)"),
    ("INTERVAL '5' MINUTE", "<5 minute>"),
    ("INTERVAL 5 MINUTES", "<5 minutes>"),
    ("INTERVAL '1h 30min'", "<1h 30min>"),
    ("a + INTERVAL '2 days'", "(+ a <2 days>)"),
    ("COUNT(*)", "count[*]"),
    ("COUNT(DISTINCT a)", "count[distinct a]"),
    ("COUNT(DISTINCT a, b)", "count[distinct a b]"),
    ("SUM(ALL a)", "sum[a]"),
    ("SUM(a) FILTER (WHERE b > 1)", "sum[a] filter (> b 1)"),
    ("DolToEuro(bid_price)", "doltoeuro[bid_price]"),
    ("f()", "f[]"),
    ("f(g(a), 1)", "f[g[a] 1]"),
    ("f((SELECT a FROM t))", "f[(scalar select a from t)]"),
    ("SUBSTRING(a FROM 2 FOR 3)", "substr[a 2 3]"),
    ("SUBSTRING(a FROM 2)", "substr[a 2]"),
    ("SUBSTRING(a FOR 3)", "substr[a 1 3]"),
    ("SUBSTRING(a, 2, 3)", "substr[a 2 3]"),
    ("POSITION('x' IN a)", "position[a 'x']"),
    ("POSITION(a, 'x')", "position[a 'x']"),
    ("STRPOS(a, 'x')", "position[a 'x']"),
    ("TRIM(a)", "trim[a]"),
    ("TRIM(a, 'x')", "trim[a 'x']"),
    ("TRIM('x' FROM a)", "trim[a 'x']"),
    ("TRIM(BOTH FROM a)", "trim[a]"),
    ("TRIM(LEADING 'x' FROM a)", "ltrim[a 'x']"),
    ("TRIM(TRAILING FROM a)", "rtrim[a]"),
    ("TRIM(leading)", "trim[leading]"),
    ("EXTRACT(YEAR FROM a)", "year[a]"),
    ("EXTRACT('hours' FROM a + b)", "hour[(+ a b)]"),
    ("EXTRACT(ISODOW FROM a)", "day_of_week[a]"),
    ("DATE_PART('doy', a)", "day_of_year[a]"),
    ("YEAR(a)", "year[a]"),
    ("CEILING(a)", "ceil[a]"),
    ("POW(a, 2)", "power[a 2]"),
    ("MOD(a, 2)", "(% a 2)"),
    ("CHAR_LENGTH(a)", "length[a]"),
    ("NVL(a, b)", "coalesce[a b]"),
    ("IFNULL(a, b)", "coalesce[a b]"),
    ("COALESCE(a, b, c)", "coalesce[a b c]"),
    ("IF(a, 1, 2)", "(case -: a->1 else 2)"),
    ("IIF(a, 1)", "(case -: a->1 else -)"),
    ("LEFT(a, 2)", "left[a 2]"),
    ("right(a, 2)", "right[a 2]"),
    ("REPLACE(a, 'x', 'y')", "replace[a 'x' 'y']"),
    ("(SELECT MAX(a) FROM t)", "(scalar select max[a] from t)"),
    ("((SELECT a FROM t))", "(scalar select a from t)"),
    ("((SELECT a FROM t) + 1)", "(+ (scalar select a from t) 1)"),
    (
        "((SELECT a FROM t) UNION ALL (SELECT b FROM u))",
        "(scalar (select a from t union all select b from u))",
    ),
    ("EXISTS (SELECT * FROM u)", "(exists select * from u)"),
    ("NOT EXISTS (SELECT * FROM u)", "(not (exists select * from u))"),
    ("a IN (SELECT b FROM u)", "(= any a select b from u)"),
    ("a NOT IN (SELECT b FROM u)", "(not (= any a select b from u))"),
    ("(a, b) IN (SELECT c, d FROM u)", "(= any (row a b) select c, d from u)"),
    ("(a, b) NOT IN (SELECT c, d FROM u)", "(not (= any (row a b) select c, d from u))"),
    ("a >= ALL(SELECT b FROM u)", "(>= all a select b from u)"),
    ("a = ANY (SELECT b FROM u)", "(= any a select b from u)"),
    ("a <> some (SELECT b FROM u)", "(<> any a select b from u)"),
    ("a + 1 > ALL ((SELECT b FROM u))", "(> all (+ a 1) select b from u)"),
]


@pytest.mark.parametrize(("text", "tree"), CASES, ids=[text for text, _ in CASES])
def test_the_tree_of_an_expression(text: str, tree: str) -> None:
    assert shown(expression(text)) == tree


NAMES = [
    "window", "range", "rows", "slide", "stream", "source", "key", "granularity", "lifetime", "now",
    "timestamp", "unbounded", "partition", "date", "time", "interval", "year", "month", "day", "hour", "minute",
    "second", "period", "relation", "istream", "dstream", "rstream", "inserts", "deletes", "coalesce",
    "consistency", "filter", "over", "first", "last", "value", "position", "trim", "extract", "hop", "shift",
    "length", "block", "remember", "ordered", "only", "sort", "semi", "anti", "top", "mod", "if", "replace",
    "temporal", "constant", "varying", "text", "int", "escape", "recursive",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_words_of_clauses_stay_names(name: str) -> None:
    text = f"SELECT {name}, t.{name} + {name} AS {name}, a {name} FROM {name} {name} WHERE {name} > 1 GROUP BY {name}"
    assert shown(parse(text)) == (
        f"select {name}, (+ t.{name} {name}) as {name}, a as {name} from {name} {name} where (> {name} 1) group {name}"
    )


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {operator.name for operator in OPERATORS}))
def test_every_function_is_called_by_its_name(name: str) -> None:
    entry = FUNCTIONS[name]
    args = [f"a{i}" for i in range(max(entry.least, 1))]
    assert shown(expression(f"{name.upper()}({', '.join(args)})")) == f"{name}[{' '.join(args)}]"


def test_long_chains_of_and_and_or_are_balanced() -> None:
    tree = expression(" OR ".join(f"a = {i}" for i in range(3000)))

    def depth(node: s.Expression) -> int:
        return 1 + max(map(depth, node.operands)) if isinstance(node, s.Operator) and node.symbol == "or" else 0

    def leaves(node: s.Expression) -> list[s.Expression]:
        if isinstance(node, s.Operator) and node.symbol == "or":
            return list(itertools.chain(*map(leaves, node.operands)))
        return [node]

    assert depth(tree) < 45
    assert [shown(leaf) for leaf in leaves(tree)] == [f"(= a {i})" for i in range(3000)]


# -- precedence: a text means the same as its tree with all parentheses written ----------------------------------------


def written(node: s.Expression) -> str:
    match node:
        case s.Constant(None):
            return "NULL"
        case s.Constant(value):
            return str(value)
        case s.Operator(symbol, operands):
            parts = [f"({written(each)})" for each in operands]
            match symbol:
                case "not":
                    return f"NOT {parts[0]}"
                case "negate":
                    return f"- {parts[0]}"
                case "is_null" | "not_null" | "is_true" | "is_not_true":
                    words = {"is_null": "IS NULL", "not_null": "IS NOT NULL", "is_true": "IS TRUE"}
                    return f"{parts[0]} {words.get(symbol, 'IS NOT TRUE')}"
                case "is_distinct":
                    return f"{parts[0]} IS DISTINCT FROM {parts[1]}"
                case "in":
                    return f"{parts[0]} IN ({', '.join(parts[1:])})"
                case "between":
                    return f"{parts[0]} BETWEEN {parts[1]} AND {parts[2]}"
            return f" {symbol.upper()} ".join(parts)
    raise AssertionError(node)


def random_number(r: random.Random, depth: int) -> str:
    if depth == 0 or r.random() < 0.2:
        return r.choice(["1", "2", "3", "7", "-4", "5"])
    left, right = random_number(r, depth - 1), random_number(r, depth - 1)
    return r.choice([f"{left} {r.choice('+-*')} {right}", f"- {left}" if left[0] != "-" else left])


def random_condition(r: random.Random, depth: int) -> str:
    if depth == 0:
        left, right = random_number(r, 2), random_number(r, 2)
        return r.choice(
            [
                f"{left} {r.choice(['=', '<>', '<', '<=', '>', '>='])} {right}",
                f"{left} {r.choice(['', 'NOT '])}BETWEEN {right} AND {random_number(r, 1)}",
                f"{left} {r.choice(['', 'NOT '])}IN ({right}, 3)",
                f"{left} = {right} IS {r.choice(['', 'NOT '])}NULL",
                f"{left} < {right} IS {r.choice(['', 'NOT '])}TRUE",
                f"{left} IS DISTINCT FROM {right}",
            ]
        )
    left, right = random_condition(r, depth - 1), random_condition(r, depth - 1)
    return r.choice([f"{left} AND {right}", f"{left} OR {right}", f"NOT {left}", f"NOT {left} AND {right}"])


def test_precedence_is_that_of_duckdb() -> None:
    r = random.Random(4)
    texts = [random_condition(r, r.randrange(4)) for _ in range(400)]
    plain = ", ".join(texts)
    explicit = ", ".join(written(expression(text)) for text in texts)
    with duckdb.connect() as connection:
        expected = connection.execute(f"SELECT {plain}").fetchone()
        assert connection.execute(f"SELECT {explicit}").fetchone() == expected
    assert {True, False} <= set(expected or ())

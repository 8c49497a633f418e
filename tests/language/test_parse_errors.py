"""Every text that is not a query is refused at its place, with what was expected; nothing but SqlError comes of any."""

from __future__ import annotations

import inspect
import sys

import pytest

from everwhen.errors import SqlError
from everwhen.language.parse import parse

# The text, with » and « around what the caret must stand under, and a piece of the message.
REFUSED = [
    # clauses that a continuous query does not have
    ("SELECT a FROM (SELECT a FROM t »ORDER« BY a) x", "only at a sink, or before a LIMIT"),
    ("SELECT a FROM t WHERE b IN (SELECT a FROM t »ORDER« BY a)", "ORDER BY"),
    ("SELECT a FROM t LIMIT »a«", "a number of rows behind LIMIT"),
    ("SELECT a FROM t LIMIT »1.5«", "a number of rows"),
    ("SELECT a FROM t LIMIT 2»,« 3", "LIMIT n OFFSET m"),
    ("SELECT a FROM t LIMIT 2 »LIMIT« 3", "LIMIT stands once"),
    ("SELECT a FROM t LIMIT 2 »ORDER« BY a", "before a LIMIT"),
    ("SELECT a FROM t »FETCH FIRST 5 ROWS WITH TIES«", "needs an ORDER BY"),
    ("SELECT a FROM t FETCH »5« ROWS ONLY", "expected FIRST or NEXT"),
    ("SELECT a FROM t UNION SELECT a FROM u ORDER BY »1«", "ORDER BY"),
    ("SELECT »TOP« 5 a FROM t", "TOP"),
    ("SELECT a FROM t »QUALIFY« a = 1", "QUALIFY"),
    ("SELECT a FROM t B »WINDOW« w AS (PARTITION BY a)", "named windows"),
    ("SELECT a FROM t »WINDOW« w AS (PARTITION BY a)", "named windows"),
    ("SELECT SUM(a) OVER »w« FROM t", "named windows"),
    ("SELECT SUM(a) OVER (ORDER BY b »GROUPS« 1 PRECEDING) FROM t", "a frame counts ROWS"),
    ("SELECT SUM(a) OVER (ORDER BY b ROWS 1 »AFTER«) FROM t", "expected PRECEDING or FOLLOWING"),
    ("SELECT SUM(a) OVER (ORDER BY b »ROWS UNBOUNDED FOLLOWING«) FROM t", "begins before it ends"),
    ("SELECT SUM(a) OVER (ORDER BY b ROWS 1 PRECEDING »EXCLUDE« TIES) FROM t", "EXCLUDE"),
    ("SELECT SUM(a) OVER (ORDER BY b »PARTITION« BY a) FROM t", "before ORDER BY"),
    ("SELECT * FROM t »PIVOT« (SUM(a) FOR b IN (1))", "PIVOT"),
    ("SELECT * FROM (SELECT a FROM t) »PIVOT« (SUM(a) FOR b IN (1))", "PIVOT"),
    ("SELECT * FROM t B »UNPIVOT« (x FOR y IN (a))", "UNPIVOT"),
    ("SELECT * FROM t »TABLESAMPLE« (10)", "TABLESAMPLE"),
    ("SELECT * FROM t, LATERAL »VIEW« explode(a) x", "CROSS JOIN UNNEST"),
    ("SELECT * FROM t, LATERAL »u«", "behind LATERAL"),
    ("SELECT * FROM t, UNNEST(a) »WITH« OFFSET AS p", "WITH ORDINALITY"),
    ("SELECT * FROM t, »FLATTEN«(a)", "UNNEST"),
    ("»VALUES (1), (2, 3)«", "1 and 2 columns"),
    ("VALUES (1»«", "')'"),
    ("SELECT * FROM »LMERGE(a)«", "name at least two"),
    ("SELECT »LMERGE«(a, b) FROM a", "stands in FROM"),
    ("WITH RECURSIVE x ROUNDS »AS« (SELECT a FROM t) SELECT a FROM x", "a whole number of rounds behind ROUNDS"),
    ("WITH RECURSIVE x ROUNDS »0« AS (SELECT a FROM t) SELECT a FROM x", "at least 1"),
    ("WITH RECURSIVE x ROUNDS »1.5« AS (SELECT a FROM t) SELECT a FROM x", "a whole number"),
    ("WITH RECURSIVE x MAX RECURSION »5« AS (SELECT a FROM t) SELECT a FROM x", "expected LEVEL"),
    ("WITH RECURSIVE x PROGRESS »FAST« AS (SELECT a FROM t) SELECT a FROM x", "HYBRID, PROBING or HIGH WATER MARK"),
    ("WITH RECURSIVE x ROUNDS 1 »ROUNDS« 2 AS (SELECT a FROM t) SELECT a FROM x", "there already"),
    ("WITH x »ROUNDS 1« AS (SELECT a FROM t) SELECT a FROM x", "write WITH RECURSIVE"),
    ("WITH RECURSIVE x AS (SELECT a FROM t) »CYCLE« a SET b SELECT a FROM x", "CYCLE is not part"),
    ("WITH RECURSIVE x AS (SELECT a FROM t) »SEARCH« DEPTH FIRST BY a SELECT a FROM x", "SEARCH is not part"),
    ("WITH x AS »MATERIALIZED« (SELECT a FROM t) SELECT a FROM x", "MATERIALIZED"),
    ("SELECT * FROM a »CROSS« APPLY b", "APPLY"),
    ("SELECT * FROM a ASOF JOIN b MATCH_CONDITION (x >= y »ON« z", "MATCH_CONDITION"),
    ("SELECT * FROM a ASOF JOIN b»«", "ON with the condition"),
    ("SELECT * FROM a RIGHT »SEMI« JOIN b ON c", "exchanged"),
    ("SELECT a FROM t GROUP BY »ALL«", "GROUP BY ALL"),
    ("SELECT a FROM t GROUP BY a »WITH« ROLLUP", "ROLLUP"),
    ("SELECT DISTINCT ON »a« b FROM t", "expected '('"),
    ("SELECT a »INTO« b FROM t", "CREATE STREAM"),
    ("SELECT * »EXCEPT« (a) FROM t", "name the columns"),
    ("SELECT * »EXCLUDE« (a) FROM t", "name the columns"),
    ("SELECT a FROM t UNION »BY« NAME SELECT b FROM u", "by their place"),
    ("SELECT a FROM t »MINUS« SELECT b FROM u", "EXCEPT"),
    ("SELECT a »FORM« b", "did you mean FROM"),
    ("SELECT a FROM t WHERE b »WHERE« c", "each once"),
    ("SELECT a FROM t HAVING b »GROUP« BY c", "the order is"),
    ("SELECT a FROM t WHERE b »[«ROWS 5]", "behind a stream in FROM"),
    # statements
    ("INSERT INTO t »VALUES« (1)", "write INSERT INTO sink SELECT"),
    ("»UPDATE« t SET a = 1", "UPDATE"),
    ("»DELETE« FROM t", "DELETE"),
    ("CREATE »TABLE« t (a INT)", "CREATE STREAM"),
    ("CREATE »VIEW« v AS SELECT a FROM t", "CREATE STREAM name AS"),
    ("CREATE »INDEX« i", "STREAM or RELATION"),
    ("CREATE STREAM »IF« NOT EXISTS s (a INT)", "CREATE OR REPLACE"),
    ("CREATE STREAM s»«", "columns of the stream, or AS"),
    ("CREATE STREAM s (»a«, b INT)", "needs a type"),
    ("CREATE STREAM s »(a INT)« AS SELECT a FROM t", "names alone"),
    ("CREATE STREAM s (a INT »NOT« NULL)", "may be a KEY"),
    ("CREATE STREAM s (a INT »DEFAULT« 5)", "may be a KEY"),
    ("CREATE STREAM s »(KEY (a))«", "at least one column"),
    ("CREATE STREAM s (a INT, »PERIOD (a)«)", "two columns"),
    ("CREATE STREAM s (a INT) »ORDERED« a", "ORDERED BY column"),
    ("CREATE STREAM s (a INT) SOURCE f('x') »SOURCE« g('y')", "at most once"),
    ("CREATE STREAM s (a INT) SOURCE f(»b«)", "a text or a number"),
    ("CREATE TEMPORAL RELATION r »(a INT)«", "PERIOD"),
    ("CREATE CONSTANT RELATION r »(a INT, b INT, PERIOD (a, b))«", "TEMPORAL"),
    ("CREATE TEMPORAL »STREAM« s (a INT)", "RELATION"),
    ("CREATE RELATION r »AS« SELECT a FROM t", "CREATE STREAM name AS"),
    ("CREATE STREAM s AS »INSERT«", "a query"),
    ("CREATE STREAM s AS SELECT a FROM t »CONSISTENCY« STRONG", "that is asked"),
    ("DROP »TABLE« t", "DROP STREAM"),
    ("DROP STREAM s »CASCADE«", "drop the others"),
    ("»EXPLAIN« SELECT a FROM t", "everwhen explain"),
    ("»FROM« t SELECT a", "begins with SELECT"),
    ("»foo«", "SELECT, CREATE STREAM"),
    ("»SELCT« a FROM t", "did you mean SELECT?"),
    ("SELECT a »FORM« t", "did you mean FROM?"),
    ("SELECT »order« FROM t", 'is written "order"'),
    ("SELECT a FROM t CONSISTENCY (»)«", "BLOCK or REMEMBER"),
    ("SELECT a FROM t CONSISTENCY (BLOCK 5, »BLOCK« 6)", "REMEMBER"),
    ("SELECT a FROM t»)«", "not opened"),
    ("SELECT a FROM t b »c«", "end of the statement"),
    # windows
    ("SELECT a FROM t WINDOW(»)«", "RANGE or ROWS"),
    ("SELECT a FROM t WINDOW(RANGE »)«", "10 MINUTES"),
    ("SELECT a FROM t WINDOW(RANGE 10 »FORTNIGHTS«)", "unknown time unit 'FORTNIGHTS'"),
    ("SELECT a FROM t WINDOW(RANGE 10 »MONTHS«)", "a month has no fixed length; write days or weeks"),
    ("SELECT a FROM t WINDOW(RANGE »1.5«)", "whole number of ticks"),
    ("SELECT a FROM t WINDOW(RANGE »-«5)", "a number"),
    ("SELECT a FROM t WINDOW(RANGE »1e3« s)", "a number"),
    ("SELECT a FROM t WINDOW(ROWS »1.5«)", "whole number of rows"),
    ("SELECT a FROM t WINDOW(ROWS 5 »MINUTES«)", "for a length of time write RANGE"),
    ("SELECT a FROM t WINDOW(RANGE 10 MINUTES »PRECEDING«)", "left out"),
    ("SELECT a FROM t WINDOW(PARTITION BY »a, b« RANGE 5)", "goes with ROWS"),
    ("SELECT a FROM t WINDOW(PARTITION BY a »)«", "ROWS"),
    ("SELECT a FROM t WINDOW(RANGE 5 PARTITION BY »a«)", "goes with ROWS"),
    ("SELECT a FROM t WINDOW »RANGE« 5", "'('"),
    ("SELECT a FROM t WINDOW(PARTITION BY a »+« b ROWS 5)", "ROWS"),
    ("SELECT a FROM t WINDOW(RANGE 1 HOUR »30« MINUTES)", "')' or SLIDE"),
    ("SELECT a FROM t [RANGE 5 »)«", "']' or SLIDE"),
    ("SELECT a FROM t WINDOW(NOW »SLIDE« 5)", "')'"),
    ("SELECT a FROM t WINDOW(RANGE 5) »WINDOW(ROWS 5)«", "a second window"),
    ("SELECT a FROM t GRANULARITY(5) B »GRANULARITY(6)«", "a second granularity"),
    ("SELECT a FROM t LIFETIME(»)«", "HOP or ALIGN or SHIFT or LENGTH"),
    ("SELECT a FROM t LIFETIME(HOP 5 »HOP« 6)", "SHIFT or LENGTH"),
    ("SELECT a FROM t LIFETIME(HOP »UNBOUNDED«)", "a number"),
    ("SELECT a FROM t WINDOW(RANGE »INTERVAL '5 fortnights'«)", "unknown time unit"),
    ("SELECT a FROM t WINDOW(RANGE INTERVAL »x«)", "INTERVAL '10' MINUTE"),
    ("SELECT a FROM t WINDOW(RANGE INTERVAL '5' »SLIDE« 5)", "unit of the interval"),
    ("SELECT a FROM (A JOIN B ON c) »J«", "no alias"),
    ("SELECT a FROM (A JOIN B ON c) »WINDOW«(RANGE 5)", "no alias and no window"),
    ("SELECT a FROM (A) »B«", "within these parentheses"),
    ("SELECT a FROM (A»,« B)", "CROSS JOIN"),
    ("SELECT a FROM db».«t", "single name"),
    ("SELECT a FROM f»(«x)", "by its name"),
    ("SELECT a FROM t B (»x«)", "renamed in a subquery"),
    ("SELECT a FROM ISTREAM(A»,« B)", "')' of ISTREAM"),
    ("SELECT a FROM A JOIN B»«", "ON"),
    ("SELECT a FROM A JOIN B »WHERE« c", "ON"),
    ("SELECT a FROM A CROSS JOIN B »ON« c", "no condition"),
    ("SELECT a FROM A,»,« B", "a stream"),
    ("SELECT a FROM »WHERE« b", "a stream"),
    ("SELECT a FROM »5«", "a stream"),
    # expressions
    ("SELECT a + »FROM« t", "an expression"),
    ("SELECT »,« a FROM t", "a column"),
    ("SELECT a, »FROM« t", "an expression"),
    ("SELECT »FROM« t", "the columns of SELECT"),
    ("SELECT a FROM t WHERE a < b »<« c", "do not chain"),
    ("SELECT a FROM t WHERE a = »NOT« b", "parentheses"),
    ("SELECT a FROM t WHERE a BETWEEN 1 »OR« 2", "AND"),
    ("SELECT a FROM t WHERE a BETWEEN »SYMMETRIC« 1 AND 2", "SYMMETRIC"),
    ("SELECT a FROM t WHERE a IN »b«", "'('"),
    ("SELECT a FROM t WHERE a IN (»)«", "an expression"),
    ("SELECT a FROM t WHERE a IN (1, »)«", "an expression"),
    ("SELECT a FROM t WHERE a LIKE 'x' »ESCAPE« '!'", "ESCAPE"),
    ("SELECT a FROM t WHERE a »SIMILAR« TO 'x'", "regexp_matches"),
    ("SELECT a FROM t WHERE a NOT »SIMILAR« TO 'x'", "regexp_matches"),
    ("SELECT a FROM t WHERE a »REGEXP« 'x'", "regexp_matches"),
    ("SELECT a »COLLATE« x FROM t", "COLLATE"),
    ("SELECT a »DIV« b FROM t", "//"),
    ("SELECT a FROM t WHERE a IS »5«", "NULL or UNKNOWN or TRUE"),
    ("SELECT CASE »END« FROM t", "an expression"),
    ("SELECT CASE WHEN a »b« END FROM t", "THEN"),
    ("SELECT CASE WHEN a THEN b »FROM« t", "END"),
    ("SELECT CAST(a »,« INT) FROM t", "AS"),
    ("SELECT CAST(a AS »5«) FROM t", "a type"),
    ("SELECT CAST(a AS INT»«", "')' of CAST"),
    ("SELECT »TRY_CAST«(a AS INT) FROM t", "TRY_CAST"),
    ("SELECT a::»+« FROM t", "a type"),
    ("SELECT a::INT[»3«] FROM t", "']' of a list"),
    ("SELECT CAST(a AS ARRAY<INT»)« FROM t", "'>' of ARRAY"),
    ("SELECT a»[«RANGE 5] FROM t", "behind a stream"),
    ("SELECT a[1 »FROM« t", "']' behind the place"),
    ("SELECT ARRAY[1 »FROM« t", "']'"),
    ("SELECT »?« FROM t", "no parameters"),
    ("SELECT »:«x FROM t", "no parameters"),
    ("SELECT »@«x FROM t", "no parameters"),
    ("SELECT f(a) »IGNORE« NULLS FROM t", "FILTER"),
    ("SELECT f(»a« => 1) FROM t", "have no names"),
    ("SELECT f(»SELECT« a FROM t) FROM t", "parentheses of its own"),
    ("SELECT f(a »b«) FROM t", "')' or ','"),
    ("SELECT f(a) FILTER (»b« > 1) FROM t", "WHERE"),
    ("SELECT COUNT(t.»*«) FROM t", "COUNT"),
    ("SELECT »a.b.c.d.e.f.g« FROM t", "with its fields"),
    ("SELECT »a.f«(x) FROM t", "by its name alone"),
    ("SELECT »(a, b)« FROM t", "behind DISTINCT"),
    ("SELECT DISTINCT »(a, b)«, c FROM t", "behind DISTINCT"),
    ("SELECT a FROM t WHERE »(a, b)« = 5", "only before IN"),
    ("SELECT a FROM t WHERE »(a, b)« IN (1, 2)", "only before IN"),
    ("SELECT a FROM t WHERE a IN (»(1, 2)«, 3)", "only before IN"),
    ("SELECT a FROM t WHERE NOT »(a, b)«", "only before IN"),
    ("SELECT a FROM t WHERE a = ALL »(«1, 2)", "a subquery"),
    ("SELECT a FROM t WHERE EXISTS »(«a)", "a subquery"),
    ("SELECT a FROM t WHERE a = »SELECT« b FROM u", "in parentheses"),
    ("SELECT EXTRACT(»fortnight« FROM a) FROM t", "year, quarter"),
    ("SELECT EXTRACT(»DOW« FROM a) FROM t", "ISODOW"),
    ("SELECT DATE_PART(»year«, a) FROM t", "'year'"),
    ("SELECT »INTERVAL '5'« FROM t", "cannot read the duration"),
    ("SELECT INTERVAL '5' HOUR »TO« MINUTE FROM t", "TO"),
    ("SELECT 'a' »'b'« FROM t", "join them"),
    ("SELECT a »'b'« FROM t", "double quotation marks"),
    ("SELECT 1»abc« FROM t", "a space"),
    ("SELECT »1e« FROM t", "not a number"),
    ("SELECT ».5.« FROM t", "not a number"),
    ("SELECT »1e999« FROM t", "larger"),
    ("SELECT a b »c« FROM t", "',' or FROM"),
    ("SELECT a AS »FROM« t", 'as "FROM"'),
    ("SELECT ISTREAM(a»«", "')'"),
    ("SELECT ISTREAM(a)»,« b FROM t", "around all columns"),
    ("SELECT IF(»)« FROM t", "an expression"),
    ("SELECT »IF(a)« FROM t", "a condition"),
    ("SELECT »MOD(a)« FROM t", "two numbers"),
    ("SELECT (»)« FROM t", "an expression"),
    ("SELECT (a»«", "')'"),
    ("SELECT a FROM t WHERE (a »b«)", "')'"),
    ("SELECT a FROM t WHERE x »|« y", "end of the statement"),
    # lexemes
    ("»«", "there is no query"),
    ("» «\n -- nothing\n", "there is no query"),
    ("» «; ; ", "there is no query"),
    ("SELECT »'«abc FROM t", "the text is not closed"),
    ('SELECT »"«abc FROM t', "the name is not closed"),
    ("SELECT »`«abc FROM t", "the name is not closed"),
    ("SELECT a »/*« b FROM t", "not closed"),
    ("SELECT a »/*« b /* c */ FROM t", "not closed"),
    ('SELECT »""« FROM t', "cannot be empty"),
    ("SELECT a »{«# b #} FROM t", "no meaning"),
    ("SELECT »N'a'« FROM t", "Unicode"),
    ("SELECT a»\0« FROM t", "unexpected character"),
    ("SELECT a»§«b FROM t", "unexpected character '§'"),
    ("SELECT »\\« FROM t", "an expression"),
]


@pytest.mark.parametrize(("marked", "message"), REFUSED)
def test_the_place_and_the_words_of_an_error(marked: str, message: str) -> None:
    start, end = marked.index("»"), marked.index("«") - 1
    text = marked.replace("»", "").replace("«", "")
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert message in caught.value.problem, caught.value
    assert caught.value.start == start, caught.value
    *_, line, carets = str(caught.value).split("\n")
    assert carets.count("^") == max(1, end - start), caught.value
    assert line == "  " + text[text.rfind("\n", 0, start) + 1 :].split("\n")[0]


def test_line_and_column_of_an_error() -> None:
    with pytest.raises(SqlError) as caught:
        parse("SELECT a\n\tFROM t\n\tWHERE a ++ * b\n")
    assert (caught.value.line, caught.value.column) == (3, 13)
    assert str(caught.value) == (
        "line 3, column 13: expected an expression; * came\n  \tWHERE a ++ * b\n  \t           ^"
    )


# -- depth -------------------------------------------------------------------------------------------------------------

DEEP = {
    "parentheses": lambda n: f"SELECT {'(' * n}a{')' * n} FROM t",
    "open parentheses": lambda n: "SELECT " + "(" * n,
    "subqueries": lambda n: "SELECT a FROM t WHERE a IN (" * n + "SELECT a FROM t" + ")" * n,
    "subqueries in FROM": lambda n: "SELECT a FROM (" * n + "SELECT a FROM t" + ")" * n,
    "sums of subqueries": lambda n: "SELECT ((" * n + "SELECT a FROM t" + ") + 1) FROM t" * n,
    "broken sums of subqueries": lambda n: "SELECT ((" * n + "SELECT a FROM" + ") + 1) FROM t" * n,
    "broken lists of subqueries": lambda n: "SELECT a IN ((" * n + "SELECT a FROM" + "), 1) FROM t" * n,
    "broken sources": lambda n: "SELECT a FROM ((" * n + "SELECT a FROM" + ") JOIN b ON c)" * n,
    "queries in parentheses": lambda n: "(" * n + "SELECT a FROM t" + ")" * n,
    "sources in parentheses": lambda n: f"SELECT a FROM {'(' * n}t{')' * n}",
    "conversions": lambda n: f"SELECT a FROM {'ISTREAM(' * n}t{')' * n}",
    "CQL": lambda n: f"{'ISTREAM(' * n}SELECT a FROM t{')' * n}",
    "calls": lambda n: f"SELECT {'f(' * n}a{')' * n} FROM t",
    "NOT": lambda n: f"SELECT {'NOT ' * n}a FROM t",
    "signs": lambda n: f"SELECT {'- ' * n}a FROM t",
    "CASE": lambda n: f"SELECT {'CASE WHEN a THEN ' * n}a{' END' * n} FROM t",
    "sums": lambda n: f"SELECT {'a + ' * n}a FROM t",
    "comparisons": lambda n: f"SELECT a {'IS NULL ' * n} FROM t",
    "casts": lambda n: f"SELECT a{'::int' * n} FROM t",
    "joins": lambda n: f"SELECT a FROM t{' CROSS JOIN t' * n}",
    "nested joins": lambda n: f"SELECT a FROM t{' JOIN t' * n}{' ON c' * n}",
    "unions": lambda n: " UNION ALL ".join(["SELECT a FROM t"] * n),
    "queries without parentheses": lambda n: "SELECT a FROM " * n + "t",
    "WITH": lambda n: "WITH x AS (" * n + "SELECT a FROM t" + ") SELECT a FROM x" * n,
}


def depth(node: object) -> int:
    """How deeply the nodes of a tree are nested; without recursion."""
    deepest, todo = 0, [(node, 1)]
    while todo:
        each, level = todo.pop()
        deepest = max(deepest, level)
        children = each if isinstance(each, tuple) else [getattr(each, name) for name in getattr(each, "__slots__", ())]
        todo += [(child, level + (not isinstance(each, tuple))) for child in children]
    return deepest


@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("n", [1, 2, 7, 20, 50, 400, 3000])
def test_nesting_is_read_or_refused(shape: str, n: int) -> None:
    try:
        trees = parse(DEEP[shape](n))
    except SqlError as error:
        assert n > 20 or shape.startswith(("broken", "open")), error
    else:
        assert depth(trees) < 350
        assert n <= 100


def test_nesting_beyond_the_callers_stack_is_refused_too() -> None:
    def deeper(n: int) -> None:
        if n:
            deeper(n - 1)
        else:
            parse(DEEP["subqueries"](20))

    with pytest.raises(SqlError, match="nested too deeply"):
        deeper(sys.getrecursionlimit() - len(inspect.stack()) - 120)

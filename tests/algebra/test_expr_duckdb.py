"""oracle: an expression's text, run by DuckDB, gives what the expression gives, where SQL and Everwhen agree.

Left out on purpose: `//` and `%` of negative numbers (Everwhen's is the mathematical floor), casts of fractions to
integers (Everwhen cuts), functions whose names differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.algebra.expressions.build import Call, Expr, col, function, lit, when

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("f", pa.float64()),
        ("p", pa.bool_()),
        ("q", pa.bool_()),
        ("s", pa.string()),
    ]
)
text = st.text(alphabet="abÄ %_.", max_size=5)
floats = st.sampled_from([0.0, -0.0, 0.5, -2.5, 3.0, math.nan, math.inf, -math.inf])
batches = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-50, 50),
            "j": st.none() | st.integers(-50, 50),
            "f": st.none() | floats,
            "p": st.none() | st.booleans(),
            "q": st.none() | st.booleans(),
            "s": st.none() | text,
        }
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def operators(
    names: list[str], left: st.SearchStrategy[Expr], right: st.SearchStrategy[Expr]
) -> st.SearchStrategy[Expr]:
    return st.tuples(st.sampled_from(names), left, right).map(lambda found: Call(found[0], found[1:]))


def numbers(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([col("i"), col("j"), col("f")]), st.integers(-9, 9).map(lit))
    if depth == 0:
        return leaves
    below = numbers(depth - 1)
    return st.one_of(
        leaves,
        operators(["+", "-", "*", "nullif", "coalesce", "least", "greatest"], below, below),
        st.tuples(conditions(depth - 1), below, below).map(lambda t: when(t[0]).then(t[1]).otherwise(t[2])),
        below.map(lambda e: -e),
        below.map(lambda e: function("abs", e)),
        below.map(lambda e: e / 4),
        texts(depth - 1).map(lambda e: function("length", e)),
    )


def texts(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.just(col("s")), text.map(lit))
    if depth == 0:
        return leaves
    below = texts(depth - 1)
    return st.one_of(
        leaves,
        st.tuples(st.sampled_from(["lower", "upper", "trim", "ltrim", "rtrim", "reverse"]), below).map(
            lambda t: function(t[0], t[1])
        ),
        st.tuples(below, st.integers(-4, 4), st.integers(0, 4)).map(lambda t: function("substr", *t)),
        st.tuples(below, text, text).map(lambda t: function("replace", *t)),
        st.tuples(below, text.filter(bool), st.integers(1, 3)).map(lambda t: function("split_part", *t)),
    )


def conditions(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([col("p"), col("q")]), st.booleans().map(lit))
    if depth == 0:
        return leaves
    below = conditions(depth - 1)
    comparisons = ["=", "<>", "<", "<=", ">", ">="]
    return st.one_of(
        operators(["and", "or"], below, below),
        below.map(lambda e: ~e),
        operators(comparisons, numbers(depth - 1), numbers(depth - 1)),
        operators(comparisons, texts(depth - 1), texts(depth - 1)),
        operators(["starts_with", "ends_with", "contains"], texts(depth - 1), text.map(lit)),
        numbers(depth - 1).map(lambda e: e.is_null()),
        st.tuples(numbers(depth - 1), st.lists(st.none() | st.integers(-3, 3), min_size=1)).map(
            lambda t: t[0].is_in(t[1])
        ),
    )


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        return (a != a and b != b) or a == b or math.isclose(a, b, rel_tol=1e-12)
    return bool(a == b)


@given(st.one_of(numbers(2), texts(2), conditions(2), conditions(3)), batches)
def test_duckdb_agrees(database: duckdb.DuckDBPyConnection, expr: Expr, batch: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(batch, SCHEMA)
    columns = {name: table.column(name).combine_chunks() for name in SCHEMA.names}
    found = expr.evaluate(columns, len(batch)).to_pylist()
    expected = [row[0] for row in database.from_arrow(table).project(str(expr)).fetchall()]
    for got, want, row in zip(found, expected, batch, strict=True):
        assert same(got, want), (str(expr), got, want, row)


LIKE = ["%", "_", "a%", "%b", "a_b", "%a%b%", "", "a.b", "a+"]


@pytest.mark.parametrize("pattern", LIKE)
def test_like_as_in_duckdb(database: duckdb.DuckDBPyConnection, pattern: str) -> None:
    words = ["", "a", "b", "ab", "a.b", "axb", "a\nb", "aab", "a+", "xaxbx"]
    found = function("like", col("s"), pattern).evaluate({"s": pa.array(words)}, len(words)).to_pylist()
    expected = [database.execute("SELECT ? LIKE ?", [word, pattern]).fetchall()[0][0] for word in words]
    assert found == expected

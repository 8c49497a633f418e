"""One meaning wherever an expression is computed: by columns, value by value, folded by the optimiser, in a plan."""

from __future__ import annotations

from datetime import datetime
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.expressions.build import Expr, col, function, lit
from everwhen.errors import EvaluationError, QueryError, SqlError
from everwhen.rewrite.plans.fold_constants import folded

ZONED = {
    "2022-01-01 00:00:00-08:00": datetime(2022, 1, 1, 8),
    "2022-01-01T00:00:00Z": datetime(2022, 1, 1),
    "2022-01-01T00:00:00.5+05:30": datetime(2021, 12, 31, 18, 30, 0, 500000),
    "2022-01-01 00:00:00": datetime(2022, 1, 1),
    "2022-01-01": datetime(2022, 1, 1),
}


def ways(build: Any, given: Any, type_: pa.DataType) -> list[Any]:
    """The value of `build(x)` for x = given, in each of the ways in which it may be computed."""
    expr: Expr = build(col("x"))
    constant = build(lit(given, type_))
    simpler = folded(constant)
    return [
        expr.value({"x": given}),
        expr.evaluate({"x": pa.array([given], type_)}, 1)[0].as_py(),
        constant.value({}),
        constant.evaluate({}, 1)[0].as_py(),
        simpler.value({}),
        simpler.evaluate({}, 1)[0].as_py(),
    ]


@pytest.mark.parametrize("text", ZONED)
def test_a_text_with_a_zone_is_a_timestamp_in_utc_at_once(text: str) -> None:
    moment = ZONED[text]

    def stamp(x: Expr) -> Expr:
        return x.cast("timestamp")

    def everywhere(build: Any, expected: Any) -> None:
        assert ways(build, text, pa.string()) == [expected] * 6

    everywhere(stamp, moment)
    everywhere(lambda x: function("hour", stamp(x)), moment.hour)
    everywhere(lambda x: stamp(x).cast("string"), str(moment).removesuffix("00000"))
    everywhere(lambda x: function("date_trunc", "day", stamp(x)), datetime(moment.year, moment.month, moment.day))
    everywhere(lambda x: stamp(x) > lit(datetime(2022, 1, 1, 4)), moment.hour == 8)
    everywhere(lambda x: stamp(x).cast("timestamp[ms]"), moment)
    everywhere(lambda x: stamp(x).cast("date"), moment.date())


def test_texts_with_and_without_a_zone_stand_in_one_column() -> None:
    read = col("x").cast("timestamp").evaluate({"x": pa.array([*ZONED, None])}, len(ZONED) + 1)
    assert read.to_pylist() == [*ZONED.values(), None]
    with pytest.raises(EvaluationError, match="cannot be cast"):
        col("x").cast("timestamp").evaluate({"x": pa.array(["2022-01-01T00:00:00ZZ"])}, 1)


@pytest.mark.parametrize("optimize", [True, False])
def test_a_text_with_a_zone_can_be_compared_in_a_query(optimize: bool) -> None:
    text = """CREATE STREAM S (x TEXT, n INT); SELECT n FROM S
              WHERE CAST(x AS TIMESTAMP) > TIMESTAMP '2022-01-01 12:00:00'
                AND CAST(x AS TIMESTAMP) BETWEEN '2022-01-01T12:00:01Z' AND '2022-01-02T00:00:00-01:00'"""
    rows = [("2022-01-01T00:00:00Z", 1), ("2022-01-01T23:30:00-01:00", 2), ("2022-01-02T00:30:00-01:00", 3)]
    given = [ew.Insert(1, 5, {"x": x, "n": n}) for x, n in rows]
    said = ew.run(ew.sql(text, optimize=optimize), {"S": given})
    assert [each.row["n"] for each in said if isinstance(each, ew.Insert)] == [2]


def test_like_means_the_same_by_columns_and_by_values() -> None:
    letters = ["a", "\\", "%", "_", "\n"]
    texts = ["".join(each) for size in range(4) for each in product(letters, repeat=size)]
    column = pa.array(texts)
    for pattern in ("".join(each) for size in range(5) for each in product(letters[:4], repeat=size)):
        like = function("like", col("x"), lit(pattern))
        assert like.evaluate({"x": column}, len(texts)).to_pylist() == [like.value({"x": x}) for x in texts], pattern


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("\\", "%\\\\", True),
        ("a", "\\a%", True),
        ("\\a", "\\a%", False),
        ("a.c+d", "a\\.c+%", True),
        ("é%", "é\\%", True),
    ],
)
def test_like_with_a_backslash(text: str, pattern: str, expected: bool) -> None:
    assert ways(lambda x: function("like", x, lit(pattern)), text, pa.string()) == [expected] * 6


@pytest.mark.parametrize(
    "written",
    [
        "round({})",
        "ceil({})",
        "trunc({})",
        "{} * 0.0::DECIMAL(4, 3)",
        "{}::DECIMAL(18, 0)",
        "-(0 * {})",
        "abs(0 * {})",
        "round({}, -1)",
        "'-0.0004'::DECIMAL(18, 3) + 0 * {}",
        "(-0.0004)::DECIMAL(18, 3) + 0 * {}",
    ],
)
def test_a_decimal_has_no_negative_zero(written: str) -> None:
    given = [ew.Insert(1, 5, {"d": "-0.4"})]
    found = set()
    for operand in ("d::DECIMAL(18, 3)", "(-0.4)::DECIMAL(18, 3)"):
        for optimize in (True, False):
            text = f"CREATE STREAM S (d TEXT); SELECT ({written.format(operand)})::TEXT AS t FROM S"
            said = ew.run(ew.sql(text, optimize=optimize), {"S": given})
            found |= {each.row["t"] for each in said if isinstance(each, ew.Insert)}
    assert len(found) == 1 and not found.pop().startswith("-")


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("DECIMAL", r"needs its digits.*; write for example DECIMAL\(18, 3\)"),
        ("NUMERIC", r"needs its digits.*; write for example NUMERIC\(18, 3\)"),
    ],
)
def test_a_type_that_would_be_guessed_is_refused_at_its_place(type_: str, expected: str) -> None:
    for cast in (f"CAST(x AS {type_})", f"x::{type_}"):
        with pytest.raises(SqlError, match=expected) as caught:
            ew.sql(f"CREATE STREAM S (x TEXT); SELECT {cast} AS y FROM S")
        assert caught.value.start == f"CREATE STREAM S (x TEXT); SELECT {cast}".index(type_)
    if "CHAR" not in type_:
        with pytest.raises(QueryError, match=expected):
            ew.sql(f"CREATE STREAM S (x {type_}); SELECT x FROM S")


def test_a_length_in_a_declaration_is_a_remark() -> None:
    query = ew.sql("CREATE STREAM S (x VARCHAR(2), y CHAR(1)); SELECT x, y FROM S")
    said = list(ew.run(query, {"S": [ew.Insert(1, 2, {"x": "long", "y": "text"})]}))
    assert isinstance(said[0], ew.Insert) and said[0].row == {"x": "long", "y": "text"}

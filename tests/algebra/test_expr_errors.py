"""A query that is wrong is refused when it is built, with the column, the types and a remedy in the message."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from everwhen.algebra.expressions.build import (
    Expr,
    col,
    conjunction,
    conjuncts,
    function,
    lit,
    to_expr,
    type_of,
    udf,
    walk,
    when,
)
from everwhen.core.schema import Schema
from everwhen.errors import QueryError

SCHEMA = Schema.of(
    [
        ("item", pa.int64()),
        ("price", pa.float64()),
        ("amount", pa.decimal128(38, 20)),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("u", pa.uint64()),
        ("ts", pa.timestamp("ms")),
        ("zoned", pa.timestamp("ms", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)
item, price, name = col("item"), col("price"), col("name")

WRONG: list[tuple[Expr, list[str]]] = [
    (col("pric") + 1, ["'pric'", "pric + 1", "did you mean 'price'?", "item int64"]),
    (col("zzz"), ["unknown column 'zzz'", "there is (item int64"]),
    (item + name, ["item + name", "needs numbers", "concat", "name is of type string"]),
    (item + col("ok"), ["needs numbers", "ok is of type bool"]),
    (item == name, ["int64 and string do not fit", "item = name", "cast the text"]),
    (col("ts") > "2024-01-01", ["timestamp[ms] and string", ".cast('timestamp')"]),
    (col("ts") == col("zoned"), ["do not fit together"]),
    (col("ts") == col("day"), ["do not fit together", "cast one of them"]),
    (col("u") + 1, ["u + 1", "signed integer", "cast the uint64"]),
    (col("u") == item, ["uint64", "cast the uint64 to int64 or to decimal(20, 0)"]),
    (col("u") == -1, ["uint64"]),
    (-col("u"), ["signed integer"]),
    (col("amount") * col("amount"), ["40 digits after the point", "float64"]),
    (col("ts") + col("ts"), ["ts + ts", "a timestamp and a duration"]),
    (col("day") + timedelta(days=1), ["cast a date to timestamp"]),
    (col("ts") * 2, ["a duration and an integer"]),
    (item & col("ok"), ["needs conditions", "item is of type int64"]),
    (~price, ["needs conditions"]),
    (col("tags") == col("tags"), ["can be compared", "list<"]),
    (col("tags").is_in(["a"]), ["do not fit together"]),
    (item.is_in([1, "x"]), ["int64 and string"]),
    (item.is_in([price]), ["must hold constants"]),
    (when(item).then(1).otherwise(2), ["needs conditions", "item is of type int64"]),
    (when(col("ok")).then(1).otherwise("x"), ["int64 and string", "CASE WHEN ok"]),
    (col("ts").cast("int64"), ["cannot be cast to int64", "epoch_ms"]),
    (price.cast("timestamp"), ["price of type double cannot be cast to timestamp[us]", "integer"]),
    (col("tags").cast("string"), ["cannot be cast"]),
    (col("ts").cast(pa.timestamp("ms", "UTC")), ["cannot be cast"]),
    (function("lower", item), ["lower(item) needs text", "item is of type int64"]),
    (function("sqrt", name), ["sqrt(name) needs numbers", "string"]),
    (function("abs", name), ["needs numbers"]),
    (function("year", item), ["needs a timestamp or a date"]),
    (function("hour", col("day")), ["needs a timestamp or a time;"]),
    (function("round", price, item), ["as a constant", "item is computed"]),
    (function("round", price, 99), ["-15 to 15", "not 99"]),
    (function("date_trunc", "eon", col("ts")), ["one of second, minute", "'eon'"]),
    (function("substr", name, "x"), ["a whole number"]),
    (function("regexp_matches", name, "("), ["regular expression '('"]),
    (function("regexp_extract", name, "(a)", 2), ["a group from 0 to 1"]),
    (function("regexp_replace", name, "(a)", "$2"), ["a replacement with groups from 0 to 1, not '$2'"]),
    (function("regexp_replace", name, "a", "b", "i"), ["'g' or nothing"]),
    (function("lpad", name, "x"), ["a whole number"]),
    (function("strftime", col("ts"), name), ["as a constant"]),
    (function("greatest", item, name), ["int64 and string"]),
    (function("least", col("tags"), col("tags")), ["can be compared"]),
]


@pytest.mark.parametrize(("expr", "parts"), WRONG, ids=[str(case[0]) for case in WRONG])
def test_wrong_types_are_refused(expr: Expr, parts: list[str]) -> None:
    with pytest.raises(QueryError) as error:
        expr.bind(SCHEMA)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: bool(item > 1), ["item > 1", "&, | and ~"]),
        (lambda: item > 1 and price > 2, ["&, | and ~"]),
        (lambda: 1 < item < 5, ["a < b < c"]),
        (lambda: function("uper", name), ["unknown function 'uper'", "'upper'"]),
        (lambda: function("frobnicate", name), ["there are", "abs"]),
        (lambda: function("round"), ["does not take 0 arguments", "round(x [, digits])"]),
        (lambda: function("nullif", name, name, name), ["nullif(x, y)"]),
        (lambda: col(3), ["lit(3)"]),
        (lambda: lit(object()), ["is not a constant"]),
        (lambda: lit("x", "int64"), ["'x' is not a constant of type int64"]),
        (lambda: lit(2**70), ["is not a constant"]),
        (lambda: lit(item), ["takes a constant", "item"]),
        (lambda: item.cast("intt"), ["unknown type 'intt'"]),
        (lambda: item.cast("decimal(50,2)"), ["1 to 38 digits"]),
        (lambda: item.cast(list), ["list"]),
        (lambda: item.cast(5), ["not 5"]),
        (lambda: udf(len, type="int64"), ["at least one argument"]),
    ],
)
def test_wrong_constructions_are_refused(build: Any, parts: list[str]) -> None:
    with pytest.raises(QueryError) as error:
        build()
    for part in parts:
        assert part in str(error.value)


TEXTS: list[tuple[Expr, str]] = [
    ((item + 1) * 2, "(item + 1) * 2"),
    (item + (price * 2), "item + price * 2"),
    (item - (price - 2), "item - (price - 2)"),
    ((item - price) - 2, "item - price - 2"),
    (-(item + 1), "-(item + 1)"),
    (function("negate", -item), "-(-item)"),
    (-lit(-1), "-(-1)"),
    ((col("a") | col("b")) & ~col("c"), "(a OR b) AND NOT c"),
    ((col("a") & col("b")) | col("c"), "a AND b OR c"),
    (~(item == 1), "NOT item = 1"),
    ((item == 1).is_null(), "(item = 1) IS NULL"),
    ((item > 1) == col("ok"), "(item > 1) = ok"),
    (item.not_null(), "item IS NOT NULL"),
    (item.is_in([1, None]), "item IN (1, NULL)"),
    (item.between(1, 2), "item >= 1 AND item <= 2"),
    (name == "it's", "name = 'it''s'"),
    (when(item > 1).then("a").otherwise(None), "CASE WHEN item > 1 THEN 'a' ELSE NULL END"),
    (item.cast("string"), "CAST(item AS string)"),
    (function("round", price, 2), "round(price, 2)"),
    (lit(datetime(2024, 1, 2, 3)), "TIMESTAMP '2024-01-02 03:00:00'"),
    (lit(date(2024, 1, 2)), "DATE '2024-01-02'"),
    (lit(timedelta(hours=1)), "INTERVAL '1:00:00'"),
    (lit(True), "TRUE"),
    (udf(len, name, type="int64"), "len(name)"),
    (5 - item, "5 - item"),
    (2 / item // 3 % 4, "2 / item // 3 % 4"),
    (True & col("ok") | False, "TRUE AND ok OR FALSE"),
]


@pytest.mark.parametrize(("expr", "expected"), TEXTS, ids=[case[1] for case in TEXTS])
def test_text(expr: Expr, expected: str) -> None:
    assert str(expr) == expected
    assert repr(expr) == f"<{expected}>"


def test_columns_are_collected() -> None:
    expr = when(item > 1).then(price).otherwise(col("a").cast("float64"))
    assert expr.columns() == {"item", "price", "a"}
    assert lit(1).columns() == frozenset()


def test_substitution_replaces_columns_at_once() -> None:
    expr = (item + price).substitute({"item": price, "price": item * 2})
    assert str(expr) == "price + item * 2"
    assert str(item.is_in([1]).substitute({"item": col("x")})) == "x IN (1)"
    assert str(udf(len, name, type="int64").substitute({"name": col("x")})) == "len(x)"
    assert str(name.cast("int64").substitute({"name": col("x")})) == "CAST(x AS int64)"


def test_equals_is_structural() -> None:
    assert (item + 1).equals(item + 1)
    assert not (item + 1).equals(item - 1)
    assert not (item + 1).equals(item + 2)
    assert not lit(1).equals(lit(1, "int32"))
    assert not lit(None).equals(lit(1))
    assert not item.cast("int32").equals(item.cast("int16"))
    assert not item.equals(price)
    assert not function("concat", name).equals(function("concat", name, name))
    assert udf(len, name, type="int64").equals(udf(len, name, type="int64"))


def test_expressions_are_hashed_by_identity_and_frozen() -> None:
    assert len({item, item, col("item")}) == 2
    with pytest.raises(AttributeError):
        item.name = "other"  # type: ignore[attr-defined]


def test_pickling_leaves_the_compiled_kernels_behind() -> None:
    expr = (item % 2 == 0) & name.is_in(["a"])
    batch = {"item": pa.array([2]), "name": pa.array(["a"])}
    assert expr.evaluate(batch, 1).to_pylist() == [True]
    copy = pickle.loads(pickle.dumps(expr))
    assert copy.equals(expr) and copy.evaluate(batch, 1).to_pylist() == [True]


def test_the_same_expression_serves_columns_of_other_types() -> None:
    expr = col("x") + 1
    assert expr.evaluate({"x": pa.array([1])}, 1).type == pa.int64()
    assert expr.evaluate({"x": pa.array([1.5])}, 1).type == pa.float64()
    assert expr.evaluate({"x": pa.array([1])}, 1).to_pylist() == [2]


def test_conjuncts_and_conjunction() -> None:
    a, b, c = col("a"), col("b"), col("c")
    assert [str(each) for each in conjuncts(a & (b & c) & (a | b))] == ["a", "b", "c", "a OR b"]
    assert str(conjunction([a, b])) == "a AND b"
    assert conjunction([]).value({}) is True
    assert len(list(walk(a & b))) == 3


def test_constants_and_type_names() -> None:
    assert to_expr(item) is item
    assert to_expr("item").value({}) == "item"
    assert lit(2**63).bind(SCHEMA) == pa.uint64()
    assert lit(1, "float64").value({}) == 1.0
    assert type_of("Timestamp") == pa.timestamp("us")
    assert type_of(" numeric(5) ") == pa.decimal128(5, 0)
    assert type_of(float) == pa.float64()
    assert type_of("duration[s]") == pa.duration("s")

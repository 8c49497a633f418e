"""What expressions mean, case by case: expected values written down, for the definition and for the columnar form."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from everwhen.algebra.expressions.build import Expr, col, function, lit, udf, when
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError

NAN, INFINITY = math.nan, math.inf
i, f, d, s, p = col("i"), col("f"), col("d"), col("s"), col("p")
TYPES = {
    "i": pa.int64(),
    "j": pa.int32(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "d": pa.decimal128(10, 2),
    "e": pa.decimal128(38, 6),
    "s": pa.string(),
    "p": pa.bool_(),
    "q": pa.bool_(),
    "ts": pa.timestamp("ms"),
    "us": pa.timestamp("us"),
    "day": pa.date32(),
    "span": pa.duration("ms"),
}
INT, FLOAT, BOOL, TEXT = pa.int64(), pa.float64(), pa.bool_(), pa.string()
NOON = datetime(2024, 2, 29, 12, 30, 45, 678000)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999999)


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


CASES: list[tuple[Expr, dict[str, Any], Any, pa.DataType]] = [
    # integers: floor division, 64 bits, nulls
    (i + 1, {"i": 2}, 3, INT),
    (i + 1, {"i": None}, None, INT),
    (i + None, {"i": 2}, None, INT),
    (col("j") * col("j"), {"j": 2**31 - 1}, (2**31 - 1) ** 2, INT),
    (1 - i, {"i": 5}, -4, INT),
    (i / 2, {"i": 3}, 1.5, FLOAT),
    (i / 0, {"i": 3}, None, FLOAT),
    (1 / f, {"f": 0.0}, None, FLOAT),
    (1 / f, {"f": -0.0}, None, FLOAT),
    (i // 2, {"i": -7}, -4, INT),
    (i // -2, {"i": 7}, -4, INT),
    (i // 0, {"i": 7}, None, INT),
    (i % 3, {"i": -7}, 2, INT),
    (i % -3, {"i": 7}, -2, INT),
    (i % 0, {"i": 7}, None, INT),
    (7 % i, {"i": None}, None, INT),
    (i % i, {"i": -(2**63)}, 0, INT),
    (-i, {"i": 4}, -4, INT),
    # floats
    (f // 2, {"f": -1.5}, -1.0, FLOAT),
    (f % 2, {"f": -1.5}, 0.5, FLOAT),
    (f + i, {"f": 0.5, "i": 1}, 1.5, FLOAT),
    (f * 2, {"f": NAN}, NAN, FLOAT),
    (f * 10, {"f": 1e308}, INFINITY, FLOAT),
    # NaN is equal to itself and above everything
    (f == NAN, {"f": NAN}, True, BOOL),
    (f != f, {"f": NAN}, False, BOOL),
    (f > INFINITY, {"f": NAN}, True, BOOL),
    (f >= NAN, {"f": 1.0}, False, BOOL),
    (f <= NAN, {"f": NAN}, True, BOOL),
    (f < 5, {"f": NAN}, False, BOOL),
    (lit(5) < f, {"f": NAN}, True, BOOL),
    (f == 0.0, {"f": -0.0}, True, BOOL),
    (f == None, {"f": NAN}, None, BOOL),  # noqa: E711 - builds an expression
    # decimals are exact
    (d + d, {"d": Decimal("0.10")}, Decimal("0.20"), decimal(11, 2)),
    (d * d, {"d": Decimal("-1.50")}, Decimal("2.2500"), decimal(21, 4)),
    (d + 1, {"d": Decimal("0.10")}, Decimal("1.10"), decimal(22, 2)),
    (d * f, {"d": Decimal("1.50"), "f": 2.0}, 3.0, FLOAT),
    (d / 4, {"d": Decimal("1.00")}, 0.25, FLOAT),
    (d % 1, {"d": Decimal("-1.25")}, Decimal("0.75"), decimal(38, 2)),
    (d // 1, {"d": Decimal("-1.25")}, Decimal(-2), decimal(38, 0)),
    (d == i, {"d": Decimal("3.00"), "i": 3}, True, BOOL),
    (d < 2.5, {"d": Decimal("2.49")}, True, BOOL),
    (-d, {"d": Decimal("2.49")}, Decimal("-2.49"), decimal(10, 2)),
    (-col("e"), {"e": Decimal("9" * 32)}, Decimal("-" + "9" * 32), decimal(38, 6)),
    (col("e") + 0, {"e": Decimal("9" * 32)}, Decimal("9" * 32), decimal(38, 6)),
    # uint64 meets constants that are not negative
    (col("u") > 5, {"u": 2**64 - 1}, True, BOOL),
    (col("u").is_in([2**64 - 1]), {"u": 2**64 - 1}, True, BOOL),
    (col("u").cast("decimal(20,0)") + 1, {"u": 2**64 - 1}, Decimal(2**64), decimal(21, 0)),
    # logic has three values
    (p & col("q"), {"p": None, "q": False}, False, BOOL),
    (p & col("q"), {"p": None, "q": True}, None, BOOL),
    (p | col("q"), {"p": None, "q": True}, True, BOOL),
    (p | col("q"), {"p": None, "q": False}, None, BOOL),
    (~p, {"p": None}, None, BOOL),
    (~p, {"p": True}, False, BOOL),
    (p == True, {"p": True}, True, BOOL),  # noqa: E712 - builds an expression
    (p < col("q"), {"p": False, "q": True}, True, BOOL),
    (i.is_null(), {"i": None}, True, BOOL),
    (i.not_null(), {"i": None}, False, BOOL),
    (f.is_null(), {"f": NAN}, False, BOOL),
    # membership
    (i.is_in([1, 2]), {"i": 2}, True, BOOL),
    (i.is_in([1, 2]), {"i": 3}, False, BOOL),
    (i.is_in([1, 2]), {"i": None}, None, BOOL),
    (i.is_in([1, None]), {"i": 1}, True, BOOL),
    (i.is_in([1, None]), {"i": 2}, None, BOOL),
    (i.is_in([]), {"i": None}, False, BOOL),
    (i.is_in([2.5, 3]), {"i": 3}, True, BOOL),
    (f.is_in([NAN]), {"f": NAN}, True, BOOL),
    (f.is_in([0]), {"f": -0.0}, True, BOOL),
    (i.between(1, 3), {"i": 3}, True, BOOL),
    (i.between(1, 3), {"i": None}, None, BOOL),
    # text compares by code point
    (s < "b", {"s": "Z"}, True, BOOL),
    (s > "\uffff", {"s": "\U0001f600"}, True, BOOL),
    (function("upper", s), {"s": "aß\N{GREEK SMALL LETTER SIGMA}"}, "A\u1e9e\N{GREEK CAPITAL LETTER SIGMA}", TEXT),
    (function("length", s), {"s": "a\U0001f600"}, 2, INT),
    (function("concat", s, "-", s), {"s": "x"}, "x-x", TEXT),
    (function("concat", s, lit(None)), {"s": "x"}, None, TEXT),
    (function("substr", s, 2), {"s": "äbc"}, "bc", TEXT),
    (function("substr", s, 2, 1), {"s": "äbc"}, "b", TEXT),
    (function("substr", s, 0, 2), {"s": "abc"}, "a", TEXT),
    (function("substr", s, -2, 1), {"s": "abc"}, "b", TEXT),
    (function("substr", s, i), {"s": "abc", "i": 3}, "c", TEXT),
    (function("left", s, 2), {"s": "abc"}, "ab", TEXT),
    (function("right", s, 2), {"s": "abc"}, "bc", TEXT),
    (function("trim", s), {"s": "  a\t "}, "a\t", TEXT),
    (function("ltrim", s, "xy"), {"s": "xyax"}, "ax", TEXT),
    (function("replace", s, "a", "bb"), {"s": "aca"}, "bbcbb", TEXT),
    (function("replace", s, "", "b"), {"s": "aca"}, "aca", TEXT),
    (function("reverse", s), {"s": "abc"}, "cba", TEXT),
    (function("split_part", s, "/", 3), {"s": "a/b/c"}, "c", TEXT),
    (function("split_part", s, "/", 4), {"s": "a/b/c"}, "", TEXT),
    (function("split_part", s, "/", -1), {"s": "a/b/c"}, "c", TEXT),
    (function("position", s, "c"), {"s": "äbc"}, 3, INT),
    (function("position", s, "x"), {"s": "äbc"}, 0, INT),
    (function("like", s, "a%_"), {"s": "abc"}, True, BOOL),
    (function("like", s, "a_"), {"s": "abc"}, False, BOOL),
    (function("like", s, r"a\%"), {"s": "a%"}, True, BOOL),
    (function("like", s, "%"), {"s": "a\nb"}, True, BOOL),
    (function("starts_with", s, s), {"s": "abc"}, True, BOOL),
    (function("contains", s, "."), {"s": "abc"}, False, BOOL),
    (function("regexp_matches", s, "b.?$"), {"s": "abc"}, True, BOOL),
    (function("regexp_extract", s, r"(\d+)-(\d+)", 2), {"s": "x 12-34"}, "34", TEXT),
    (function("regexp_extract", s, r"\d"), {"s": "x"}, "", TEXT),
    (function("regexp_replace", s, r"(a)(b)?", r"<$1\2>\$$0"), {"s": "ab-a"}, "<ab>$ab-<a>$a", TEXT),
    (function("regexp_replace", s, "a", "", "g"), {"s": "banana"}, "bnn", TEXT),
    (function("repeat", s, 2), {"s": "äb"}, "äbäb", TEXT),
    (function("repeat", s, -1), {"s": "ab"}, "", TEXT),
    (function("lpad", s, 4), {"s": "äb"}, "  äb", TEXT),
    (function("lpad", s, 5, "xy"), {"s": "äb"}, "xyxäb", TEXT),
    (function("lpad", s, 1, "xy"), {"s": "äb"}, "ä", TEXT),
    (function("rpad", s, 5, "xy"), {"s": "äb"}, "äbxyx", TEXT),
    (function("rpad", s, 3, ""), {"s": "äb"}, "äb", TEXT),
    (function("rpad", s, -1, "x"), {"s": "äb"}, "", TEXT),
    # numbers
    (function("abs", i), {"i": -3}, 3, INT),
    (function("sign", f), {"f": -0.5}, -1.0, FLOAT),
    (function("round", f), {"f": -2.5}, -3.0, FLOAT),
    (function("round", f, 1), {"f": 0.25}, 0.3, FLOAT),
    (function("round", i, -1), {"i": 25}, 30, INT),
    (function("round", d, 1), {"d": Decimal("99999999.95")}, Decimal("100000000.00"), decimal(11, 2)),
    (function("floor", d), {"d": Decimal("-1.10")}, Decimal("-2.00"), decimal(11, 2)),
    (function("ceil", f), {"f": 1.1}, 2.0, FLOAT),
    (function("trunc", f), {"f": -1.9}, -1.0, FLOAT),
    (function("sqrt", i), {"i": 9}, 3.0, FLOAT),
    (function("sqrt", i), {"i": -9}, NAN, FLOAT),
    (function("ln", i), {"i": 0}, -INFINITY, FLOAT),
    (function("power", i, 3), {"i": -2}, -8.0, FLOAT),
    (function("least", i, 3, None), {"i": 5}, 3, INT),
    (function("greatest", f, 3), {"f": NAN}, NAN, FLOAT),
    (function("greatest", f, 3), {"f": None}, 3.0, FLOAT),
    (function("coalesce", i, 0), {"i": None}, 0, INT),
    (function("nullif", i, 0), {"i": 0}, None, INT),
    (function("nullif", i, lit(None)), {"i": 1}, 1, INT),
    # times
    (col("ts") - col("ts"), {"ts": NOON}, timedelta(0), pa.duration("ms")),
    (
        col("ts") + col("span"),
        {"ts": NOON, "span": timedelta(hours=12)},
        datetime(2024, 3, 1, 0, 30, 45, 678000),
        TYPES["ts"],
    ),
    (col("span") + col("ts"), {"ts": NOON, "span": timedelta(0)}, NOON, TYPES["ts"]),
    (col("ts") - timedelta(microseconds=1), {"ts": NOON}, NOON - timedelta(microseconds=1), pa.timestamp("us")),
    (col("span") * 2, {"span": timedelta(seconds=2)}, timedelta(seconds=4), TYPES["span"]),
    (-col("span"), {"span": timedelta(seconds=2)}, timedelta(seconds=-2), TYPES["span"]),
    (col("day") - date(2024, 1, 1), {"day": date(2024, 1, 3)}, timedelta(days=2), pa.duration("s")),
    (col("ts") == col("us"), {"ts": NOON, "us": NOON}, True, BOOL),
    (col("ts") < datetime(2025, 1, 1), {"ts": NOON}, True, BOOL),
    (function("year", col("day")), {"day": date(2024, 2, 29)}, 2024, INT),
    (function("hour", col("ts")), {"ts": NOON}, 12, INT),
    (function("second", col("us")), {"us": BEFORE_1970}, 59, INT),
    (function("day_of_week", col("ts")), {"ts": NOON}, 4, INT),
    (function("week", col("day")), {"day": date(2021, 1, 3)}, 53, INT),
    (function("date_trunc", "month", col("ts")), {"ts": NOON}, datetime(2024, 2, 1), TYPES["ts"]),
    (function("date_trunc", "week", col("day")), {"day": date(2024, 2, 29)}, date(2024, 2, 26), TYPES["day"]),
    (function("epoch_ms", col("us")), {"us": BEFORE_1970}, -1, INT),
    (function("strftime", col("ts"), "%Y-%m-%d %H"), {"ts": NOON}, "2024-02-29 12", TEXT),
    # casts
    (f.cast("int64"), {"f": -1.9}, -1, INT),
    (f.cast("decimal(5,1)"), {"f": 0.25}, Decimal("0.3"), decimal(5, 1)),
    (f.cast("decimal(5,1)"), {"f": 3.05}, Decimal("3.1"), decimal(5, 1)),
    (d.cast("decimal(5,1)"), {"d": Decimal("-0.25")}, Decimal("-0.3"), decimal(5, 1)),
    (d.cast("int64"), {"d": Decimal("-1.99")}, -1, INT),
    (s.cast("decimal(5,2)"), {"s": "1.255"}, Decimal("1.26"), decimal(5, 2)),
    (s.cast("float64"), {"s": "1e3"}, 1000.0, FLOAT),
    (s.cast("bool"), {"s": "TRUE"}, True, BOOL),
    (s.cast("timestamp[ms]"), {"s": "2024-02-29T12:30:45.678"}, NOON, TYPES["ts"]),
    (s.cast("date"), {"s": "2024-02-29"}, date(2024, 2, 29), TYPES["day"]),
    (i.cast("bool"), {"i": -2}, True, BOOL),
    (p.cast("int64"), {"p": True}, 1, INT),
    (i.cast("timestamp[ms]"), {"i": -1}, datetime(1969, 12, 31, 23, 59, 59, 999000), TYPES["ts"]),
    (col("us").cast("timestamp[s]"), {"us": BEFORE_1970}, datetime(1969, 12, 31, 23, 59, 59), pa.timestamp("s")),
    (col("us").cast("date"), {"us": BEFORE_1970}, date(1969, 12, 31), TYPES["day"]),
    (col("span").cast("duration[s]"), {"span": timedelta(milliseconds=-1)}, timedelta(seconds=-1), pa.duration("s")),
    (f.cast("string"), {"f": 2.0}, "2", TEXT),
    (f.cast("string"), {"f": 1e10}, "1e+10", TEXT),
    (f.cast("string"), {"f": 1e-7}, "1e-7", TEXT),
    (d.cast("string"), {"d": Decimal("1.50")}, "1.50", TEXT),
    (p.cast("string"), {"p": True}, "true", TEXT),
    (col("ts").cast("string"), {"ts": NOON}, "2024-02-29 12:30:45.678", TEXT),
    (col("ts").cast("string"), {"ts": datetime(2024, 1, 1)}, "2024-01-01 00:00:00", TEXT),
    (lit(None).cast("int64"), {}, None, INT),
    # CASE
    (when(i > 0).then("plus").when(i < 0).then("minus").otherwise("zero"), {"i": -1}, "minus", TEXT),
    (when(i > 0).then("plus").when(i < 0).then("minus").otherwise("zero"), {"i": None}, "zero", TEXT),
    (when(i > 0).then(1).otherwise(2.5), {"i": 1}, 1.0, FLOAT),
    (when(i > 0).then(i).otherwise(None), {"i": 0}, None, INT),
    # Python functions see no nulls
    (udf(lambda a, b: f"{a}:{b}", i, s, type="string"), {"i": 1, "s": "x"}, "1:x", TEXT),
    (udf(lambda a: a + 1, i, type="int64"), {"i": None}, None, INT),
]


def same(a: Any, b: Any) -> bool:
    return (a != a and b != b) or (a is None and b is None) or (a is not None and bool(a == b))


@pytest.mark.parametrize(("expr", "row", "expected", "type_"), CASES, ids=[str(case[0]) for case in CASES])
def test_value_and_columns(expr: Expr, row: dict[str, Any], expected: Any, type_: pa.DataType) -> None:
    schema = Schema.of([(name, TYPES[name]) for name in row])
    assert expr.bind(schema) == type_
    assert same(expr.value(row), expected)
    columns = {name: pa.array([None, value, value], TYPES[name]) for name, value in row.items()}
    found = expr.evaluate(columns, 3)
    assert found.type == type_
    assert same(found[1].as_py(), expected) and same(found[2].as_py(), expected)
    empty = expr.evaluate({name: column.slice(0, 0) for name, column in columns.items()}, 0)
    assert (empty.type, len(empty)) == (type_, 0)


ERRORS: list[tuple[Expr, dict[str, Any], str]] = [
    (i + 1, {"i": 2**63 - 1}, "integer overflow"),
    (i * i, {"i": 2**32}, "decimal\\(38, 0\\)"),
    (-i, {"i": -(2**63)}, "integer overflow"),
    (i // -1, {"i": -(2**63)}, "integer overflow"),
    (function("abs", i), {"i": -(2**63)}, "integer overflow"),
    (i.cast("int8"), {"i": 128}, "128 cannot be cast to int8"),
    (s.cast("int64"), {"s": "12x"}, "'12x' cannot be cast to int64"),
    (f.cast("int64"), {"f": NAN}, "nan cannot be cast to int64"),
    (d.cast("decimal(3,1)"), {"d": Decimal("99.95")}, "cannot be cast"),
    (s.cast("timestamp"), {"s": "yesterday"}, "'yesterday' cannot be cast"),
    (function("substr", s, 1, -1), {"s": "abc"}, "-1 characters"),
    (lit(2**63 - 1) + 1, {}, "integer overflow"),
]


@pytest.mark.parametrize(("expr", "row", "message"), ERRORS, ids=[str(case[0]) for case in ERRORS])
def test_rows_without_a_value_are_named(expr: Expr, row: dict[str, Any], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        expr.value(row)
    columns = {name: pa.array([None, value], TYPES[name]) for name, value in row.items()}
    with pytest.raises(EvaluationError, match=message) as error:
        expr.evaluate(columns, 2)
    assert str(expr) in str(error.value)
    for name, value in row.items():
        assert f"{name} = {value!r}" in str(error.value)


def test_zoned_timestamps_are_read_in_their_zone() -> None:
    moment = pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)], pa.timestamp("ms", "UTC"))
    assert function("hour", col("t")).evaluate({"t": moment}, 1).to_pylist() == [12]
    assert function("epoch_ms", col("t")).value({"t": moment[0].as_py()}) == 1704110400000
    assert function("epoch_ms", col("t")).evaluate({"t": moment}, 1).to_pylist() == [1704110400000]


def test_a_constant_fills_the_batch() -> None:
    assert lit(7).evaluate({}, 3).to_pylist() == [7, 7, 7]
    assert (lit(2) * 3 + 1).evaluate({}, 2).to_pylist() == [7, 7]
    assert lit(None, "int64").evaluate({}, 1).type == INT

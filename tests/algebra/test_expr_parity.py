"""differential: the columnar form of random expressions equals the definition, row by row."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from everwhen.algebra.expressions.build import Call, Expr, col, function, lit, walk, when
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError, QueryError

SCHEMA = Schema.of(
    [
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("k", pa.uint8()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("e", pa.decimal128(38, 6)),
        ("p", pa.bool_()),
        ("q", pa.bool_()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("ms", pa.timestamp("ms")),
        ("us", pa.timestamp("us")),
        ("day", pa.date32()),
        ("span", pa.duration("ms")),
    ]
)
LAZY = {"and", "or", "case", "coalesce"}
EXAMPLES = 4 * settings.default.max_examples  # the grammar is large

text = st.text(alphabet="ab%_\\. äßΣİ\N{GRINNING FACE}'", max_size=6)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1)),
    "j": st.integers(-(2**31), 2**31 - 1),
    "k": st.integers(0, 255),
    "f": st.one_of(st.sampled_from([0.0, -0.0, 0.5, -2.5, math.nan, math.inf, -math.inf]), st.floats()),
    "g": st.floats(width=32),
    "d": st.decimals(-99999999, 99999999, places=2),
    "e": st.one_of(st.decimals(-100, 100, places=6), st.just(Decimal("9" * 32))),
    "p": st.booleans(),
    "q": st.booleans(),
    "s": text,
    "t": text,
    "ms": moments.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)),
    "us": moments,
    "day": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "span": st.integers(-(10**12), 10**12).map(lambda n: timedelta(milliseconds=n)),
}
rows = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=6)


def of(*choices: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(*choices)


def columns(*names: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from([col(name) for name in names])


def calls(name: str, *args: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.tuples(*args).map(lambda found: Call(name, found))


def named(names: list[str], *args: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.sampled_from(names).flatmap(lambda name: calls(name, *args))


def constants(values: st.SearchStrategy[Any], type_: pa.DataType | None = None) -> st.SearchStrategy[Expr]:
    return values.map(lambda value: lit(value, type_))


small = st.integers(-3, 3)
ARITHMETIC = ["+", "-", "*", "/", "//", "%"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def numbers(depth: int) -> st.SearchStrategy[Expr]:
    leaves = of(
        columns("i", "j", "k", "f", "g", "d", "e"),
        constants(small),
        constants(VALUES["f"]),
        constants(VALUES["d"], pa.decimal128(10, 2)),
        st.just(lit(None, pa.int64())),
        st.just(lit(None)),
    )
    if depth == 0:
        return leaves
    below = numbers(depth - 1)
    return of(
        leaves,
        named(ARITHMETIC, below, below),
        named(["negate", "abs", "sign", "floor", "ceil", "trunc", "sqrt", "exp", "ln", "log10"], below),
        calls("round", below, constants(small)),
        calls("power", below, below),
        named(["least", "greatest", "coalesce", "nullif"], below, below),
        calls("case", conditions(depth - 1), below, below),
        named(["length"], texts(depth - 1)),
        named(["year", "month", "day", "quarter", "week", "day_of_week", "day_of_year"], times(depth - 1)),
        named(["hour", "minute", "second", "epoch_ms"], columns("ms", "us")),
        below.flatmap(lambda e: st.sampled_from(["int64", "int16", "float64", "float32", "decimal(12,1)"]).map(e.cast)),
    )


def texts(depth: int) -> st.SearchStrategy[Expr]:
    leaves = of(columns("s", "t"), constants(text))
    if depth == 0:
        return leaves
    below = texts(depth - 1)
    return of(
        leaves,
        named(["lower", "upper", "reverse", "trim", "ltrim", "rtrim"], below),
        calls("trim", below, constants(text)),
        calls("concat", below, below),
        calls("substr", below, constants(small), constants(st.integers(0, 3))),
        calls("substr", below, of(constants(small), columns("i"))),
        named(["left", "right"], below, constants(small)),
        calls("replace", below, texts(0), texts(0)),
        calls("split_part", below, texts(0), constants(small)),
        calls("case", conditions(depth - 1), below, below),
        of(columns("i", "d", "f", "p", "ms", "us", "day")).map(lambda e: e.cast("string")),
    )


def times(depth: int) -> st.SearchStrategy[Expr]:
    leaves = of(columns("ms", "us", "day"), constants(moments), constants(VALUES["day"]))
    if depth == 0:
        return leaves
    below = times(depth - 1)
    units = constants(st.sampled_from(["second", "minute", "hour", "day", "week", "month", "quarter", "year"]))
    return of(
        leaves,
        calls("date_trunc", units, below),
        named(["+", "-"], columns("ms", "us"), columns("span")),
        named(["least", "greatest", "coalesce"], columns("ms", "us"), columns("us", "ms")),
        below.flatmap(
            lambda e: st.sampled_from(["timestamp[s]", "timestamp[ms]", "timestamp[us]", "date32"]).map(e.cast)
        ),
    )


def conditions(depth: int) -> st.SearchStrategy[Expr]:
    leaves = of(columns("p", "q"), constants(st.booleans()), st.just(lit(None, pa.bool_())))
    if depth == 0:
        return leaves
    below = conditions(depth - 1)
    span = columns("span")
    return of(
        leaves,
        named(["and", "or"], below, below),
        calls("not", below),
        named(COMPARISONS, numbers(depth - 1), numbers(depth - 1)),
        named(COMPARISONS, texts(depth - 1), texts(depth - 1)),
        named(COMPARISONS, below, below),
        named(COMPARISONS, columns("ms", "us"), of(columns("ms", "us"), constants(moments))),
        named(COMPARISONS, span, calls("-", columns("ms", "us"), columns("ms", "us"))),
        named(["starts_with", "ends_with", "contains", "like"], texts(depth - 1), texts(0)),
        named(["is_null", "not_null"], numbers(depth - 1)),
        calls(
            "in", numbers(depth - 1), constants(small), of(constants(small), constants(VALUES["f"]), st.just(lit(None)))
        ),
        calls("in", texts(depth - 1), constants(text), constants(text)),
    )


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300)
    return bool(a == b)


def check(expr: Expr, batch: list[dict[str, Any]]) -> None:
    try:
        type_ = expr.bind(SCHEMA)
    except QueryError:
        assume(False)
    arrays = {name: pa.array([row[name] for row in batch], SCHEMA.field(name).type) for name in SCHEMA.names}
    plain = [{name: arrays[name][i].as_py() for name in SCHEMA.names} for i in range(len(batch))]
    try:
        expected = [expr.value(row) for row in plain]
    except EvaluationError:
        with pytest.raises(EvaluationError):
            expr.evaluate(arrays, len(batch))
        return
    compiled = expr._compiled([arrays[name].type for name in expr._names])
    if "e" not in expr.columns() and not any(isinstance(e, Call) and e.name in LAZY for e in walk(expr)):
        compiled.run(arrays, len(batch))  # without lazy parts and 38-digit products the kernels must not fail
    found = expr.evaluate(arrays, len(batch))
    assert found.type == type_
    assert len(found) == len(batch)
    found.validate(full=True)
    for got, want, row in zip(found.to_pylist(), expected, plain, strict=True):
        assert same(got, want), (str(expr), got, want, row)


@settings(max_examples=EXAMPLES)
@given(numbers(2), rows)
def test_numbers(expr: Expr, batch: list[dict[str, Any]]) -> None:
    check(expr, batch)


@settings(max_examples=EXAMPLES)
@given(conditions(2), rows)
def test_conditions(expr: Expr, batch: list[dict[str, Any]]) -> None:
    check(expr, batch)


@settings(max_examples=EXAMPLES)
@given(texts(2), rows)
def test_texts(expr: Expr, batch: list[dict[str, Any]]) -> None:
    check(expr, batch)


@settings(max_examples=EXAMPLES)
@given(times(2), rows)
def test_times(expr: Expr, batch: list[dict[str, Any]]) -> None:
    check(expr, batch)


@given(st.lists(VALUES["f"] | st.none(), min_size=2, max_size=2), st.sampled_from(COMPARISONS))
def test_float_comparisons_agree_with_constants_on_either_side(pair: list[float | None], symbol: str) -> None:
    batch = {"a": pa.array([pair[0]], pa.float64()), "b": pa.array([pair[1]], pa.float64())}
    both = Call(symbol, (col("a"), col("b"))).evaluate(batch, 1)
    left = Call(symbol, (lit(pair[0], pa.float64()), col("b"))).evaluate(batch, 1)
    right = Call(symbol, (col("a"), lit(pair[1], pa.float64()))).evaluate(batch, 1)
    assert both.equals(left) and both.equals(right)


def test_slices_of_larger_arrays_are_read_at_their_offset() -> None:
    whole = {"i": pa.array([9, None, -7, 4]), "f": pa.array([1.0, math.nan, None, -0.5])}
    part = {name: array.slice(1, 3) for name, array in whole.items()}
    for expr in (col("i") % 4, col("i") // -2, col("f") > 0, col("f") % 2, function("round", col("f"))):
        found, expected = expr.evaluate(part, 3).to_pylist(), expr.evaluate(whole, 4).to_pylist()[1:]
        assert all(map(same, found, expected)), str(expr)


def test_a_branch_not_taken_may_fail() -> None:
    expr = when(col("s") == "none").then(0).otherwise(col("s").cast("int64"))
    assert expr.evaluate({"s": pa.array(["none", "12", None])}, 3).to_pylist() == [0, 12, None]

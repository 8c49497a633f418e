"""Named expressions: those to compare, by group, those that fail for some rows, those that are left to Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Expr, col, function, lit, udf, when
from spark.expression_rows import INFINITY, LEAST, MOMENTS, MOST, NAN, VALUES

NUMBERS = ["i", "k", "h", "j", "f", "x", "g", "d", "e"]
TEXTS = ["s", "t"]
TIMES = ["us", "ut", "z", "day"]
CONSTANTS: list[Any] = [0, -7, LEAST, MOST, -0.0, -2.5, NAN, INFINITY, 9007199254740993.0, None]
UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def pairs(names: Sequence[str], symbols: Sequence[str]) -> list[Expr]:
    return [Call(symbol, (col(a), col(b))) for symbol in symbols for a, b in product(names, names)]


def with_constants(names: Sequence[str], symbols: Sequence[str], values: Sequence[Any]) -> list[Expr]:
    found: list[Expr] = []
    for symbol, name, value in product(symbols, names, values):
        found += [Call(symbol, (col(name), lit(value))), Call(symbol, (lit(value), col(name)))]
    return found


CAST_TARGETS = ["int8", "int16", "int32", "int64", "float32", "float64", "decimal(6,1)", "decimal(38,10)", "bool"]
CAST_TARGETS += ["string", "date32", "timestamp[us]", "binary"]
CASES: dict[str, list[Expr]] = {
    "arithmetic": [
        *pairs(["i", "k", "j", "d"], ["+", "-", "*", "//", "%"]),
        *pairs(["i", "f", "x", "g", "d", "e"], ["+", "*", "/", "%"]),
    ],
    "arithmetic with constants": [
        *with_constants(["i"], ["+", "-", "*", "/", "//", "%"], [0, 1, -1, 3, -3, LEAST, MOST]),
        *with_constants(["f"], ["+", "/", "%"], [0, -3, 0.5, NAN, INFINITY, 9007199254740993.0, None]),
    ],
    "comparisons": [
        *pairs(NUMBERS, ["=", "<", ">="]),
        *(each for kin in (TEXTS, TIMES, ["p", "q"], ["b"]) for each in pairs(kin, COMPARISONS)),
    ],
    "comparisons with constants": [
        *with_constants(["i", "f"], ["=", "<", ">="], CONSTANTS),
        *with_constants(["j", "g", "d"], ["<>", "<="], [3, MOST, -2.5, NAN]),
        *with_constants(["s"], COMPARISONS, ["", "a", "ß", "\uffff", None]),
        *with_constants(["us"], ["=", "<"], [*MOMENTS, None]),
        *with_constants(["day"], COMPARISONS, [date(1, 1, 1), date(2024, 2, 29)]),
        *with_constants(["d", "i"], COMPARISONS, [Decimal("0.15"), Decimal("-2.55")]),
        *with_constants(["b"], COMPARISONS, [b"a"]),
    ],
    "functions of numbers": [
        *(
            function(name, col(x))
            for name in ("negate", "abs", "sign", "floor", "ceil", "trunc", "sqrt")
            for x in NUMBERS
        ),
        *(function("round", col(x), digits) for x in NUMBERS for digits in (-15, -3, -1, 0, 1, 2, 3, 11, 15)),
        *(function("round", col(x)) for x in NUMBERS),
        *(function(name, col(x), col(y)) for name in ("try_add", "try_subtract") for x in "ij" for y in "ijk"),
        *(function(name, col("i"), y) for name in ("try_add", "try_subtract") for y in (1, -1, MOST)),
    ],
    "functions of text": [
        *(
            function(name, col(x))
            for name in ("lower", "upper", "reverse", "length", "trim", "ltrim", "rtrim")
            for x in TEXTS
        ),
        *(
            function(name, col("s"), x)
            for name in ("trim", "ltrim", "rtrim")
            for x in ("", "a ", "\U0001f600ß", col("t"))
        ),
        *(function("substr", col("s"), n) for n in range(-4, 5)),
        *(function("substr", col("s"), n, size) for n in range(-4, 5) for size in (0, 1, 2, 9, 2**40)),
        *(function(name, col("s"), n) for name in ("left", "right") for n in (-2, 0, 1, 2, 99, 2**40)),
        *(function("replace", col("s"), old, new) for old, new in product(("", "a", col("t")), ("", "xy", col("t")))),
        *(function("split_part", col("s"), by, n) for by in (",", "", "a", col("t")) for n in (-4, -1, 0, 1, 2, 5)),
        *(function(name, col("s"), x) for name in ("position", "contains") for x in ("", "a", "ß", col("t"))),
        *(function(name, col("s"), x) for name in ("starts_with", "ends_with") for x in ("", "a", "ß", col("t"))),
        *(function("concat", *args) for args in ((col("s"),), (col("s"), col("t"), "x"), (col("s"), lit(None)))),
        *(
            function("like", col("s"), x)
            for x in ("", "%", "_", "a%", "%b", "a_b", "a\\_b", "a\\%b", "%\\%", "\\%%", "%a%")
        ),
        *(function("like", col("s"), x) for x in ("a\\", "\\a", "a\\\\b", "%,%", "_%_", "\\_", "a%%b", ".", "a.b")),
    ],
    "functions of times": [
        *(function(name, col(x)) for name in ("year", "quarter", "month", "week", "day") for x in TIMES),
        *(function(name, col(x)) for name in ("day_of_week", "day_of_year") for x in TIMES),
        *(function(name, col(x)) for name in ("hour", "minute", "second", "epoch_ms") for x in TIMES),
        *(function("date_trunc", unit, col(x)) for unit in UNITS for x in TIMES),
        *(
            Call(symbol, (col(x), lit(span)))
            for symbol in "+-"
            for x in TIMES
            for span in (
                timedelta(0),
                timedelta(days=3, microseconds=1),
                timedelta(microseconds=-1),
                timedelta(hours=-25),
            )
        ),
        lit(timedelta(hours=1)) + col("us"),
        col("us") + lit(5, pa.duration("s")),
        col("us") + lit(None, pa.duration("s")),
        col("us") - col("ut"),
    ],
    "casts": [col(name).cast(target) for name in VALUES for target in CAST_TARGETS]
    + [col("i").cast(pa.timestamp("us", "UTC")), col("z").cast(pa.date32())],
    "logic": [
        *(Call(name, (col("p"), x)) for name in ("and", "or") for x in (col("q"), lit(True), lit(False), lit(None))),
        *(Call(name, (col("p"), col("i") + 1 > col("j"))) for name in ("and", "or")),
        *(Call(name, (col("i") + 1 > col("j"), col("p"))) for name in ("and", "or")),
        *(Call(name, (col("i") + 1 > 0, x)) for name in ("and", "or") for x in (lit(True), lit(False), lit(None))),
        (col("p") | (col("i") * 3 > 7)) & ~(col("q") & (col("s").cast("int64") > 1)) & (col("h") > 0),
        ~col("p"),
        *(function(name, x) for name in ("is_null", "not_null") for x in (col("s"), col("f") / 2, col("i") + 1)),
        col("f").is_in([0.0, NAN, 1.0]),
        col("f").is_in([-0.0, None]),
        col("f").is_in([float(n) for n in range(14)] + [NAN]),
        col("i").is_in([1, 2, None]),
        col("i").is_in([]),
        (col("i") + 1).is_in([]),
        (col("i") + 1).is_in([1, 3]),
        col("i").is_in([0.5, 9007199254740992.0]),
        col("s").is_in(["a", "ß"]),
        col("j").is_in([2**40, 5]),
        col("d").is_in([Decimal("0.150"), 1]),
        col("i").between(0, 10),
        when(col("p")).then(col("i")).otherwise(col("f")),
        when(col("p")).then(col("i") + 1).when(col("q")).then(col("i") * 2).otherwise(None),
        when(col("i") > 0).then(col("i") - 1).otherwise(col("i") + 1),
        when(col("i") + 1 > 0).then("a").otherwise("a"),
        when(col("i") + 1 > 0).then("a").otherwise("b"),
        when(col("s") == "12").then(col("s").cast("int64")).otherwise(0),
        function("coalesce", col("i"), col("j"), 0),
        function("coalesce", col("g"), col("f")),
        function("coalesce", lit(None), col("s")),
        function("coalesce", col("k"), col("i") * 10),
        function("coalesce", col("i") + 1, 0) > col("j"),
        function("nullif", col("f"), col("i")),
        function("nullif", col("i"), 0),
        function("nullif", col("s"), "a"),
        function("nullif", col("k"), col("i") + 1),
        *(
            function(name, *args)
            for name in ("least", "greatest")
            for args in (
                (col("i"), col("k")),
                (col("i"), col("f"), 0),
                (col("s"), col("t")),
                (col("f"),),
                (col("us"), col("ut")),
                (col("i") + 1, col("k")),
                (col("d"), col("i")),
            )
        ),
    ],
}


FAILING = [
    col("i") + 1,
    col("i") - col("k"),
    col("i") * col("k"),
    -col("i"),
    function("abs", col("i")),
    col("i") // -1,
    col("i") // col("k"),
    col("i").cast("int8"),
    col("f").cast("int64"),
    col("f").cast("int32"),
    col("g").cast("int8"),
    col("e").cast("int64"),
    col("e").cast("decimal(6,1)"),
    col("i").cast("decimal(6,1)"),
    col("s").cast("int64"),
    col("s").cast("int8"),
    col("s").cast("bool"),
    col("x") > col("i") * 2,  # also where x is null
    (col("i") + 1 > 0) & (col("j") > 0),
    (col("i") + 1 > 0) | col("p"),
    (col("k") > 0) & (col("i") + 1 > 0),
    when(col("p")).then(col("i") * 3).otherwise(0),
    when(col("i") * 3 > 0).then(1).otherwise(2),
    function("coalesce", col("i") + 1, 0),
    function("least", col("i") + 1, col("k")),
    function("nullif", col("i") + 1, 5),
    (col("i") + 1).is_in([1, 2]),
    function("coalesce", col("i") + 1, 0) > 5,
]


NOT_TRANSLATED = [
    *(function(name, col("f")) for name in ("exp", "ln", "log10")),
    function("power", col("f"), 2),
    function("regexp_matches", col("s"), "a+"),
    function("strftime", col("us"), "%Y"),
    function("like", col("s"), col("t")),
    function("like", col("s"), "a\\\\b"),
    function("substr", col("s"), col("i")),
    function("split_part", col("s"), ",", 0),
    function("is_null", col("i") + 1),
    (col("i") + 1 > 0) & lit(False),
    when(col("i") + 1 > 0).then("a").otherwise("a"),
    col("e") * col("e").cast("decimal(10,2)"),
    col("d") % 2,
    col("f") // 2,
    function("round", col("i"), -2),
    col("f").cast("string"),
    col("s").cast("float64"),
    col("s").cast("date"),
    col("us") - col("ut"),
    col("us").cast("timestamp[ms]"),
    col("z").cast("string"),
    col("i").cast("uint8"),
    udf(lambda x: x, col("i"), type=int),
]

"""Random promises of all forms over columns of all types, and the few values that they are tried on."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER

NAN, INFINITY = float("nan"), float("inf")
DOMAINS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -(2**63) + 1, -1, 0, 1, 2, 3, 2**63 - 2, 2**63 - 1],
    pa.int8(): [-128, -127, 0, 1, 126, 127],
    pa.uint64(): [0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1],
    pa.uint16(): [0, 1, 2, 65534, 65535],
    pa.float64(): [-INFINITY, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.0000000000000002, INFINITY, NAN],
    pa.float32(): [-INFINITY, -1.5, 0.0, 1.0, 1.00000011920928955078125, INFINITY, NAN],
    pa.bool_(): [False, True],
    pa.string(): ["", "\0", "a", "a\0", "aa", "b", "é", "\U0001f600", "a rather long text of many bytes", "￿"],
    pa.large_string(): ["", "a", "b", "bc"],
    pa.binary(): [b"", b"\0", b"\0\0", b"\x01", b"\xff", b"\xff\0"],
    pa.binary(2): [b"\0\0", b"\0\x01", b"ab", b"\xff\xfe", b"\xff\xff"],
    pa.date32(): [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2), date(9999, 12, 31)],
    pa.date64(): [date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2)],
    pa.timestamp("us"): [datetime(1969, 12, 31), datetime(2020, 1, 1), datetime(2020, 1, 1, microsecond=1)],
    pa.timestamp("ns"): [
        "1969-12-31T23:59:59.999999999",
        "1970-01-01T00:00:00.000000000",
        "1970-01-01T00:00:00.000000001",
    ],
    pa.time32("s"): [time(0), time(0, 0, 1), time(12), time(23, 59, 58), time(23, 59, 59)],
    pa.duration("us"): [timedelta(days=-1), timedelta(0), timedelta(microseconds=1)],
    pa.decimal128(12, 3): [
        Decimal("-999999999.999"),
        Decimal("-0.001"),
        Decimal("0.000"),
        Decimal("0.001"),
        Decimal("7.000"),
    ],
    pa.decimal128(38, 2): [
        Decimal("-9" + "9" * 35 + ".99"),
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("0.01"),
        Decimal(10**30) + Decimal("0.00"),
        Decimal("9" * 36 + ".99"),
    ],
    pa.list_(pa.int64()): [(), (1,), (1, 2), (2,)],
    pa.null(): [],
}
UNORDERED = (pa.list_(pa.int64()), pa.null())
COMMON = (pa.int64(), pa.int8(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.decimal128(38, 2))


def domain(type_: pa.DataType) -> list[Any]:
    """The values that a column is tried with."""
    return [None, *DOMAINS[type_]]


def patterns(type_: pa.DataType) -> st.SearchStrategy[AttributePattern]:
    values = DOMAINS[type_]
    constants = st.sampled_from(domain(type_))
    forms: list[st.SearchStrategy[AttributePattern]] = [
        constants.map(lambda v: OneOf((v,))),
        st.lists(constants, max_size=4).map(lambda found: OneOf(tuple(found))),
        st.lists(constants, min_size=2, max_size=4).map(lambda found: OneOf(tuple(found))),
    ]
    if type_ not in UNORDERED:
        bounds = st.dictionaries(st.sampled_from(["ge", "gt", "le", "lt"]), st.sampled_from(values), max_size=3)
        forms += [bounds.map(lambda found: Range(**found))] * 2
    # The empty pattern is rare: a promise that has it says nothing.
    return st.integers(0, 19).flatmap(lambda rare: st.just(Nothing()) if rare == 19 else st.one_of(forms))


def times() -> st.SearchStrategy[int]:
    return st.sampled_from([INF, INF, 1, 2, 3])


@st.composite
def promises(draw: st.DrawFn, schema: Schema) -> Punctuation:
    names = draw(st.lists(st.sampled_from(schema.names), unique=True, max_size=len(schema)))
    return Punctuation({name: draw(patterns(schema.field(name).type)) for name in names}, draw(times()))


def schemas(most: int = 3, types: tuple[pa.DataType, ...] = tuple(DOMAINS)) -> st.SearchStrategy[Schema]:
    kinds = st.lists(st.sampled_from(types), min_size=1, max_size=most)
    return kinds.map(lambda found: Schema.of([("abcd"[i], type_) for i, type_ in enumerate(found)]))


def payloads(schema: Schema) -> list[dict[str, Any]]:
    """Every combination of the values of the columns."""
    return [dict(zip(schema.names, row, strict=True)) for row in product(*(domain(t) for t in schema.types))]


def columns(rows: list[dict[str, Any]], schema: Schema) -> dict[str, pa.Array]:
    from everwhen.core.scalars import from_python

    return {f.name: from_python([row[f.name] for row in rows], f.type) for f in schema}


def limit(promises_: list[Punctuation], row: dict[str, Any]) -> int:
    """F(x) by definition."""
    return max((p.t for p in promises_ if p.matches(row)), default=NEVER)

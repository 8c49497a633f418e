"""Random schemas and well-formed elements of all kinds, and a plain form of batches to compare them by."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from everwhen.core.punctuation import Nothing, OneOf, Punctuation, Range
from everwhen.core.scalars import python_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import ElementBatch
from everwhen.values.sets import spans_of

texts = st.text(st.characters(codec="utf-8"), max_size=8)

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.string(): texts,
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes().map(lambda d: d.replace(fold=0)),
    pa.timestamp("s"): st.datetimes().map(lambda d: d.replace(microsecond=0, fold=0)),
    pa.time64("us"): st.times().map(lambda t: t.replace(fold=0)),
    pa.time32("s"): st.times().map(lambda t: t.replace(microsecond=0, fold=0)),
    pa.duration("us"): st.integers(-(2**50), 2**50).map(lambda us: timedelta(microseconds=us)),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
    pa.binary(): st.binary(max_size=5),
    pa.list_(pa.int64()): st.lists(st.integers(-9, 9), max_size=3),
}
PLAIN = (pa.int64(), pa.float64(), pa.string(), pa.bool_())
RANGED = (pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"), pa.decimal128(12, 3))


def schemas(types: Iterable[pa.DataType] = tuple(VALUES)) -> st.SearchStrategy[Schema]:
    names = st.sampled_from(["a", "b", "item", "count", "at", "t", "ve", "größe", "50%", 'say "x"', ""])
    columns = st.lists(st.tuples(names, st.sampled_from(list(types))), max_size=4, unique_by=lambda pair: pair[0])
    return columns.map(Schema.of)


def finite_times() -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-5, 20), st.integers(MIN_TIME, MAX_TIME - 1))


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[int, int]:
    vs = draw(finite_times())
    ve = draw(st.one_of(st.just(vs + 1), st.integers(vs + 1, MAX_TIME), st.just(INF)))
    return vs, ve


@st.composite
def rows(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    return {field.name: draw(st.none() | VALUES[field.type]) for field in schema}


@st.composite
def promises(draw: st.DrawFn, schema: Schema) -> Punct:
    match: dict[str, Any] = {}
    for field in schema:
        values = VALUES[field.type].filter(lambda v: v == v).map(lambda v: tuple(v) if isinstance(v, list) else v)
        forms = [st.just(Nothing()), st.lists(st.none() | values, max_size=3).map(lambda found: OneOf(tuple(found)))]
        if field.type in RANGED:
            bounds = st.dictionaries(st.sampled_from(["ge", "gt", "le", "lt"]), values, min_size=1)
            ranges = bounds.map(lambda found: Range(**found))
            forms.append(ranges.filter(lambda found, type_=field.type: not spans_of(found, type_).empty))
        if draw(st.booleans()):
            match[field.name] = draw(st.one_of(forms))
    return Punct(Punctuation(match, draw(st.just(INF) | finite_times())))


@st.composite
def elements(draw: st.DrawFn, schema: Schema) -> Element:
    kind = draw(st.sampled_from(["insert"] * 4 + ["adjust", "cti", "punct", "external"]))
    if kind == "cti":
        return Cti(draw(finite_times() | st.just(INF)))
    if kind == "punct":
        return draw(promises(schema))
    vs, ve = draw(lifetimes())
    if kind == "external":
        return ExternalCti(vs, ve, draw(st.integers(0, 99)))
    if kind == "adjust":
        return Adjust(vs, ve, draw(st.integers(vs, MAX_TIME) | st.just(INF)), draw(rows(schema)))
    return Insert(vs, ve, draw(rows(schema)))


@st.composite
def streams(draw: st.DrawFn, types: Iterable[pa.DataType] = tuple(VALUES)) -> tuple[Schema, list[Element]]:
    schema = draw(schemas(types))
    return schema, draw(st.lists(elements(schema), max_size=8))


def plain(batches: Iterable[ElementBatch]) -> list[tuple[Any, ...]]:
    """Elements in a form in which equal means the same to the last bit, and NaN is NaN."""
    found = []
    for batch in batches:
        columns = [python_values(column) for column in batch.columns]
        for i, (op, vs, ve, vnew) in enumerate(zip(batch.op, batch.vs, batch.ve, batch.vnew, strict=True)):
            row = [repr(column[i]) for column in columns] if op <= 1 else None
            promise = repr(batch.promises.get(i)).replace("-0.0", "0.0")
            at = None if batch.at is None else int(batch.at[i])
            found.append((int(op), int(vs), int(ve), int(vnew), row, promise, at, batch.line(i)))
    return found

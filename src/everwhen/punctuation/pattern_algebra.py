"""What patterns say together: combine, subsume, simplify (Tucker, sections 3.1 and 3.2).

The law that `combine` keeps, for every payload x:  match(x, combine(p, q)) = match(x, p) and match(x, q).  Its time is
the smaller one: before it both hold.  No combination (the paper's Ψ) is `None`, and then no payload matches both.

A pattern alone does not know the type of its column, and whether a value lies between 3 and 4 depends on it.  So all of
this takes the schema, and is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.rows.dictionary import freeze, sort_key
from everwhen.values.order import Kind, constants, order_of
from everwhen.values.sets import Spans, holds, keys_of, overlap, range_of, spans_of


def combine(p: Punctuation, q: Punctuation, schema: Schema) -> Punctuation | None:
    """What both promise; `None` if no payload matches both.

    >>> from everwhen.core.punctuation import Range
    >>> schema = Schema.of([("item", pa.int64()), ("hour", pa.int64())])
    >>> p, q = Punctuation({"item": Range(ge=3)}, 9), Punctuation({"item": Range(lt=5), "hour": OneOf((1,))}, 7)
    >>> combine(p, q, schema)
    Punctuation(match={'item': Range(ge=3, gt=None, le=4, lt=None), 'hour': OneOf(values=(1,))}, t=7)
    """
    match = {**p.match, **q.match}
    for name, pattern in match.items():
        type_ = schema.field(name, "a pattern").type
        if name in p.match and name in q.match:
            match[name] = _both(p.match[name], pattern, type_)
        if isinstance(match[name], Nothing):
            return None
    return Punctuation(match, min(p.t, q.t))


def _both(p: AttributePattern, q: AttributePattern, type_: pa.DataType) -> AttributePattern:
    """The values that match both patterns of an attribute."""
    if isinstance(q, OneOf):
        p, q = q, p
    inside = spans_of(q, type_)
    if isinstance(p, OneOf):
        kept = tuple(value for value, there in zip(p.values, _among(p.values, inside, type_), strict=True) if there)
        return OneOf(kept) if kept else Nothing()
    found = overlap(spans_of(p, type_).runs, inside.runs)
    if not found or p is q:
        return p if found else Nothing()
    return range_of(*found[0], type_)


def _among(values: tuple[Any, ...], spans: Spans, type_: pa.DataType) -> Iterable[bool]:
    """Which constants are among some values."""
    order, column = order_of(type_), constants(values, type_)
    if order.kind is Kind.OPAQUE:
        return [spans.null if value is None else freeze(value) in spans.values for value in column.to_pylist()]
    known = iter(keys_of(column.drop_null(), order))
    return [holds(spans, next(known) if there else None) for there in column.is_valid().to_pylist()]


def subsumes(p: Punctuation, q: Punctuation, schema: Schema) -> bool:
    """Whether `p` says everything that `q` says: each payload of `q`, at least as far.

    >>> from everwhen.core.punctuation import Range
    >>> schema = Schema.of([("item", pa.int64())])
    >>> subsumes(Punctuation({"item": Range(ge=3)}), Punctuation({"item": OneOf((4, 7))}, 10), schema)
    True
    """
    ours, theirs = (
        {name: spans_of(pattern, schema.field(name, "a pattern").type, name) for name, pattern in each.match.items()}
        for each in (p, q)
    )
    if any(spans.empty for spans in theirs.values()):
        return True
    return p.t >= q.t and all(
        theirs[name].within(spans) if name in theirs else spans.complete for name, spans in ours.items()
    )


def simplified(pattern: AttributePattern, type_: pa.DataType, name: str = "") -> AttributePattern:
    """The same values in the shortest form: one value as a constant, none as `Nothing`, lists in order and once each.

    >>> from everwhen.core.punctuation import Range
    >>> simplified(Range(gt=3, lt=9), pa.int64()), simplified(Range(gt=3, le=4), pa.int64())
    (Range(ge=4, gt=None, le=8, lt=None), OneOf(values=(4,)))
    """
    match pattern:
        case Nothing():
            return pattern
        case OneOf(values):
            constants(values, type_, name)  # refuses what is not of the type
            return in_order(values)
    spans = spans_of(pattern, type_, name)
    if spans.empty:
        return Nothing()
    (lo, hi) = spans.runs[0]
    if lo == spans.lowest and hi is None and order_of(type_).kind is Kind.RANK:
        return pattern  # all but null: the ends of a type are no nicer than what was written
    return range_of(lo, hi, type_)


def in_order(values: Iterable[Any]) -> AttributePattern:
    """Constants once each and in order, a null first."""
    distinct = {freeze(value): value for value in values}
    return OneOf(tuple(sorted(distinct.values(), key=sort_key))) if distinct else Nothing()


def patterns_of(spans: Spans, type_: pa.DataType) -> list[AttributePattern]:
    """Patterns that match the values of spans, together: one list of the single values, one range for each run."""
    order = order_of(type_)
    single: list[Any] = [None] if spans.null else []
    ranges: list[AttributePattern] = []
    for lo, hi in spans.runs:
        pattern = range_of(lo, hi, type_)
        if isinstance(pattern, OneOf):
            single.extend(pattern.values)
        else:
            ranges.append(pattern)
    if order.kind is Kind.OPAQUE:
        single.extend(spans.values.values())
    return [OneOf(tuple(single)), *ranges] if single else ranges

"""Patterns as an algebra: match, combine, subsume, simplify (Tucker, sections 3.1 and 3.2).

The law that `combine` keeps, for every payload x:  match(x, combine(p, q)) = match(x, p) and match(x, q).  Its time is
the smaller one: before it both promises hold.  No combination (the paper's Ψ) is `None`, and then no payload matches
both.

A pattern alone does not know the type of its column; whether a value lies between 3 and 4 depends on it.  So what needs
the type takes it: `simplified`, and `subsumes` with a schema, are exact; without one `subsumes` may miss what only the
type shows, but never says too much.  Sets of promises are `everwhen.punctuation.store`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range, less, same
from everwhen.core.schema import Schema
from everwhen.rows.interner import freeze, sort_key
from everwhen.values.order import Kind, constants, order_of
from everwhen.values.sets import Spans, overlap, range_of, spans_of, values_of

_FEW = 8
"""Up to so many constants are compared one by one; more are hashed."""


def combine(p: Punctuation, q: Punctuation, schema: Schema | None = None) -> Punctuation | None:
    """What both promise; `None` if no payload matches both.

    A schema is needed only where one names a time by text and the other by Python's own type.

    >>> combine(Punctuation({"item": Range(ge=3)}, 9), Punctuation({"item": Range(lt=5), "hour": OneOf((1,))}, 7))
    Punctuation(match={'item': Range(ge=3, gt=None, le=None, lt=5), 'hour': OneOf(values=(1,))}, t=7)
    """
    match = dict(p.match)
    for name, pattern in q.match.items():
        if name not in match:
            match[name] = pattern
            continue
        try:
            match[name] = both(match[name], pattern)
        except TypeError:
            if schema is None:
                raise
            match[name] = _by_keys(match[name], pattern, schema.field(name, "a pattern").type)
    if any(_is_empty(pattern) for pattern in match.values()):
        return None
    return Punctuation(match, min(p.t, q.t))


def _by_keys(p: AttributePattern, q: AttributePattern, type_: pa.DataType) -> AttributePattern:
    """The values that match both, where Python cannot compare bounds: one of them is a range."""
    found = overlap(spans_of(p, type_).runs, spans_of(q, type_).runs)
    if isinstance(p, Range) and isinstance(q, Range):
        return range_of(*found[0], type_) if found else Nothing()
    return _one_of(value for value in values_of([lo for lo, _ in found], order_of(type_)))


def both(p: AttributePattern, q: AttributePattern) -> AttributePattern:
    """The values that match both patterns of an attribute."""
    match p, q:
        case (Nothing(), _) | (_, Nothing()):
            return Nothing()
        case OneOf(), OneOf():
            known = _lookup(q.values)
            return _one_of(v for v in p.values if freeze(v) in known)
        case (OneOf(), Range()):
            return _one_of(v for v in p.values if q.matches(v))
        case (Range(), OneOf()):
            return _one_of(v for v in q.values if p.matches(v))
        case (Range(), Range()):
            return _overlap(p, q)
    raise AssertionError((p, q))


def subsumes(p: Punctuation, q: Punctuation, schema: Schema | None = None) -> bool:
    """Whether `p` says everything that `q` says: each payload of `q`, at least as far.

    >>> subsumes(Punctuation({"item": Range(ge=3)}), Punctuation({"item": OneOf((4, 7))}, 10))
    True
    """
    if any(_is_empty(pattern) for pattern in q.match.values()):
        return True
    if schema is not None:
        ours = {
            name: spans_of(pattern, schema.field(name, "a pattern").type, name) for name, pattern in p.match.items()
        }
        theirs = {
            name: spans_of(pattern, schema.field(name, "a pattern").type, name) for name, pattern in q.match.items()
        }
        if any(spans.empty for spans in theirs.values()):
            return True
        return p.t >= q.t and all(
            theirs[name].within(spans) if name in theirs else spans.complete for name, spans in ours.items()
        )
    return p.t >= q.t and all(name in q.match and _covers(ours, q.match[name]) for name, ours in p.match.items())


def simplified(pattern: AttributePattern, type_: pa.DataType, name: str = "") -> AttributePattern:
    """The same values in the shortest form: one value as a constant, none as `Nothing`, lists in order and once each.

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


def simplified_promise(promise: Punctuation, schema: Schema) -> Punctuation | None:
    """A promise with simplified patterns in the order of the schema; `None` if it matches nothing."""
    match: dict[str, AttributePattern] = {}
    for name, pattern in sorted(promise.match.items(), key=lambda bound: schema.index(bound[0], "a pattern")):
        match[name] = simplified(pattern, schema.field(name).type, name)
        if isinstance(match[name], Nothing):
            return None
    return Punctuation(match, promise.t)


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


def _one_of(values: Iterable[Any]) -> AttributePattern:
    kept = tuple(values)
    return OneOf(kept) if kept else Nothing()


def _lookup(values: tuple[Any, ...]) -> set[Any]:
    return {freeze(value) for value in values}


def _is_empty(pattern: AttributePattern) -> bool:
    match pattern:
        case Nothing() | OneOf(()):
            return True
        case Range():
            return isinstance(_overlap(pattern, Range()), Nothing)
    return False


Bound = tuple[Any, bool]
"""A value, and whether it is itself outside."""


def _lower(range_: Range) -> Bound | None:
    """The tighter of the lower bounds."""
    if range_.gt is None or (range_.ge is not None and less(range_.gt, range_.ge)):
        return None if range_.ge is None else (range_.ge, False)
    return range_.gt, True


def _upper(range_: Range) -> Bound | None:
    if range_.lt is None or (range_.le is not None and less(range_.le, range_.lt)):
        return None if range_.le is None else (range_.le, False)
    return range_.lt, True


def _overlap(p: Range, q: Range) -> AttributePattern:
    lower = _higher(_lower(p), _lower(q))
    upper = _lowest(_upper(p), _upper(q))
    if lower is not None and upper is not None:
        if less(upper[0], lower[0]):
            return Nothing()
        if same(lower[0], upper[0]):
            return Nothing() if lower[1] or upper[1] else OneOf((lower[0],))
    bounds = {}
    if lower is not None:
        bounds["gt" if lower[1] else "ge"] = lower[0]
    if upper is not None:
        bounds["lt" if upper[1] else "le"] = upper[0]
    return Range(**bounds)


def _higher(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    if same(a[0], b[0]):
        return a[0], a[1] or b[1]
    return b if less(a[0], b[0]) else a


def _lowest(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    if same(a[0], b[0]):
        return a[0], a[1] or b[1]
    return a if less(a[0], b[0]) else b


def _covers(p: AttributePattern, q: AttributePattern) -> bool:
    """Whether `p` matches whatever `q` matches, as far as that shows without the type."""
    match p, q:
        case _, OneOf(values) if isinstance(p, OneOf) and len(p.values) > _FEW:
            return _lookup(values) <= _lookup(p.values)
        case _, OneOf(values):
            return all(p.matches(v) for v in values)
        case Range(), Range():
            return both(q, p) == _overlap(q, Range())
        case OneOf(), Range():
            only = _overlap(q, Range())
            return isinstance(only, OneOf) and all(p.matches(v) for v in only.values)
    return False

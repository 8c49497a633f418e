"""The values of one attribute that a pattern matches, as runs of ordered keys: exact for every type.

A key is a rank (`order.py`), or a byte string; a run `[lo, hi)` has all keys from `lo` up to and without `hi`, and
`hi = None` is the end of the type.  Of byte strings the next one after `v` is `v` with a zero byte at its end, so open
and closed bounds are the same thing here, too.  Runs are sorted, disjoint and do not touch, so equal sets of values are
equal runs.  A null and the values of a type without an order are kept beside them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Range
from everwhen.errors import QueryError
from everwhen.rows.dictionary import freeze
from everwhen.values.order import Kind, ValueOrder, constants, order_of

Key = Any
"""A rank or a byte string."""
Run = tuple[Key, Key | None]
_NO_VALUES: Final[Mapping[Any, Any]] = {}


@dataclass(frozen=True)
class Spans:
    """Some values of a type; `lowest` is its smallest key, `None` for the type that has only nulls."""

    lowest: Key | None
    runs: tuple[Run, ...] = ()
    null: bool = False
    values: Mapping[Any, Any] = field(default_factory=lambda: _NO_VALUES)
    """Values without an order, by what they hash as."""

    @property
    def empty(self) -> bool:
        return not (self.runs or self.null or self.values)

    @property
    def complete(self) -> bool:
        """Whether every value and null are in it."""
        return self.null and self.complete_but_null

    @property
    def complete_but_null(self) -> bool:
        return self.lowest is None or self.runs == ((self.lowest, None),)

    def within(self, other: Spans) -> bool:
        """Whether all values of this are in the other."""
        if (self.null and not other.null) or not self.values.keys() <= other.values.keys():
            return False
        at = 0
        for lo, hi in self.runs:
            while at < len(other.runs) and not _before(lo, other.runs[at][1]):
                at += 1
            if at == len(other.runs) or lo < other.runs[at][0] or _before(other.runs[at][1], hi):
                return False
        return True


def holds(spans: Spans, key: Key | None) -> bool:
    """Whether a key, or a null, is among some values."""
    if key is None:
        return spans.null
    at = bisect_right(spans.runs, key, key=lambda run: run[0]) - 1
    return at >= 0 and (spans.runs[at][1] is None or key < spans.runs[at][1])


def spans_of(pattern: AttributePattern, type_: pa.DataType, name: str = "") -> Spans:
    """The values that a pattern matches; a constant that is not of the type is a `QueryError`."""
    order = order_of(type_)
    lowest, end = _ends(order)
    match pattern:
        case Nothing():
            return Spans(lowest)
        case OneOf(values):
            found = constants(values, type_, name)
            null = found.null_count > 0
            present = found.drop_null()
            if order.kind is Kind.OPAQUE:
                return Spans(lowest, (), null, {freeze(v): v for v in present.to_pylist()})
            keys = keys_of(present, order)
            return Spans(lowest, union((lo, _next(lo, order, end)) for lo in keys), null)
        case Range():
            if order.kind is Kind.OPAQUE:
                raise no_order(type_, name)
            run = run_of(pattern, order, name)
            return Spans(lowest, () if run is None else (run,))


def no_order(type_: pa.DataType, name: str) -> QueryError:
    place = f" of {name!r}" if name else ""
    return QueryError(f"a range{place} over values of type {type_}, which have no order; list the values with OneOf")


def run_of(range_: Range, order: ValueOrder, name: str = "") -> Run | None:
    """The keys of a range; `None` if there are none."""
    if pa.types.is_int64(order.type) and (quick := run_of_integers(range_)) is not None:
        return quick if quick[1] is None or quick[0] < quick[1] else None
    lowest, end = _ends(order)
    given = {b: getattr(range_, b) for b in ("ge", "gt", "le", "lt") if getattr(range_, b) is not None}
    keys = dict(zip(given, keys_of(constants(list(given.values()), order.type, name), order), strict=True))
    lo, hi = keys.get("ge", lowest), keys.get("lt")
    if "gt" in keys:
        after = _next(keys["gt"], order, end)
        if after is None:
            return None
        lo = max(lo, after)
    if "le" in keys:
        hi = _smaller(hi, _next(keys["le"], order, end))
    return None if lowest is None or (hi is not None and hi <= lo) else (lo, hi)


def run_of_integers(range_: Range) -> Run | None:
    """The commonest range, without the way through Arrow: bounds that are plain whole numbers and not near the ends."""
    lo, hi = -(2**63), None
    ge, gt, le, lt = range_.ge, range_.gt, range_.le, range_.lt
    for value in (ge, gt, le, lt):
        if value is not None and (type(value) is not int or not -(2**63) < value < 2**63 - 1):
            return None
    if ge is not None:
        lo = ge
    if gt is not None and gt >= lo:
        lo = gt + 1
    if le is not None:
        hi = le + 1
    if lt is not None and (hi is None or lt < hi):
        hi = lt
    return lo, hi


def keys_of(column: pa.Array, order: ValueOrder) -> list[Key]:
    """The keys of values of which none is null."""
    if order.kind is Kind.RANK:
        return order.ranks(column).tolist()
    offsets, first, data = order.spans(column)
    raw = data.tobytes()
    cuts = offsets[first : first + len(column) + 1].tolist()
    return [raw[a:b] for a, b in pairwise(cuts)]


def values_of(keys: list[Key], order: ValueOrder) -> list[Any]:
    """The values of keys, as Python has them."""
    if order.whole:
        return keys
    if order.kind is Kind.RANK:  # one by one, so that a value that Python lacks does not make text of the others
        return [order.values(np.array([key], np.int64))[0] for key in keys]
    return order.of_bytes(keys)


def union(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Sorted runs that neither meet nor touch."""
    out: list[Run] = []
    start: Key | None = None
    end: Key | None = None
    for lo, hi in sorted(runs, key=itemgetter(0)):
        if start is not None and (end is None or lo <= end):
            if end is not None and (hi is None or hi > end):
                end = hi
            continue
        if start is not None:
            out.append((start, end))
        start, end = lo, hi
    return tuple(out) if start is None else (*out, (start, end))


def overlap(p: tuple[Run, ...], q: tuple[Run, ...]) -> tuple[Run, ...]:
    """The keys in both."""
    out: list[Run] = []
    i = j = 0
    while i < len(p) and j < len(q):
        lo, hi = max(p[i][0], q[j][0]), _smaller(p[i][1], q[j][1])
        if hi is None or lo < hi:
            out.append((lo, hi))
        if _before(p[i][1], q[j][1]):
            i += 1
        else:
            j += 1
    return tuple(out)


def range_of(lo: Key, hi: Key | None, type_: pa.DataType) -> Range | OneOf:
    """A pattern that matches the keys of a run, in the form that reads best."""
    return pattern_of(lo, hi, order_of(type_))


def pattern_of(lo: Key, hi: Key | None, order: ValueOrder) -> Range | OneOf:
    """The same, if the order of the values is at hand."""
    if order.whole:
        if lo == order.hi or lo + 1 == hi:
            return OneOf((lo,))
        return Range(ge=None if lo == order.lo else lo, le=None if hi is None else hi - 1)
    lowest, end = _ends(order)
    if _next(lo, order, end) == hi:
        return OneOf(tuple(values_of([lo], order)))
    bounds: dict[str, Any] = {}
    if lo != lowest:
        bounds |= _lower_bound(lo, order)
    if hi is not None:
        bounds |= _upper_bound(hi, order)
    return Range(**bounds)


def _lower_bound(lo: Key, order: ValueOrder) -> dict[str, Any]:
    if order.kind is Kind.BYTES:
        inside = not lo.endswith(b"\0") or len(lo) == _width(order)
        return {"ge": order.of_bytes([lo])[0]} if inside else {"gt": order.of_bytes([lo[:-1]])[0]}
    at, under = values_of([lo, lo - 1], order)
    discrete = _discrete(order) and type(at) is type(under)
    return {"ge": at} if discrete or not _reads_better(under, at) else {"gt": under}


def _upper_bound(hi: Key, order: ValueOrder) -> dict[str, Any]:
    if order.kind is Kind.BYTES:
        outside = not hi.endswith(b"\0") or len(hi) == _width(order)
        return {"lt": order.of_bytes([hi])[0]} if outside else {"le": order.of_bytes([hi[:-1]])[0]}
    last, at = values_of([hi - 1, hi], order)
    discrete = _discrete(order) and type(last) is type(at)
    return {"le": last} if discrete or not _reads_better(at, last) else {"lt": at}


def _reads_better(value: Any, other: Any) -> bool:
    """Whether a bound is shorter, or the only one of two that Python's types can hold."""
    if type(value) is not type(other):
        return isinstance(other, str)
    return len(repr(value)) < len(repr(other))


def _discrete(order: ValueOrder) -> bool:
    """Whether people count in steps of the type, so that closed bounds read best."""
    is_ = pa.types
    return is_.is_integer(order.type) or is_.is_boolean(order.type) or is_.is_date(order.type)


def _ends(order: ValueOrder) -> tuple[Key, Key | None]:
    """The smallest key of a type and the largest, where there is one."""
    if pa.types.is_null(order.type):
        return None, None
    if order.kind is Kind.OPAQUE:
        return (), None  # no run is ever the whole type
    if order.kind is Kind.RANK:
        return order.lo, order.hi
    width = _width(order)
    if width is None:
        return b"", None
    if pa.types.is_decimal(order.type):
        most = 10**order.type.precision - 1
        half = 1 << (8 * width - 1)
        return (half - most).to_bytes(width, "big"), (half + most).to_bytes(width, "big")
    return b"\0" * width, b"\xff" * width


def lowest_key(order: ValueOrder) -> Key | None:
    """The smallest key of a type."""
    return _ends(order)[0]


def _width(order: ValueOrder) -> int | None:
    """The length of the byte strings, where all have the same."""
    type_ = order.type
    if pa.types.is_decimal(type_):
        return 32 if pa.types.is_decimal256(type_) else 16
    return type_.byte_width if pa.types.is_fixed_size_binary(type_) else None


def _next(key: Key, order: ValueOrder, end: Key | None) -> Key | None:
    """The key after this one; `None` after the last."""
    if key == end:
        return None
    return key + 1 if order.kind is Kind.RANK else key + b"\0"


def _before(hi: Key | None, other: Key | None) -> bool:
    """Whether one end of a run lies before another."""
    return hi is not None and (other is None or hi < other)


def _smaller(a: Key | None, b: Key | None) -> Key | None:
    return b if _before(b, a) else a

"""Aggregates that need the whole live multiset of a piece: count distinct, quantiles, top-k, first, last, user-defined,
and min and max of values that are not 64-bit numbers.

They are evaluated for the pieces that are to be said, and only for those whose multiset changed, from pairs
(piece, live row).  They are columnar, but for the lists of top-k (one per piece)
and for a user's functions, which are called once per pair at most.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.algebra.aggregates import Aggregation, UserAggregate
from everwhen.rows.codec import RowCodec, decode_column, encode_column, float_codes
from everwhen.rows.interner import freeze


def order_ranks(codec: RowCodec, rows: np.ndarray, column: int) -> np.ndarray:
    """Integers in the natural order of a column's values, nulls first, NaN last."""
    codes = rows[:, codec.words + column]
    type_ = codec.schema.types[column]
    valid = codec.valid(rows, column)
    if any(column == at - codec.words for at, _ in codec.pooled):
        ranks = codec.pool.dictionary(type_).ranks(codes) if len(codec.pool.dictionary(type_)) else codes
    elif pa.types.is_floating(type_):
        ranks = np.where(codes < 0, codes ^ np.int64(0x7FFFFFFFFFFFFFFF), codes)
    elif pa.types.is_unsigned_integer(type_) and type_.bit_width == 64:
        ranks = codes ^ np.int64(-(2**63))
    else:
        ranks = codes
    if valid is not None:
        _, ranks = np.unique(ranks, return_inverse=True)
        ranks = np.where(valid, ranks + 1, 0)
    return ranks


def evaluate(
    aggregation: Aggregation,
    codec: RowCodec,
    keys: np.ndarray,
    request: np.ndarray,
    rows: np.ndarray,
    weight: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and validity of one aggregation for each request, from pairs of requests and argument rows.

    Requests are numbered in the order of `keys`, those of one key in the order of time.
    """
    requests = len(keys)
    columns = [codec.schema.index(name) for name in aggregation.columns]
    value = columns[0]
    valid = codec.valid(rows, value)
    by = columns[1] if aggregation.function in ("first", "last") else None
    if by is not None:
        valid = codec.valid(rows, by)
    if valid is not None:
        request, rows, weight = request[valid], rows[valid], weight[valid]
    type_ = codec.schema.types[value]
    codes = np.zeros(requests, np.int64)
    found = np.zeros(requests, np.int64)
    function = aggregation.function
    if function == "count_distinct":
        pairs = (
            np.unique(np.stack([request, rows[:, codec.words + value]], axis=1), axis=0)
            if len(rows)
            else np.empty((0, 2), np.int64)
        )
        return np.bincount(pairs[:, 0], minlength=requests).astype(np.int64), np.ones(requests, np.int64)
    if function == "user":
        return _user(aggregation.parameters[0], codec, keys, request, rows, weight, value)
    ranks = order_ranks(codec, rows, value)
    if by is not None:
        by_ranks = order_ranks(codec, rows, by)
        order = np.lexsort((ranks, by_ranks if function == "first" else ~by_ranks, request))
    else:
        order = np.lexsort((ranks, request))
    request, rows, weight = request[order], rows[order], weight[order]
    starts = np.searchsorted(request, np.arange(requests))
    ends = np.searchsorted(request, np.arange(requests), side="right")
    some = ends > starts
    if function in ("min", "max", "first", "last"):
        at = ends[some] - 1 if function == "max" else starts[some]
        codes[some] = rows[at, codec.words + value]
        present = codec.valid(rows, value)
        found[some] = 1 if present is None else present[at]
        return codes, found
    repeated = np.repeat(np.arange(len(request)), weight)
    request, rows = request[repeated], rows[repeated]
    starts = np.searchsorted(request, np.arange(requests))
    ends = np.searchsorted(request, np.arange(requests), side="right")
    if function in ("median", "quantile"):
        q = 0.5 if function == "median" else float(aggregation.parameters[0])
        return _quantile(q, codec, rows, value, starts, ends, some)
    k = int(aggregation.parameters[0])
    values = decode_column(rows[:, codec.words + value], None, type_, codec.pool).to_pylist()
    lists = [values[max(s, e - k) : e][::-1] for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]
    return codec.pool.dictionary(pa.list_(type_)).encode(pa.array(lists, pa.list_(type_))), np.ones(requests, np.int64)


def _quantile(
    q: float, codec: RowCodec, rows: np.ndarray, column: int, starts: np.ndarray, ends: np.ndarray, some: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    type_ = codec.schema.types[column]
    count = ends - starts
    position = q * np.maximum(count - 1, 0)
    low = np.floor(position).astype(np.int64)
    codes = np.zeros(len(starts), np.int64)
    at = (starts + low)[some]
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
        codes[some] = rows[at, codec.words + column]
        return codes, some.astype(np.int64)
    column_codes = rows[:, codec.words + column]
    if pa.types.is_floating(type_):
        values = np.ascontiguousarray(column_codes).view(np.float64)
    elif pa.types.is_decimal(type_):
        values = np.array(
            [float(v) for v in decode_column(column_codes, None, type_, codec.pool).to_pylist()], np.float64
        )
    elif pa.types.is_unsigned_integer(type_):
        values = np.ascontiguousarray(column_codes).view(np.uint64).astype(np.float64)
    else:
        values = column_codes.astype(np.float64)
    high = np.minimum(starts + low + 1, ends - 1)[some]
    share = (position - low)[some]
    a, b = values[at], values[high]
    with np.errstate(invalid="ignore"):
        between = np.where((share == 0) | (a == b), a, a + (b - a) * share)
    codes[some] = float_codes(between)
    return codes, some.astype(np.int64)


def _user(
    user: UserAggregate,
    codec: RowCodec,
    keys: np.ndarray,
    request: np.ndarray,
    rows: np.ndarray,
    weight: np.ndarray,
    column: int,
) -> tuple[np.ndarray, np.ndarray]:
    """A user's functions, piece by piece; with an inverse, from the piece before if that is less work."""
    type_ = codec.schema.types[column]
    values = decode_column(rows[:, codec.words + column], None, type_, codec.pool).to_pylist()
    groups: list[Counter[Any]] = [Counter() for _ in range(len(keys))]
    for r, value, times in zip(request.tolist(), map(freeze, values), weight.tolist(), strict=True):
        groups[r][value] += times
    results: list[Any] = []
    state, before, before_key = None, Counter[Any](), None
    for key, group in zip(keys.tolist(), groups, strict=True):
        left, came = before - group, group - before
        beside = user.inverse is not None and key == before_key and before
        if beside and group and left.total() + came.total() < group.total():
            assert user.inverse is not None
            for value in came.elements():
                state = user.merge(state, value)
            for value in left.elements():
                state = user.inverse(state, value)
        elif group:
            rest = group.elements()
            state = user.init(next(rest))
            for value in rest:
                state = user.merge(state, value)
        results.append(user.eval(state) if group else None)
        before, before_key = group, key
    array = pa.array(results, user.result)
    valid = array.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(valid != 0, encode_column(array, user.result, codec.pool), 0), valid

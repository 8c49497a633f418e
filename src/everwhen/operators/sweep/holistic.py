"""Aggregates that need the values of a group as they are: count distinct, quantiles, top-k, first, last, user-defined,
and min and max of values that are not 64-bit numbers.

All but user-defined ones are read off `OrderStatistics`, one for each column that is asked about, which those over the
same column share.  A user's functions are called for pairs (piece, live row), piece by piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.aggregates.calls import Aggregation, UserAggregate
from everwhen.compiled.njit import loop
from everwhen.core.kinds import is_number
from everwhen.operators.sweep.order_statistics import Code, OrderStatistics
from everwhen.rows.codec import RowCodec, decode_column, encode_column, float_codes
from everwhen.rows.dictionary import freeze
from everwhen.rows.interner import Interner


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


_MANY: Final = 1 << 22
"""So many words of answers are asked for at a time."""
_FEW_WORDS: Final = 1 << 16
"""The same for lists of all values, which differ in length."""

Found = tuple[np.ndarray, np.ndarray]
"""Codes and whether they are valid (0, 1)."""


class OrderedColumn:
    """The values of one column, or those of one in the order of another, and what is asked of them."""

    def __init__(self, aggregations: Sequence[Aggregation], arguments: RowCodec) -> None:
        self._arguments = arguments
        self.aggregations = tuple(aggregations)
        columns = [arguments.schema.index(name) for name in aggregations[0].columns]
        types = arguments.schema.types
        self._column = columns[0]
        self._listed = aggregations[0].function == "array_agg"
        self._by = columns[1] if len(columns) > 1 and not self._listed else None
        self._order = columns[1:] if self._listed else []
        self.type = types[self._column]
        ordered = any(a.function != "count_distinct" for a in aggregations)
        codes = [Code(self.type, ordered)]
        if self._by is not None:  # nulls come first, and are told by a number
            codes = [Code(types[self._by]), Code(None), Code(self.type)]
        if self._order:  # each with a number that tells whether it is there
            ordering = [code for c in self._order for code in (Code(None), Code(types[c]))]
            codes = [*ordering, Code(None), Code(self.type)]
        self._codes = len(codes)
        wanted = dict.fromkeys(q for q in map(_quantile, aggregations) if q is not None)
        self._quantiles = np.array(list(wanted), np.float64)
        self._newest = any(a.function == "last" for a in aggregations)
        self._top = max((int(a.parameters[0]) for a in aggregations if a.function == "top_k"), default=0)
        self.statistics = OrderStatistics(codes, arguments.pool)

    def apply(self, ids: np.ndarray, lo: np.ndarray, hi: np.ndarray, weight: np.ndarray, rows: np.ndarray) -> None:
        """Add signed segments with these argument rows."""
        codec = self._arguments
        valid = codec.valid(rows, self._column if self._by is None else self._by)
        if valid is not None:
            ids, lo, hi, weight, rows = ids[valid], lo[valid], hi[valid], weight[valid], rows[valid]
        codes = np.ones((len(rows), self._codes), np.int64)
        codes[:, -1] = rows[:, codec.words + self._column]
        if self._by is not None:
            present = codec.valid(rows, self._column)
            codes[:, 0] = rows[:, codec.words + self._by]
            codes[:, 1] = 1 if present is None else present
        for at, c in enumerate(self._order):
            present = codec.valid(rows, c)
            codes[:, 2 * at] = 1 if present is None else present
            codes[:, 2 * at + 1] = rows[:, codec.words + c]
        self.statistics.apply(ids, lo, hi, weight, codes)

    def evaluate(self, keys: np.ndarray, times: np.ndarray) -> list[Found]:
        """Codes and validity of all aggregations, for keys at instants, grouped by key and in order."""
        if self._listed:
            return self._whole_lists(keys, times)
        if not self._top:
            return self._evaluate(keys, times)
        step = max(1, _MANY // self._top)  # lists are long: not all at a time
        parts = [self._evaluate(keys[i : i + step], times[i : i + step]) for i in range(0, len(keys), step)]
        return [(np.concatenate([p[i][0] for p in parts]), np.concatenate([p[i][1] for p in parts]))
                for i in range(len(self.aggregations))]  # fmt: skip

    def _evaluate(self, keys: np.ndarray, times: np.ndarray) -> list[Found]:
        found = self.statistics.ask(keys, times, self._quantiles, self._newest, self._top)
        return [self._result(aggregation, found) for aggregation in self.aggregations]

    def _result(self, aggregation: Aggregation, found: np.ndarray) -> Found:
        count, some = found[:, 0], (found[:, 0] > 0).astype(np.int64)
        behind = 2 + (self._codes + 1) * len(self._quantiles)
        if aggregation.function == "count_distinct":
            return found[:, 1], np.ones(len(found), np.int64)
        if aggregation.function == "last":
            return found[:, behind + 2], some * found[:, behind + 1]
        if aggregation.function == "top_k":
            top = found[:, behind + self._codes * self._newest :]
            return self._lists(top, np.minimum(count, int(aggregation.parameters[0])))
        q = _quantile(aggregation)
        at = 2 + (self._codes + 1) * self._quantiles.tolist().index(q)
        if aggregation.function == "first":
            return found[:, at + 2], some * found[:, at + 1]
        low, high = found[:, at], found[:, at + 1]
        if aggregation.function in ("min", "max", "quantile_disc") or not is_number(self.type):
            return low, some
        position = q * np.maximum(count - 1, 0)
        share = position - np.floor(position)
        a, b = (numbers(codes, self.type, self._arguments.pool) for codes in (low, high))
        with np.errstate(invalid="ignore"):
            between = np.where((share == 0) | (a == b), a, a + (b - a) * share)
        return np.where(some, float_codes(between), 0), some

    def _whole_lists(self, keys: np.ndarray, times: np.ndarray) -> list[Found]:
        """All values in their order; so many instants at a time that not much more is asked for than there is."""
        count = self.statistics.ask(keys, times, np.empty(0))[:, 0]
        ends = np.empty(len(keys), np.int64)
        found: list[list[Found]] = [[(count[:0], count[:0])] for _ in self.aggregations]
        at = 0
        for end in ends[: portions(count, _FEW_WORDS, ends)].tolist():
            most = int(count[at:end].max())
            top = self.statistics.ask(keys[at:end], times[at:end], np.empty(0), False, most)[:, 2:]
            for parts, aggregation in zip(found, self.aggregations, strict=True):
                parts.append(self._lists(top, count[at:end], not aggregation.parameters[0]))
            at = end
        return [(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])) for parts in found]

    def _lists(self, top: np.ndarray, count: np.ndarray, ascending: bool = False) -> Found:
        there = np.arange(top.shape[1]) < count[:, None]
        if ascending:
            there, top = there[:, ::-1], top[:, ::-1]
        values = decode_column(top[there], None, self.type, self._arguments.pool)
        offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), values).cast(pa.list_(self.type))
        return self._arguments.pool.dictionary(lists.type).encode(lists), np.ones(len(top), np.int64)


@loop
def portions(count: Any, limit: Any, ends: Any) -> Any:
    """Cut rows into portions of which each has at most `limit` words if all rows of it were as long as the longest, and
    at least one row: the ends into `ends`; how many there are."""
    found = 0
    begin = 0
    most = np.int64(0)
    for i in range(len(count)):
        longest = max(most, count[i])
        if i > begin and (i + 1 - begin) * longest > limit:
            ends[found] = i
            found += 1
            begin = i
            longest = count[i]
        most = longest
    if len(count):
        ends[found] = len(count)
        found += 1
    return found


def ordered_columns(aggregations: Sequence[Aggregation], arguments: RowCodec) -> list[OrderedColumn]:
    """What all but user-defined aggregations are read off."""
    shared: dict[tuple[str, ...], list[Aggregation]] = {}
    for aggregation in aggregations:
        if aggregation.function != "user":
            listed = ("array_agg",) if aggregation.function == "array_agg" else ()
            shared.setdefault((*aggregation.columns, *listed), []).append(aggregation)
    return [OrderedColumn(alike, arguments) for alike in shared.values()]


def _quantile(aggregation: Aggregation) -> float | None:
    """The share of values before the one that is asked for."""
    match aggregation.function:
        case "median":
            return 0.5
        case "quantile":
            return float(aggregation.parameters[0])
        case "quantile_disc":
            return -float(aggregation.parameters[0])
        case "min" | "first":
            return 0.0
        case "max":
            return 1.0
    return None


def numbers(codes: np.ndarray, type_: pa.DataType, pool: Interner) -> np.ndarray:
    """Values of a type of numbers as floats."""
    if pa.types.is_floating(type_):
        return np.ascontiguousarray(codes).view(np.float64)
    if pa.types.is_decimal(type_):
        dictionary = pool.dictionary(type_)
        distinct, inverse = np.unique(codes, return_inverse=True)
        values = np.array([float(dictionary.value(c)) if c < len(dictionary) else 0.0 for c in distinct.tolist()])
        return values[inverse]
    if pa.types.is_unsigned_integer(type_):
        return np.ascontiguousarray(codes).view(np.uint64).astype(np.float64)
    return codes.astype(np.float64)


def evaluate_user(
    aggregation: Aggregation,
    codec: RowCodec,
    keys: np.ndarray,
    request: np.ndarray,
    rows: np.ndarray,
    weight: np.ndarray,
) -> Found:
    """A user's functions, piece by piece; with an inverse, from the piece before if that is less work.

    Pieces are numbered in the order of `keys`, those of one key in the order of time; with `request` come pairs of
    pieces and argument rows.
    """
    user: UserAggregate = aggregation.parameters[0]
    column = codec.schema.index(aggregation.columns[0])
    valid = codec.valid(rows, column)
    if valid is not None:
        request, rows, weight = request[valid], rows[valid], weight[valid]
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

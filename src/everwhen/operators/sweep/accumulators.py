"""Aggregates as lanes of a sweep.

Counts and sums are *added* lanes: an exact integer, or a float in twice the precision, in which a row that leaves takes
back what it brought.  NaN and infinities are counted beside a float sum, so that they leave no trace when they go.
Decimals are four integer lanes of 32 bits each.  Min and max of 64-bit values are *evaluated* lanes: the largest order
code in the live multiset.  All other aggregates are evaluated from the live multiset too (`holistic`).

As long as no null has come, the count of a column's values is the count of rows and needs no lane of its own.

Every aggregation turns the lanes of a piece into codes and a mask of which are valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.errors import EvaluationError, EverwhenError
from everwhen.operators.sweep.double_double import times
from everwhen.operators.sweep.holistic import numbers
from everwhen.operators.sweep.lane_view import Coded, Lane, Lanes
from everwhen.operators.sweep.moments import MOMENTS, SUMS, FloatColumn, FloatRows
from everwhen.rows.codec import RowCodec, float_codes
from everwhen.rows.interner import is_pooled

ROWS: Final = ("rows", -1)
LOWEST: Final = np.int64(-(2**63))
_WIDE: Final = Context(prec=60)

Result = Callable[[Lanes], Coded]


class AccumulatorPlan:
    """Which lanes the aggregations over `arguments` need, how rows fill them, and what pieces of them mean.

    `shared`: as long as there is no null, values are counted by the lane that counts rows (see `separate`).
    """

    def __init__(self, aggregations: Sequence[Aggregation], arguments: RowCodec, shared: bool = False) -> None:
        self.arguments = arguments
        self._aggregations = tuple(aggregations)
        self.int_at: dict[Lane, int] = {ROWS: 0}
        self.float_at: dict[Lane, int] = {}
        self.extremes: list[tuple[int, int]] = []
        """(argument column, kind of order code) of each min/max lane, which stand first among the evaluated."""
        self.integer_sums: dict[int, int] = {}
        """Argument columns that are added up as 64-bit integers, and the largest magnitude seen in each."""
        self.holistic: list[Aggregation] = []
        """Evaluated from the live multiset; two evaluated lanes each (code, valid)."""
        self.floats: dict[int, FloatColumn] = {}
        """Argument columns that are added up as floats."""
        self._results: list[Result] = []
        self._lane_of: list[tuple[Lane, Lane | None] | None] = []
        deferred: list[tuple[int, Aggregation]] = []
        for position, aggregation in enumerate(aggregations):
            self._lane_of.append(None)
            result = self._plan(aggregation)
            self._results.append(result if result is not None else _unset)
            if result is None:
                deferred.append((position, aggregation))
        for position, aggregation in deferred:
            at = len(self.extremes) + 2 * len(self.holistic)
            self.holistic.append(aggregation)
            self._results[position] = _holistic_result(at)
        self._own = self.int_at
        if shared:
            own = [lane for lane in self._own if lane[0] != "valid"]
            self.int_at = {lane: 0 if lane[0] == "valid" else own.index(lane) for lane in self._own}

    @property
    def ints(self) -> int:
        """Words of the integer lanes."""
        return max(self.int_at.values()) + 1

    @property
    def separated(self) -> bool:
        """Whether values are counted apart from rows."""
        return self.int_at is self._own

    def separate(self) -> list[int]:
        """Count values apart from rows from now on: where lanes are to be inserted, one after the other, as copies of
        the first."""
        inserted = [at for (what, _), at in self._own.items() if what == "valid"] if not self.separated else []
        self.int_at = self._own
        return inserted

    def summed(self) -> list[int] | None:
        """If all lanes are the count of rows and sums of integers without nulls: the argument columns added up."""
        sums = {at: column for (what, column), at in self.int_at.items() if what == "sum"}
        if self.float_at or self.ints > 1 + len(sums):
            return None
        return [sums[at] for at in sorted(sums)]

    def plain(self) -> np.ndarray | None:
        """If every aggregation is just a lane: the value lanes, the lanes that must not be zero (-1: none), and of
        extremes the kinds of order code (else 0)."""
        if len(self._lane_of) < len(self._results) or None in self._lane_of:
            return None
        found = []
        for (what, at), needed in (pair for pair in self._lane_of if pair is not None):
            lane, kind = (self.added + at, self.extremes[at][1]) if what == "extreme" else (self.int_at[what, at], 0)
            found.append((lane, -1 if needed is None else self.int_at[needed], kind))
        return np.array(found, np.int64).reshape(-1, 3).T.copy()

    @property
    def evaluated(self) -> int:
        return len(self.extremes) + 2 * len(self.holistic)

    @property
    def tests(self) -> int:
        """How many first lanes are only asked whether they are positive: all that are added up, if nothing is counted
        or summed; they then only tell whether there are rows, and values."""
        counted = any(aggregation.function == "count" for aggregation in self._aggregations)
        plain = not self.float_at and all(what in ("rows", "valid") for what, _ in self.int_at)
        return self.ints if plain and not counted else 0

    @property
    def added(self) -> int:
        """Words of the lanes that are added up; evaluated ones stand behind them."""
        return self.ints + 2 * len(self.float_at)

    def results(self, words: np.ndarray) -> list[Coded]:
        """Codes of each aggregation for pieces with these lanes."""
        lanes = Lanes(words, self.int_at, self.float_at, self.ints)
        return [result(lanes) for result in self._results]

    def fill(self, rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The added lanes of argument rows, times their weight.  There are more of them once a new class
        of magnitude has come."""
        codec = self.arguments
        found: dict[int, FloatRows] = {}
        for column, each in self.floats.items():
            valid = codec.valid(rows, column)
            values = self._floats(rows[:, codec.words + column], column)
            found[column] = mine = each.rows(values if valid is None else np.where(valid, values, 0.0))
            self.widen([(column, class_) for class_ in mine.new])
        ints = np.zeros((len(rows), self.added), np.int64)
        ints[:, 0] = weight
        for (what, column), at in self.int_at.items():
            if at == 0:
                continue
            valid = codec.valid(rows, column)
            code = rows[:, codec.words + column]
            if what == "valid":
                ints[:, at] = weight if valid is None else weight * valid
            elif what == "sum":
                ints[:, at] = code * weight  # the code of a null is 0
            elif what.startswith("limb"):
                ints[:, at] = self._limbs(code, valid, column)[:, int(what[4:])] * weight
            else:
                ints[:, at] = weight * found[column].are(what)
        floats = ints.view(np.float64)
        for (what, column), lane in self.float_at.items():
            at = self.ints + 2 * lane
            parts = found[column].parts(what)
            if parts is not None:
                floats[:, at], floats[:, at + 1] = times(*parts, weight)
        return ints

    def widen(self, classes: Sequence[tuple[int, int]]) -> None:
        """Let there be lanes for these classes of magnitude of columns."""
        for column, class_ in classes:
            if class_ not in self.floats[column].classes:
                self.floats[column].classes.append(class_)
                for at in (self._own, self.int_at):
                    at.setdefault((f"class{class_}", column), max(at.values()) + 1)
                for what in ("summed", "square", "errors"):
                    if (what, column) in self.float_at:
                        self._float((f"{what}{class_}", column))

    def measure(self, rows: np.ndarray) -> None:
        """Note the largest magnitudes of what is added up."""
        for column in self.integer_sums:
            codes = rows[:, self.arguments.words + column]
            self.measured(column, int(codes.min()), int(codes.max()))

    def measured(self, column: int, low: int, high: int) -> None:
        """The values of a column that is added up lie between these codes."""
        if low < 0 and pa.types.is_unsigned_integer(self.arguments.schema.types[column]):
            high = 2**63
        self.integer_sums[column] = max(self.integer_sums[column], -low, high)

    def check(self, words: np.ndarray, most: int | None = None) -> None:
        """No sum of so many values of such a size can have left 64 bits; none is of more than `most`, if that is
        known."""
        for column, largest in self.integer_sums.items():
            if most is not None and most * largest < 2**63:
                continue
            count = int(words[:, self.int_at["valid", column]].max())
            if count * largest >= 2**63:
                name = self.arguments.schema.names[column]
                raise EvaluationError(
                    f"a sum of {count} values of {name!r} as large as {largest} may not fit 64 bits; "
                    f"cast the column to decimal128(38, 0) or float64"
                )

    # -- planning -----------------------------------------------------------------------------------------------

    def _plan(self, aggregation: Aggregation) -> Result | None:
        """How to read the result off added lanes or extremes; None: it is holistic."""
        if aggregation.function == "count":
            lane = ROWS if not aggregation.columns else ("valid", self._column(aggregation, 0))
            self._int(lane)
            self._lane_of[-1] = (lane, None)
            return lambda lanes: (lanes.int_(*lane), None)
        if aggregation.function not in ("sum", "avg", "min", "max", "stddev", "stddev_pop", "variance", "variance_pop"):
            return None
        column = self._column(aggregation, 0)
        type_ = self.arguments.schema.types[column]
        if aggregation.function in ("min", "max"):
            return self._extreme(column, type_, aggregation.function)
        if aggregation.function == "sum" and not pa.types.is_floating(type_):
            if pa.types.is_decimal(type_):
                return self._decimal_sum(column, type_)
            self._lane_of[-1] = (("sum", column), ("valid", column))
            return self._integer_sum(column)
        if aggregation.function == "avg" and pa.types.is_integer(type_):
            return self._integer_average(column)
        if aggregation.function == "avg" and pa.types.is_decimal(type_):
            return self._decimal_average(column, type_)
        if aggregation.function in ("sum", "avg"):
            return self._float_sum(column, aggregation.function == "avg")
        return self._variance(column, aggregation.function)

    def _column(self, aggregation: Aggregation, argument: int) -> int:
        return self.arguments.schema.index(aggregation.columns[argument])

    def _int(self, lane: Lane) -> None:
        self.int_at.setdefault(lane, len(self.int_at))

    def _float(self, lane: Lane) -> None:
        self.float_at.setdefault(lane, len(self.float_at))

    def _integer_sum(self, column: int) -> Result:
        self._int(("valid", column))
        self._int(("sum", column))
        self.integer_sums.setdefault(column, 0)
        return lambda lanes: (lanes.int_("sum", column), lanes.int_("valid", column) > 0)

    def _integer_average(self, column: int) -> Result:
        total = self._integer_sum(column)

        def result(lanes: Lanes) -> Coded:
            codes, valid = total(lanes)
            count = np.maximum(lanes.int_("valid", column), 1)
            return float_codes(codes / count), valid

        return result

    def _exact_sums(self, column: int) -> Callable[[Lanes], list[int]]:
        """Sums of decimals as whole numbers of their last place."""
        self._int(("valid", column))
        for limb in range(4):
            self._int((f"limb{limb}", column))

        def sums(lanes: Lanes) -> list[int]:
            limbs = np.stack([lanes.int_(f"limb{i}", column) for i in range(4)], axis=1).tolist()
            return [(a + (b << 32) + (c << 64) + (d << 96)) for a, b, c, d in limbs]

        return sums

    def _decimal_average(self, column: int, type_: pa.DataType) -> Result:
        """The exact mean, rounded once."""
        total, up, down = self._exact_sums(column), 10 ** max(-type_.scale, 0), 10 ** max(type_.scale, 0)

        def result(lanes: Lanes) -> Coded:
            count = lanes.int_("valid", column)
            means = [a * up / (n * down) for a, n in zip(total(lanes), np.maximum(count, 1).tolist(), strict=True)]
            return float_codes(np.array(means, np.float64)), count > 0

        return result

    def _decimal_sum(self, column: int, type_: pa.DataType) -> Result:
        total = self._exact_sums(column)
        target = self.arguments.pool.dictionary(pa.decimal128(38, type_.scale))

        def result(lanes: Lanes) -> Coded:
            values = [Decimal(s).scaleb(-type_.scale, context=_WIDE) for s in total(lanes)]
            try:
                array = pa.array(values, target.type)
            except pa.ArrowInvalid as error:
                raise EverwhenError(f"a sum does not fit {target.type}: {error}") from None
            return target.encode(array), lanes.int_("valid", column) > 0

        return result

    def _float_lanes(self, column: int) -> None:
        for what in ("valid", "nan", "inf", "minus_inf"):
            self._int((what, column))
        self._float(("summed", column))
        self.floats.setdefault(column, FloatColumn(column, SUMS))

    def _float_sum(self, column: int, average: bool) -> Result:
        self._float_lanes(column)

        def result(lanes: Lanes) -> Coded:
            count = lanes.int_("valid", column)
            found = self.floats[column].total(lanes)
            if average:
                found = found / np.maximum(count, 1)
            return float_codes(_special(found, lanes, column)), count > 0

        return result

    def _variance(self, column: int, function: str) -> Result:
        self._float_lanes(column)
        self._float(("square", column))
        self._float(("errors", column))
        self.floats[column] = FloatColumn(column, MOMENTS)
        sample = not function.endswith("_pop")

        def result(lanes: Lanes) -> Coded:
            count = lanes.int_("valid", column)
            n = np.maximum(count, 1).astype(np.float64)
            apart, scale = self.floats[column].spread(lanes, n)
            values = apart / (np.maximum(n - 1, 1) if sample else n)
            with np.errstate(over="ignore"):
                if function.startswith("stddev"):
                    values = np.ldexp(np.sqrt(values), scale)
                else:
                    values = np.ldexp(values, 2 * scale)
            odd = lanes.int_("nan", column) + lanes.int_("inf", column) + lanes.int_("minus_inf", column)
            return float_codes(np.where(odd > 0, np.nan, values)), count > (1 if sample else 0)

        return result

    def _extreme(self, column: int, type_: pa.DataType, function: str) -> Result | None:
        if is_pooled(type_) or pa.types.is_null(type_):
            return None
        unsigned = pa.types.is_unsigned_integer(type_) and type_.bit_width == 64
        kind = 1 if pa.types.is_floating(type_) else 2 if unsigned else 0
        if function == "min":
            kind = ~kind
        if (column, kind) not in self.extremes:
            self.extremes.append((column, kind))
        at = self.extremes.index((column, kind))
        self._int(("valid", column))
        self._lane_of[-1] = (("extreme", at), ("valid", column))

        def result(lanes: Lanes) -> Coded:
            return plain_codes(lanes.evaluated(at), kind), lanes.int_("valid", column) > 0

        return result

    def _floats(self, code: np.ndarray, column: int) -> np.ndarray:
        return numbers(code, self.arguments.schema.types[column], self.arguments.pool)

    def _limbs(self, code: np.ndarray, valid: np.ndarray | None, column: int) -> np.ndarray:
        type_ = self.arguments.schema.types[column]
        array = (
            self.arguments.pool.dictionary(type_)
            .decode(np.ascontiguousarray(code), valid)
            .cast(pa.decimal128(38, type_.scale))
        )
        words = np.frombuffer(array.buffers()[1], np.uint32, 4 * (len(array) + array.offset)).reshape(-1, 4)[
            array.offset :
        ]
        limbs = words.astype(np.int64)
        limbs[:, 3] = words[:, 3].view(np.int32)
        if valid is not None:
            limbs[~valid] = 0
        return limbs


def _unset(lanes: Lanes) -> Coded:
    raise AssertionError("every aggregation has a result once planned")


def _holistic_result(at: int) -> Result:
    return lambda lanes: (lanes.evaluated(at), lanes.evaluated(at + 1) != 0)


def _special(total: np.ndarray, lanes: Lanes, column: int) -> np.ndarray:
    nan, plus, minus = (lanes.int_(what, column) for what in ("nan", "inf", "minus_inf"))
    total = np.where(plus > 0, np.inf, np.where(minus > 0, -np.inf, total))
    return np.where((nan > 0) | ((plus > 0) & (minus > 0)), np.nan, total)


def plain_codes(order: np.ndarray, kind: int) -> np.ndarray:
    """Codes from order codes (the map of `kernels.live` undone; it is its own inverse)."""
    codes = order if kind >= 0 else ~order
    k = kind if kind >= 0 else ~kind
    if k == 1:
        return np.where(codes < 0, codes ^ np.int64(0x7FFFFFFFFFFFFFFF), codes)
    return codes ^ LOWEST if k == 2 else codes

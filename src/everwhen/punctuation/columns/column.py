"""The promises that bind one column alone: its constants, its ranges and its null, each with a time.

Constants stand in a flat hash table and ranges in sorted runs of intervals.  Constants of a type with ranks that come
to stand in a row (sixteen or more, of one time) move to the intervals, so a million of them become one; fewer stay in
the table, where a look-up is cheapest.  A look-up takes the larger of both, so it does not matter that a constant in
the table may lie in an interval; such ones, and those whose time was forgotten, go when enough was added to pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.containers.int_table import PointTable
from everwhen.containers.int_table_loops import neighbours
from everwhen.core.punctuation import AttributePattern, OneOf, Range
from everwhen.core.scalars import python_values
from everwhen.core.time import NEVER
from everwhen.punctuation.columns.bitmap import NO_SIEVE, Sieve
from everwhen.punctuation.columns.codes import Ruler
from everwhen.punctuation.columns.constants import RankConstants, constants_for
from everwhen.punctuation.columns.intervals import NO_PIECES, IntervalSet
from everwhen.punctuation.columns.loops import first_late, meet_keys, singles
from everwhen.punctuation.values.order import Kind, ValueOrder, order_of
from everwhen.punctuation.values.sets import Run, pattern_of

_IN_A_ROW: Final = 16
_FEW: Final = 64
"""So few constants are looked at one by one: mostly none of them ends a long row."""
_LISTED: Final = 1024
"""So many constants a list that is given out has at most."""


class ColumnPunctuation:
    """Promises of one column."""

    def __init__(self, type_: pa.DataType) -> None:
        self.order = order_of(type_)
        self.null = NEVER
        self._constants = constants_for(self.order)
        self._ranges = IntervalSet()
        self._ruler = Ruler(self.order) if self.order.kind is Kind.BYTES else None
        self._credit = 0
        self._sieve: Sieve | None = None  # made when rows are compared with much

    def __len__(self) -> int:
        return len(self._constants) + len(self._ranges) + (self.null != NEVER)

    @property
    def nbytes(self) -> int:
        own = self._constants.nbytes + self._ranges.nbytes
        return own + sum(each.nbytes for each in (self._ruler, self._sieve) if each is not None)

    def add_constants(self, column: pa.Array, times: np.ndarray) -> None:
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            self.null = max(self.null, int(times[missing].max()))
            column, times = column.drop_null(), times[~missing]
        self.add_keys(self.order.ranks(column) if self.order.kind is Kind.RANK else column, times)

    def add_keys(self, keys: Any, times: np.ndarray) -> None:
        """Constants as ranks, where there are some, else as a column without nulls."""
        if not len(times):
            return
        if isinstance(self._constants, RankConstants):
            self._add_ranks(self._constants.table, keys, times)
            self._mark(keys, keys)
        else:
            self._constants.add(keys, times)
        self._credit += len(times)

    def add_ranges(self, runs: Any, times: np.ndarray) -> None:
        """Ranges as closed intervals of ranks (a matrix), where there are some, else as runs of keys."""
        if self._ruler is None:
            pieces = np.empty((len(times), 3), np.int64)
            pieces[:, :2], pieces[:, 2] = runs, times
            self.add_pieces(pieces)
        else:
            self.add_runs(runs, times)

    def add_runs(self, runs: Sequence[Run], times: np.ndarray) -> None:
        """Ranges as runs of keys (`value_spans`)."""
        if not runs:
            return
        if self._ruler is not None:
            self._move(self._ruler.grow(runs))
            bounds = [self._ruler.interval(run) for run in runs]
        else:
            bounds = [(lo, self.order.hi if hi is None else hi - 1) for lo, hi in runs]
        pieces = np.empty((len(runs), 3), np.int64)
        pieces[:, :2] = bounds
        pieces[:, 2] = times
        self.add_pieces(pieces)

    def add_pieces(self, pieces: np.ndarray) -> None:
        """Ranges as closed intervals of ranks (or of positions of the ruler)."""
        if self._sieve is not None:
            self._mark(pieces[:, 0], pieces[:, 1])
        if isinstance(self._constants, RankConstants) and singles(pieces):
            single = pieces[:, 0] == pieces[:, 1]
            self._add_ranks(self._constants.table, pieces[single, 0], pieces[single, 2])
            pieces = pieces[~single]
        self._ranges.add(pieces)
        self._credit += len(pieces)
        if 2 * self._credit >= max(len(self._constants), _IN_A_ROW):
            self._sweep(NEVER)
        self._drop_unused_cuts()

    def raise_to(self, column: pa.Array, out: np.ndarray) -> None:
        """Raises `out` to what is promised for each value."""
        if not column.null_count:
            np.maximum(out, self.at(column), out=out)
            return
        missing = column.is_null().to_numpy(zero_copy_only=False)
        np.maximum(out, np.where(missing, self.null, self.at(column)), out=out)

    def of_keys(self, keys: Any) -> np.ndarray:
        """What is promised for each constant: ranks, where there are some, else a column without nulls."""
        if not isinstance(self._constants, RankConstants):
            return self.at(keys)
        found = self._constants.table.find(keys.reshape(-1, 1))
        self._ranges.raise_to(keys, found)
        return found

    def meet_keys(self, keys: Any, times: np.ndarray, least: int, c: int) -> tuple[np.ndarray, np.ndarray]:
        """What constants, given with times, and this say together, if `least` is said of everything: which of them have
        a time after `c`, and until when."""
        if not isinstance(self._constants, RankConstants):
            until = np.minimum(times, np.maximum(self.at(keys), least))
            at = np.flatnonzero(until > c)
            return at, until[at]
        at, until = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
        n = meet_keys(self._constants.table.cells, self._ranges.pieces(), least, c, keys, times, at, until)
        return at[:n], until[:n]

    def first_late(self, ranks: np.ndarray, sync: np.ndarray, gaps: np.ndarray, c: int) -> int:
        """The first value of which more is promised than its instant, by times after `c`; if none, how many there are.
        What stands in the gaps does not count.  Only for values that have ranks and no null."""
        assert isinstance(self._constants, RankConstants)
        pieces = self._ranges.pieces()
        if self._sieve is None and len(self) > _IN_A_ROW:
            keys = self._constants.table.entries()[0].ravel()
            self._sieve = Sieve.of(np.concatenate((keys, pieces[:, 0])), np.concatenate((keys, pieces[:, 1])))
        sieve = self._sieve or NO_SIEVE
        return int(first_late(sieve.bits, sieve.base, self._constants.table.cells, pieces, ranks, sync, gaps, c))

    def at(self, column: pa.Array) -> np.ndarray:
        """What is promised for each value; what stands where a value is missing does not matter."""
        if not len(self._constants):
            return self._in_ranges(column)
        found = self._constants.at(column)
        if len(self._ranges):
            self._ranges.raise_to(self._positions(column), found)
        return found

    def pieces(self, most: int, c: int) -> np.ndarray | None:
        """All that is said of times after `c`, as rows of a first and a last rank and a time; None if there are more
        than `most`.  Only for values that have ranks and no null."""
        if len(self) > most:
            return None
        pieces = self._ranges.pieces()
        if len(self._constants):
            ranks, times = self.keys()
            pieces = np.concatenate((np.column_stack((ranks, ranks, times)), pieces))
        return pieces if c == NEVER else np.ascontiguousarray(pieces[pieces[:, 2] > c])

    def least(self, run: Run) -> int:
        """What is promised for all of a range."""
        if self._ruler is not None:
            self._move(self._ruler.grow([run]))
            return self._ranges.least(*self._ruler.interval(run))
        lo, hi = run[0], self.order.hi if run[1] is None else run[1] - 1
        t = self._ranges.least(lo, hi)
        if hi - lo < _IN_A_ROW * 4:  # so few may stand in the table
            t = max(t, int(self.at(self.order.column(np.arange(hi - lo + 1, dtype=np.int64) + lo)).min()))
        return t

    def forget(self, c: int) -> None:
        """Drops what says no more than `c`: ranges at once, constants when it pays."""
        if self.null <= c:
            self.null = NEVER
        self._ranges.forget(c)
        self._credit += 1
        if 2 * self._credit >= len(self._constants):
            self._sweep(c)

    def meet(self, other: ColumnPunctuation) -> ColumnPunctuation:
        """What both say of the column."""
        found = ColumnPunctuation(self.order.type)
        found.null = min(self.null, other.null)
        values, times = self.constants()
        if len(times):
            both = np.minimum(times, other.at(values))
            found.add_constants(values.filter(pa.array(both != NEVER)), both[both != NEVER])
        if len(self._ranges):
            values, times = other.constants()
            if len(times):
                both = np.minimum(times, self._in_ranges(values))
                found.add_constants(values.filter(pa.array(both != NEVER)), both[both != NEVER])
            if self._ruler is None:
                found.add_pieces(other._ranges.overlap(self._ranges.pieces()))
            else:
                runs, times = self.runs()
                other._move(other._ruler.grow(runs))  # type: ignore[union-attr]
                bounds = np.array([other._ruler.interval(run) for run in runs], np.int64)  # type: ignore[union-attr]
                pieces = other._ranges.overlap(np.column_stack((bounds, times)))
                both_runs = [other._ruler.run(lo, hi) for lo, hi, _ in pieces.tolist()]  # type: ignore[union-attr]
                found.add_runs(both_runs, pieces[:, 2])
        return found

    def clipped(self, t: int) -> ColumnPunctuation:
        """The same patterns with times of at most `t`."""
        found = ColumnPunctuation(self.order.type)
        found.null = min(self.null, t)
        values, times = self.constants()
        found.add_constants(values, np.minimum(times, t))
        runs, times = self.runs()
        found.add_runs(runs, np.minimum(times, t))
        return found

    def join(self, other: ColumnPunctuation) -> None:
        """Takes in all that another says."""
        self.null = max(self.null, other.null)
        self.add_constants(*other.constants())
        self.add_runs(*other.runs())

    def constants(self) -> tuple[pa.Array, np.ndarray]:
        """All constants and their times, null aside."""
        return self._constants.entries()

    def keys(self) -> tuple[Any, np.ndarray]:
        """The same, as ranks where there are some."""
        if not isinstance(self._constants, RankConstants):
            return self.constants()
        rows, times = self._constants.table.entries()
        return rows.ravel(), times

    def ranges(self) -> tuple[Any, np.ndarray]:
        """All ranges, in order: closed intervals of ranks (a matrix) where there are some, else runs of keys."""
        if self._ruler is not None:
            return self.runs()
        pieces = self._ranges.pieces()
        return pieces[:, :2].copy(), pieces[:, 2].copy()

    def runs(self) -> tuple[list[Run], np.ndarray]:
        """All ranges, in order."""
        pieces = self._ranges.pieces()
        if self._ruler is not None:
            return [self._ruler.run(lo, hi) for lo, hi, _ in pieces.tolist()], pieces[:, 2]
        end = self.order.hi
        return [(lo, None if hi == end else hi + 1) for lo, hi, _ in pieces.tolist()], pieces[:, 2]

    def patterns(self, c: int = NEVER) -> Iterator[tuple[AttributePattern, int]]:
        """Patterns and times that say the same: lists of constants by time, then ranges.  Only times after `c`."""
        values, times = self.constants()
        by_time: dict[int, list[Any]] = {self.null: [None]} if self.null > c else {}
        if len(times):
            listed, until = python_values(values), times.tolist()
            for i in self._sorted(values).tolist():
                if until[i] > c:
                    by_time.setdefault(until[i], []).append(listed[i])
        for t, listed in sorted(by_time.items(), key=itemgetter(0), reverse=True):
            for first in range(0, len(listed), _LISTED):
                yield OneOf(tuple(listed[first : first + _LISTED])), t
        runs, times = self.runs()
        for run, t in zip(runs, times.tolist(), strict=True):
            if t > c:
                for pattern in shown(run, self.order):
                    yield pattern, t

    def snapshot(self) -> dict[str, Any]:
        values, times = self.constants()
        runs, until = self.runs()
        return {"null": self.null, "values": values, "times": times, "runs": runs, "until": until.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.__init__(self.order.type)  # type: ignore[misc]
        self.null = state["null"]
        self.add_constants(state["values"], state["times"])
        self.add_runs(state["runs"], state["until"])

    def _add_ranks(self, table: PointTable, ranks: np.ndarray, times: np.ndarray) -> None:
        """Constants with ranks: what stands in a row with others goes to the intervals."""
        few = len(ranks) <= _FEW and self._ranges.apart(ranks)
        if few and table.add_keys(np.ascontiguousarray(ranks), times, _IN_A_ROW) < _IN_A_ROW:
            return
        if len(ranks) > 1:
            order = np.lexsort((times, ranks))
            ranks, times = ranks[order], times[order]
            last = np.append(ranks[1:] != ranks[:-1], True)
            ranks, times = ranks[last], times[last]
        if len(self._ranges):
            new = self._ranges.at(ranks) < times
            ranks, times = ranks[new], times[new]
            if not len(ranks):
                return
        # No rank but the last is the largest integer, so this does not wrap round.
        begins = np.append(True, (ranks[1:] != ranks[:-1] + 1) | (times[1:] != times[:-1]))
        first = np.flatnonzero(begins)
        sizes = np.append(first[1:], len(ranks)) - first
        starts, stops, until = ranks[first], ranks[first + sizes - 1], times[first]
        short = sizes < _IN_A_ROW
        alone = np.repeat(short, sizes)
        table.add(np.ascontiguousarray(ranks[alone].reshape(-1, 1)), times[alone])
        left, right = np.empty(len(first), np.int64), np.empty(len(first), np.int64)
        neighbours(table.cells, starts, stops, until, _IN_A_ROW, left, right)
        lows, highs = starts - left, stops + right
        whole = highs - lows >= _IN_A_ROW - 1
        if len(self._ranges):
            below, above = lows > self.order.lo, highs < self.order.hi
            whole |= below & (self._ranges.at(lows - below) == until)
            whole |= above & (self._ranges.at(highs + above) == until)
        if whole.any():
            self._ranges.add(np.column_stack((lows, highs, until))[whole])
            # What stood beside is in the table, and so is a short row itself; a long one never was.
            moved = [(lows, starts, whole), (stops + 1, highs + 1, whole), (starts, stops + 1, whole & short)]
            for begin, end, which in moved:
                table.remove(_each(begin[which], end[which]).reshape(-1, 1))

    def _mark(self, lows: np.ndarray, highs: np.ndarray) -> None:
        if self._sieve is not None and not self._sieve.mark(lows, highs):
            self._sieve = None

    def _sorted(self, values: pa.Array) -> np.ndarray:
        """The positions of values in their order."""
        match self.order.kind:
            case Kind.RANK:
                return np.argsort(self.order.ranks(values))
            case Kind.BYTES:
                return pc.sort_indices(values).to_numpy(zero_copy_only=False).astype(np.int64)
            case Kind.OPAQUE:
                return np.arange(len(values))

    def _in_ranges(self, column: pa.Array) -> np.ndarray:
        if not len(self._ranges):
            return np.full(len(column), NEVER, np.int64)
        return self._ranges.at(self._positions(column))

    def _positions(self, column: pa.Array) -> np.ndarray:
        if self._ruler is not None:
            return self._ruler.positions(column)
        return np.ascontiguousarray(self.order.ranks(column))

    def _sweep(self, c: int) -> None:
        """Drops constants that say no more than `c`, or than the range that they lie in."""
        self._credit = 0
        if not len(self._constants):
            return
        values, times = self.constants()
        kept = times > np.maximum(self._in_ranges(values), c)
        if not kept.all():
            self._constants.retain(kept)

    def _move(self, moves: tuple[np.ndarray, np.ndarray] | None) -> None:
        if moves is not None:
            starts, ends = moves
            self._ranges.move(lambda run: np.column_stack((starts[run[:, 0]], ends[run[:, 1]], run[:, 2])))

    def _drop_unused_cuts(self) -> None:
        if self._ruler is None or self._ruler.last < 4 * (len(self._ranges) + _IN_A_ROW):
            return
        pieces = self._ranges.pieces() if len(self._ranges) else NO_PIECES
        starts, ends = pieces[:, 0], pieces[:, 1]
        used = np.union1d(starts[starts > 0] - 1, ends[ends < self._ruler.last])
        self._move(self._ruler.shrink(used))


def shown(run: Run, order: ValueOrder) -> list[AttributePattern]:
    """A range as patterns that have a form in JSON: all values of a temporal type are those before and after 1970."""
    pattern = pattern_of(*run, order)
    if run[1] is not None or pattern != Range():
        return [pattern]
    if order.kind is Kind.BYTES:
        return [Range(ge=order.of_bytes([run[0]])[0])]
    if pa.types.is_temporal(order.type):
        (middle,) = order.values(np.zeros(1, np.int64))
        return [Range(lt=middle), Range(ge=middle)] if order.lo < 0 else [Range(ge=middle)]
    return [Range(ge=order.values(np.array([order.lo]))[0])]


def _each(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """All integers of half-open intervals."""
    sizes = ends - begins
    return np.arange(sizes.sum()) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)

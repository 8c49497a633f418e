"""The punctuation that binds one column alone: its constants, its ranges and its null, each with a time.

Constants stand in a flat hash table and ranges in sorted intervals; a look-up takes the larger of both.  When enough
constants were added to pay for it, the table is looked through: those in a range that says as much go, and those of a
type with ranks that stand in a row (sixteen or more, of one time) become an interval, so a million of them are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.time import NEVER
from everwhen.punctuation.columns.constants import constants_for
from everwhen.punctuation.columns.intervals import IntervalSet
from everwhen.punctuation.columns.steps import ByteRanges
from everwhen.punctuation.parts import Part, constants_part, pieces_part, ranges_part, taken
from everwhen.values.order import Kind, order_of
from everwhen.values.sets import Run

_IN_A_ROW: Final = 16
_FEW: Final = 512
"""So few constants are kept as they came."""


class ColumnStore:
    """Punctuation of one column."""

    def __init__(self, type_: pa.DataType) -> None:
        self.order = order_of(type_)
        self.null = NEVER
        self._constants = constants_for(self.order)
        self._ranges: IntervalSet | ByteRanges = IntervalSet()
        if self.order.kind is Kind.BYTES:
            self._ranges = ByteRanges(self.order)
        self._fresh = 0  # constants and ranges since the table was looked through
        self._credit = 0  # the same since it was looked through for what a range or time has made needless

    def __len__(self) -> int:
        return len(self._constants) + len(self._ranges) + (self.null != NEVER)

    @property
    def nbytes(self) -> int:
        return self._constants.nbytes + self._ranges.nbytes

    def add(self, constants: Part | None, ranges: Part | None) -> None:
        if constants is not None:
            self.null = max(self.null, constants.null)
            if len(constants.times):
                self._constants.add(constants.keys, constants.times)
                self._pay(len(constants.times))
        if ranges is not None and len(ranges.times):
            self._add_ranges(ranges)
            self._pay(len(ranges.times))
            if 2 * self._credit >= max(len(self._constants), _FEW):
                self._credit = 0
                self._look_through(NEVER)
        if 2 * self._fresh >= max(len(self._constants), _FEW):
            self._look_through(NEVER)

    def raise_to(self, column: pa.Array | np.ndarray, out: np.ndarray) -> None:
        """Raises `out` to what is promised for each value of a column, or for each rank."""
        if isinstance(column, np.ndarray):
            self._raise_keys(column, out)
        elif column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            known = np.maximum(out[missing], self.null)
            self._raise_keys(self.order.keys(column), out)
            out[missing] = known
        else:
            self._raise_keys(self.order.keys(column), out)

    def at(self, keys: Any, least: int = NEVER) -> np.ndarray:
        """What is promised for each key, or for all; what stands where a value is missing does not matter."""
        found = np.full(len(keys), least, np.int64)
        self._raise_keys(keys, found)
        return found

    def _raise_keys(self, keys: Any, out: np.ndarray) -> None:
        for some in (self._constants, self._ranges):
            if len(some):
                some.raise_to(keys, out)

    def least(self, run: Run) -> int:
        """What is promised for all of a range."""
        self._look_through(NEVER)
        lo, hi = run
        if isinstance(self._ranges, ByteRanges):
            return self._ranges.least(lo, hi)
        last = self.order.hi if hi is None else hi - 1
        t = self._ranges.least(lo, last)
        if last - lo < 4 * _IN_A_ROW:  # so few may stand in the table
            t = max(t, int(self.at(np.arange(last - lo + 1, dtype=np.int64) + lo).min()))
        return t

    def forget(self, c: int) -> None:
        """Drops what says no more than `c`: ranges at once, constants when it pays."""
        if self.null <= c:
            self.null = NEVER
        self._ranges.forget(c)
        self._credit += 1
        if 2 * self._credit >= len(self._constants):
            self._credit = 0
            self._look_through(c)

    def constants(self) -> Part:
        self._look_through(NEVER)
        return Part(self.order, *self._constants.entries(), self.null)

    def ranges(self) -> Part:
        self._look_through(NEVER)
        if isinstance(self._ranges, ByteRanges):
            return Part(self.order, *self._ranges.entries())
        return pieces_part(self.order, self._ranges.pieces())

    def pieces(self) -> np.ndarray | None:
        """All as pieces; None: the values have no ranks, or a null is promised."""
        if not len(self._constants) and self.null == NEVER:
            return self._ranges.pieces() if isinstance(self._ranges, IntervalSet) else None
        found = [part.pieces() for part in (self.constants(), self.ranges())]
        return np.concatenate(found) if all(pieces is not None for pieces in found) else None  # type: ignore[arg-type]

    def meet(self, other: ColumnStore) -> tuple[Part, Part]:
        """What both say of the column."""
        found = ColumnStore(self.order.type)
        found.null = min(self.null, other.null)
        for one, two in ((self, other), (other, self)):
            keys, times = one._constants.entries()
            if len(times):
                both = np.minimum(times, two.at(keys))
                at = np.flatnonzero(both > NEVER)
                found.add(Part(self.order, taken(keys, at), both[at]), None)
        ours, theirs = self._ranges, other._ranges
        if isinstance(ours, ByteRanges) and isinstance(theirs, ByteRanges):
            found.add(None, Part(self.order, *ours.overlap(theirs)))
        elif isinstance(ours, IntervalSet) and isinstance(theirs, IntervalSet):
            found.add(None, pieces_part(self.order, ours.overlap(theirs)))
        return found.constants(), found.ranges()

    def snapshot(self) -> dict[str, Any]:
        constants, ranges = self.constants(), self.ranges()
        values, times = constants.column()
        return {"values": values, "times": times, "runs": ranges.runs(), "until": ranges.times}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.__init__(self.order.type)  # type: ignore[misc]
        ranges = ranges_part(self.order, state["runs"], state["until"])
        self.add(constants_part(self.order, state["values"], state["times"]), ranges)

    def _add_ranges(self, ranges: Part) -> None:
        if isinstance(self._ranges, ByteRanges):
            self._ranges.add(ranges.keys, ranges.times)
        else:
            self._ranges.add(ranges.keys)

    def _pay(self, count: int) -> None:
        self._fresh += count
        self._credit += count

    def _in_ranges(self, keys: Any) -> np.ndarray:
        found = np.full(len(keys), NEVER, np.int64)
        if len(self._ranges):
            self._ranges.raise_to(keys, found)
        return found

    def _look_through(self, c: int) -> None:
        """Drops constants that say no more than `c`, or than the range that they lie in; rows of them become ranges."""
        if not self._fresh and c == NEVER:
            return
        self._fresh = 0
        if not len(self._constants):
            return
        keys, times = self._constants.entries()
        kept = times > np.maximum(self._in_ranges(keys), c)
        if isinstance(self._ranges, IntervalSet) and isinstance(keys, np.ndarray):
            self._unite_rows(self._ranges, keys, times, kept)
        if not kept.all():
            self._constants.retain(kept)

    def _unite_rows(self, ranges: IntervalSet, keys: np.ndarray, times: np.ndarray, kept: np.ndarray) -> None:
        """Moves constants to the ranges that are many in a row, or that touch a range of their time."""
        at = np.flatnonzero(kept)
        at = at[np.argsort(keys[at])]
        ranks, until = keys[at], times[at]
        first = np.flatnonzero(np.append(True, (ranks[1:] != ranks[:-1] + 1) | (until[1:] != until[:-1]))[: len(at)])
        sizes = np.diff(np.append(first, len(at)))
        lows, highs, until = ranks[first], ranks[first] + (sizes - 1), until[first]
        united = sizes >= _IN_A_ROW
        if len(ranges):
            below, above = lows > self.order.lo, highs < self.order.hi
            united |= below & (self._in_ranges(lows - below) == until)
            united |= above & (self._in_ranges(highs + above) == until)
        if united.any():
            ranges.add(np.column_stack((lows, highs, until))[united])
            kept[at[np.repeat(united, sizes)]] = False

"""The largest time promised at each key of a column, as a step function over its ordered keys (ranks or byte strings).

A projection asks it whether everything is covered; a column of text keeps its ranges in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.time import NEVER
from everwhen.punctuation.columns.loops import positions
from everwhen.values.order import ValueOrder
from everwhen.values.sets import Key, Run, Spans, lowest_key, union


class Steps:
    """The largest time promised at each key, and for the column's null."""

    def __init__(self, lowest: Key | None) -> None:
        self._lowest = lowest
        self.cuts: list[Key] = [] if lowest is None else [lowest]
        self.times: list[int] = [NEVER] * len(self.cuts)  # from each cut to the next
        self._gaps = len(self.cuts)
        self.null = NEVER

    def __len__(self) -> int:
        return len(self.cuts)

    def add(self, spans: Spans, t: int) -> None:
        """Cost: a search and the steps that are raised."""
        if spans.null:
            self.null = max(self.null, t)
        for lo, hi in spans.runs:
            self.raise_run(lo, hi, t)

    def raise_run(self, lo: Key, hi: Key | None, t: int) -> None:
        first = self._cut(lo)
        last = len(self.cuts) if hi is None else self._cut(hi)
        times, cuts = self.times, self.cuts
        self._gaps -= sum(time == NEVER for time in times[first:last])
        times[first:last] = [max(time, t) for time in times[first:last]]
        # Equal neighbours become one, from the right so that positions stay.
        for at in range(min(last, len(times) - 1), max(first, 1) - 1, -1):
            if times[at] == times[at - 1]:  # never two gaps: one of any two was raised
                del times[at], cuts[at]

    def _cut(self, key: Key) -> int:
        """The step that begins at a key."""
        at = bisect_left(self.cuts, key)
        if at == len(self.cuts) or self.cuts[at] != key:
            self.cuts.insert(at, key)
            self.times.insert(at, self.times[at - 1])
            self._gaps += self.times[at] == NEVER
        return at

    def covered(self, never_null: bool) -> int:
        """The time up to which every value is promised."""
        if self._gaps or (not never_null and self.null == NEVER):
            return NEVER
        every = self.times if never_null else [*self.times, self.null]
        return min(every) if every else NEVER

    def at(self, key: Key | None) -> int:
        """The time of a key, or of null."""
        return self.null if key is None else self.times[bisect_right(self.cuts, key) - 1]

    def runs(self) -> list[tuple[Run, int]]:
        """The runs of keys that have a time."""
        ends: list[Key | None] = [*self.cuts[1:], None]
        return [((lo, hi), t) for lo, hi, t in zip(self.cuts, ends, self.times, strict=True) if t != NEVER]

    def spans(self, t: int) -> Spans:
        """The values that are promised up to `t` at least."""
        return Spans(self._lowest, union(run for run, time in self.runs() if time >= t), self.null >= t)

    def all_times(self) -> set[int]:
        return {*self.times, self.null} - {NEVER}

    def state(self) -> tuple[Any, ...]:
        return self._lowest, list(self.cuts), list(self.times), self.null

    @classmethod
    def of(cls, state: tuple[Any, ...]) -> Steps:
        steps = cls(state[0])
        steps.cuts, steps.times, steps.null = list(state[1]), list(state[2]), state[3]
        steps._gaps = steps.times.count(NEVER)
        return steps


class Cuts:
    """Byte strings in order; the place of a string is how many of them are at or before it."""

    def __init__(self, order: ValueOrder, cuts: Sequence[bytes]) -> None:
        self._order = order
        self._cuts = cuts
        self._offsets = np.cumsum([0, *map(len, cuts)], dtype=np.int64)
        self._data = np.frombuffer(b"".join(cuts) + b"\0", np.uint8)

    def __len__(self) -> int:
        return len(self._cuts)

    def place(self, key: bytes) -> int:
        return bisect_right(self._cuts, key)

    def places(self, column: pa.Array) -> np.ndarray:
        """The place of each value of a column."""
        offsets, first, data = self._order.spans(column)
        out = np.empty(len(column), np.int64)
        positions(offsets, first, data, self._offsets, self._data, out)
        return out


class ByteRanges:
    """Ranges of byte strings, each with a time: the largest one at every string.  Like `IntervalSet`, for text."""

    def __init__(self, order: ValueOrder) -> None:
        self._order = order
        self._steps = Steps(lowest_key(order))
        self._flat: tuple[Cuts, np.ndarray] | None = None  # the steps as arrays

    def __len__(self) -> int:
        return len(self._steps.runs())

    @property
    def nbytes(self) -> int:
        return sum(map(len, self._steps.cuts)) + 64 * len(self._steps)

    def add(self, runs: Sequence[Run], times: np.ndarray) -> None:
        for (lo, hi), t in zip(runs, times.tolist(), strict=True):
            self._steps.raise_run(lo, hi, t)
        self._flat = None

    def raise_to(self, column: pa.Array, out: np.ndarray) -> None:
        """Raises `out` to the time of each value."""
        if self._flat is None:
            self._flat = Cuts(self._order, self._steps.cuts), np.array(self._steps.times, np.int64)
        cuts, times = self._flat
        np.maximum(out, times[np.maximum(cuts.places(column), 1) - 1], out=out)

    def least(self, lo: bytes, hi: bytes | None) -> int:
        """The smallest time on a run, `NEVER` where a string has none."""
        cuts = self._steps.cuts
        last = len(cuts) if hi is None else bisect_left(cuts, hi)
        return min(self._steps.times[bisect_right(cuts, lo) - 1 : last], default=NEVER)

    def entries(self) -> tuple[list[Run], np.ndarray]:
        """All runs, in order, and their times."""
        found = self._steps.runs()
        return [run for run, _ in found], np.array([t for _, t in found], np.int64)

    def overlap(self, other: ByteRanges) -> tuple[list[Run], np.ndarray]:
        """What lies in both, with the smaller time."""
        ours, theirs = self._steps, other._steps
        cuts = sorted({*ours.cuts, *theirs.cuts})
        found = [((lo, hi), min(ours.at(lo), theirs.at(lo))) for lo, hi in zip(cuts, [*cuts[1:], None], strict=True)]
        found = [(run, t) for run, t in found if t != NEVER]
        return [run for run, _ in found], np.array([t for _, t in found], np.int64)

    def forget(self, c: int) -> None:
        """Drops the runs with a time up to `c`."""
        kept = [(run, t) for run, t in self._steps.runs() if t > c]
        self._steps, self._flat = Steps(lowest_key(self._order)), None
        for (lo, hi), t in kept:
            self._steps.raise_run(lo, hi, t)

"""What a new plan has said, in parts by row, so that one part after the other can go over.

A row belongs to a part by the high bits of its hash, by which the encoder finds events again (`changelog_loops.py`).
What comes in a step is sorted by part once.  So to take a part costs as much as there is of it, here and there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.time import NEVER
from everwhen.operators import net_loops as kernel
from everwhen.operators.contract import StateSize
from everwhen.rows.changes import Changes, concat_all
from everwhen.rows.codec import RowCodec

MOST_PARTS: Final = 64
_TIDIED: Final = 4
"""So many steps are looked at for what may go."""


class RowParts:
    """Segments by the part of their row.  Parts before `gone` have gone over, each from the instant `limits` on."""

    def __init__(self, codec: RowCodec, count: int) -> None:
        self.codec = codec
        self.count = 1 << (min(max(count, 1), MOST_PARTS).bit_length() - 1)
        self.gone = 0
        self.limits = np.full(self.count, NEVER, np.int64)
        self._steps: list[tuple[Changes, np.ndarray]] = []
        """What was said in a step, in the order of parts, and where each part begins."""
        self._next = 0
        self._over = NEVER  # what ended by then is of no interest
        codec.pool.register(self)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The parts of rows."""
        found = np.empty(len(rows), np.uint8)
        kernel.parts(rows, self.count, found)
        return found

    def within(self, rows: np.ndarray, first: int, last: int) -> np.ndarray:
        """Which rows are of parts from `first` on and before `last`."""
        part = self.of(rows)
        found: np.ndarray = (part >= first) & (part < last)
        return found

    def add(self, changes: Changes) -> None:
        """What is said in a step."""
        if len(changes):
            part = self.of(changes.rows)
            self._steps.append(self._sorted(changes, part, np.argsort(part, kind="stable")))

    def _sorted(self, changes: Changes, part: np.ndarray, order: np.ndarray) -> tuple[Changes, np.ndarray]:
        begin = np.zeros(self.count + 1, np.int64)
        np.cumsum(np.bincount(part[order], minlength=self.count), out=begin[1:])
        lo, hi, weight, rows = changes.lo[order], changes.hi[order], changes.weight[order], changes.rows[order]
        return Changes(self.codec, lo, hi, weight, rows), begin

    def take(self, first: int, last: int) -> Changes:
        """All that was said of some parts."""
        found = [step.take(slice(int(begin[first]), int(begin[last]))) for step, begin in self._steps]
        return concat_all(self.codec, found)

    def tidy(self, since: int) -> None:
        """Look at what was said in some steps, the next time at others: what has gone over goes, and what is of no
        interest because it ended by an instant."""
        self._over = since
        for _ in range(min(_TIDIED, len(self._steps))):
            self._tidy_one(since)

    def _tidy_one(self, since: int) -> None:
        at = self._next % len(self._steps)
        step, begin = self._steps[at]
        stays = step.hi > since
        stays[: begin[self.gone]] = False
        if not stays.any():
            del self._steps[at]
            return
        if 4 * int(stays.sum()) < 3 * len(stays):
            part = np.repeat(np.arange(self.count), np.diff(begin))
            self._steps[at] = self._sorted(step, part, np.flatnonzero(stays))
        self._next = at + 1

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(step.rows, self.codec.pooled) for step, _ in self._steps]

    def recoded(self) -> None:
        """Rows are of other parts now: that may only be before the first one has gone over."""
        assert self.gone == 0, "codes stay as they are while rows go over"
        steps, self._steps = self._steps, []
        for step, _ in steps:
            self.add(step)

    @property
    def size(self) -> int:
        """How many segments there are of parts that have not gone over."""
        return sum(len(step) - int(begin[self.gone]) for step, begin in self._steps)

    def state_size(self) -> StateSize:
        """Those that have not ended."""
        rows = sum(int((step.hi[begin[self.gone] :] > self._over).sum()) for step, begin in self._steps)
        arrays = (a for step, _ in self._steps for a in (step.lo, step.hi, step.weight, step.rows))
        return StateSize(rows, sum(a.nbytes for a in arrays))

"""A sum of signed segments that is netted when it has to be: what waits at an output, what an input says more or less
than another one.

Adding is an append.  The sum is netted when it is asked for, or when as much came as had been left the last time, so
netting costs a constant number of passes per segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF
from everwhen.operators.contract import StateSize
from everwhen.operators.net import net_corrected
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat_all, no_changes
from everwhen.rows.codec import RowCodec

_FEWEST_TO_NET: Final = 32
"""So many segments come before the sum is netted again, or as many as were left the last time."""


class SignedBag:
    """Segments of rows of `codec`."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._parts: list[Changes] = []
        self._left = 0
        self._negative = False  # whether something is taken back
        self._corrects = False  # and something may have come since that it is taken back from
        self.first = INF
        """Nothing starts earlier."""
        self.size = 0
        codec.pool.register(self)

    def add(self, changes: Changes, sign: int = 1) -> None:
        if not len(changes):
            return
        weight = changes.weight if sign > 0 else -changes.weight
        # rows are recoded in place, so they are this bag's own
        self._parts.append(Changes(self.codec, changes.lo, changes.hi, weight, changes.rows.copy()))
        self.size += len(changes)
        self._negative = self._negative or bool((weight < 0).any())
        self._corrects = self._negative
        self.first = min(self.first, int(changes.lo.min()))
        if self.size > 2 * self._left + _FEWEST_TO_NET:
            self.netted()
            self._left = self.size

    def settle(self) -> None:
        """Net what has come, if it is half as much as was left the last time."""
        if self._corrects and self.size > self._left + self._left // 2 + _FEWEST_TO_NET:
            self.netted()
            self._left = self.size

    def whole(self) -> Changes:
        """The segments as they came."""
        if len(self._parts) != 1:
            self._parts = [concat_all(self.codec, self._parts) if self._parts else no_changes(self.codec)]
        return self._parts[0]

    def netted(self) -> Changes:
        """The sum: segments of rows of which something is taken back are disjoint."""
        whole = self.whole()
        if self._corrects:
            whole = net_corrected(whole)
            self.put(whole)
        return whole

    def put(self, changes: Changes, corrects: bool = False) -> None:
        """Have these segments instead; `corrects`: as far as they are netted, they may not be among themselves."""
        self._parts = [changes]
        self.size = len(changes)
        self._left = min(self._left, self.size)
        self._negative = bool((changes.weight < 0).any())
        self._corrects = corrects and self._negative
        self.first = int(changes.lo.min(initial=INF))

    def cut(self, limit: int | np.ndarray) -> None:
        """Forget all before `limit`, or before a time of each segment of `whole`."""
        if isinstance(limit, int) and limit <= self.first:
            return
        self.put(after(self.whole(), limit), self._corrects)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self.whole().rows, self.codec.pooled)]

    def recoded(self) -> None:
        """Segments carry no hash."""

    def state_size(self) -> StateSize:
        """What is left if all is netted; the bytes are those in use."""
        whole = self.whole()
        size = len(net_corrected(whole)) if self._corrects else len(whole)
        return StateSize(size, sum(part.nbytes for part in (whole.lo, whole.hi, whole.weight, whole.rows)))

    def snapshot(self) -> dict[str, Any]:
        """The segments as they came: who goes on with them nets when this one would have."""
        whole = self.whole()
        rows = self.codec.decode(whole.rows)
        return {
            "lo": whole.lo, "hi": whole.hi, "weight": whole.weight, "rows": rows, "left": self._left,
            "corrects": self._corrects,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        n = len(state["lo"])
        restored.ints(n, state["lo"], state["hi"], state["weight"])
        restored.counts(state["weight"])
        rows = restored.rows(self.codec, state["rows"], n)
        self.put(Changes(self.codec, state["lo"], state["hi"], state["weight"], rows), state["corrects"])
        self._left = state["left"]


def after(changes: Changes, limit: int | np.ndarray) -> Changes:
    """Changes from a time on, of all or of each."""
    picked = changes.hi > limit
    if picked.all():
        lo = changes.lo if (changes.lo >= limit).all() else np.maximum(changes.lo, limit)
        return Changes(changes.codec, lo, changes.hi, changes.weight, changes.rows)
    left = changes.take(picked)
    since = limit if isinstance(limit, int) else limit[picked]
    return Changes(left.codec, np.maximum(left.lo, since), left.hi, left.weight, left.rows)


def before(changes: Changes, limit: int | np.ndarray) -> Changes:
    """Changes before a time, of all or of each."""
    picked = changes.lo < limit
    left = changes.take(picked)
    until = limit if isinstance(limit, int) else limit[picked]
    return Changes(left.codec, left.lo, np.minimum(left.hi, until), left.weight, left.rows)

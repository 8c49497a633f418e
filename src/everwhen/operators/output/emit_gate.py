"""The gate before a sink: another emission policy for a graph that runs, without touching the graph.

Operators go on to say what they always said; the gate lets through what its policy says of that, and the policy may be
changed between steps.

**Guarantee.**  What has gone through stands until it is known to be wrong: a stricter policy takes nothing back by
itself, and what turns out wrong is taken back at once, whatever the policy.  What waits goes on no later than the
promise that covers it, so what has gone through before a promise is the answer there.  A laxer policy lets what waits
go on.

    final     what the promise covers, cut there
    ended     also what has ended by τ
    current   what has begun by τ or by the promise, as far as it is known
    all       everything

It can say less than the graph does, never more: what a graph holds back, `Operator.emitting` brings out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Punctuation
from everwhen.operators.contract import StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.net import netted
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec


class EmitGate:
    """One gate.  Kept are segments that wait; a step costs what waits."""

    def __init__(self, codec: RowCodec, emit: Emit) -> None:
        self.codec = codec
        self.emit = emit
        self._waiting = no_changes(codec)
        codec.pool.register(self)

    def step(self, changes: Changes, tau: int, promise: int) -> Changes:
        """What goes on when the largest start is `tau` and everything before `promise` has come."""
        whole = netted(concat(self._waiting, changes)) if len(changes) else self._waiting
        if not len(whole):
            self._waiting = no_changes(self.codec)
            return self._waiting
        taken = whole.weight < 0
        lo, hi = whole.lo, whole.hi
        match self.emit:
            case Emit.ALL:
                due = ~taken
            case Emit.CURRENT:
                due = ~taken & (lo <= max(tau, promise))
            case Emit.ENDED:
                due = ~taken & (hi <= tau)
            case Emit.FINAL:
                due = np.zeros(len(lo), np.bool_)
        waits = ~taken & ~due
        cut = waits & (lo < promise)
        self._waiting = _from(whole.take(waits & (hi > promise)), promise)
        said = whole.take(taken | due)
        return concat(said, _upto(whole.take(cut), promise)) if cut.any() else said

    def holds(self, promise: Punctuation) -> bool:
        """Whether something waits that the promise says has come."""
        waiting = self._waiting
        return len(waiting) > 0 and bool((upto([promise], self.codec, waiting.rows) > waiting.lo).any())

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self._waiting.rows, self.codec.pooled)]

    def recoded(self) -> None:
        """Segments carry no hash."""

    def state_size(self) -> StateSize:
        parts = (self._waiting.lo, self._waiting.hi, self._waiting.weight, self._waiting.rows)
        return StateSize(len(self._waiting), sum(part.nbytes for part in parts))

    def snapshot(self) -> dict[str, Any]:
        waiting = self._waiting
        rows = self.codec.decode(waiting.rows)
        return {"lo": waiting.lo, "hi": waiting.hi, "weight": waiting.weight, "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        restored.ints(len(state["lo"]), state["lo"], state["hi"], state["weight"])
        restored.counts(state["weight"])
        rows = restored.rows(self.codec, state["rows"], len(state["lo"]))
        self._waiting = Changes(self.codec, state["lo"], state["hi"], state["weight"], rows)


def _from(changes: Changes, t: int) -> Changes:
    return Changes(changes.codec, np.maximum(changes.lo, t), changes.hi, changes.weight, changes.rows)


def _upto(changes: Changes, t: int) -> Changes:
    return Changes(changes.codec, changes.lo, np.minimum(changes.hi, t), changes.weight, changes.rows)

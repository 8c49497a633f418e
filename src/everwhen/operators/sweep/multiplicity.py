"""Operators on multiplicities: duplicate elimination, difference, intersection, max-union, and the clip.

The key of the sweep is the whole row, a lane counts its copies on one port, and the output's multiplicity is a function
of the lanes (Krämer, 8.1.5, 8.1.6, 8.1.9).  Kept are edges after the promise m and the counts at m; a row is gone when
its counts are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.operators.contract import Operator, Output, Policy, StateSize, lowest
from everwhen.operators.key_frontiers import NONE, keys_covered
from everwhen.operators.net import netted
from everwhen.operators.stateless.linear import within_time
from everwhen.operators.sweep.loops.pieces import weighted
from everwhen.operators.sweep.pieces import Pieces
from everwhen.operators.sweep.sweep import Sweep
from everwhen.punctuation.api import Intersection, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat
from everwhen.rows.codec import RowCodec

Multiplicity = Callable[[np.ndarray], np.ndarray]

MULTIPLICITY: Final[dict[str, tuple[int, Multiplicity]]] = {
    "clip": (1, lambda n: n[:, 0]),
    "distinct": (1, lambda n: (n[:, 0] > 0).astype(np.int64)),
    "difference": (2, lambda n: np.maximum(n[:, 0] - n[:, 1], 0)),
    "strict_difference": (2, lambda n: np.where(n[:, 1] > 0, 0, n[:, 0])),
    "intersect": (2, lambda n: np.minimum(n[:, 0], n[:, 1])),
    "max_union": (2, lambda n: np.maximum(n[:, 0], n[:, 1])),
}
"""Ports and output multiplicity by name; zero counts must give zero."""


class CountsOperator(Operator):
    """The multiplicity of each row as a function of its multiplicities on the ports.

    `second` has the second port's names, where they are others.
    """

    keeps = "per row the counts at the promise and the edges after it"

    def __init__(self, function: str, codec: RowCodec, policy: Policy, second: Schema | None = None) -> None:
        self.ports, self._multiplicity = MULTIPLICITY[function]
        self.codec = codec
        self._sweep = Sweep(codec.width, codec.pooled, codec.pool, policy, ints=self.ports)
        self._meeting = Intersection(codec.schema, second)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        if self.ports == 1:
            (batch,) = inputs
            lo, hi, rows = batch.lo, batch.hi, batch.rows
            lanes = batch.weight[:, None]
        else:
            lo = np.concatenate([b.lo for b in inputs])
            hi = np.concatenate([b.hi for b in inputs])
            rows = np.concatenate([b.rows for b in inputs])
            lanes = np.zeros((len(lo), self.ports), np.int64)
            at = 0
            for port, batch in enumerate(inputs):
                lanes[at : at + len(batch), port] = batch.weight
                at += len(batch)
        said = frontiers[0].promises if self.ports == 1 else self._meeting.intersect(frontiers)
        frontier = make_frontier(lowest(frontiers), said)
        sweep = self._sweep
        ids = sweep.intern(rows)
        raised = keys_covered(frontier.promises, self.codec, sweep.keys) if frontier.promises else NONE
        pieces = sweep.step(ids, lo, hi, np.ascontiguousarray(lanes), tau, frontier.time, raised=raised)
        found = self._changes(pieces)
        if self.ports > 1:  # an end at the largest time has no instant behind it at which DSTREAM could tell of it
            within_time(found.lo, found.hi, "the instant after the end of a row")
        return Output(found, frontier)

    def _changes(self, pieces: Pieces) -> Changes:
        before, after = self._multiplicity(pieces.taken[:, 3:]), self._multiplicity(pieces.said[:, 3:])
        changed = weighted(pieces.keys, pieces.taken, before, pieces.said, after)
        rows = self._sweep.keys.codes[changed[:, 0]]
        return Changes(self.codec, changed[:, 1].copy(), changed[:, 2].copy(), changed[:, 3].copy(), rows)

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        if emit.rank <= self._sweep.policy.emit.rank:
            return None
        before = self._changes(self._sweep.standing())
        return netted(concat(before.negated(), self._changes(self._sweep.restated(emit))))

    def endless(self, promises: Sequence[Punctuation]) -> bool:
        """Whether promises reach a row that is alive for ever."""
        ids, _ = keys_covered(promises, self.codec, self._sweep.keys)
        return bool(self._sweep.endless(ids).any())

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        return self._sweep.known_from, self._changes(self._sweep.standing())

    def key_count(self) -> int:
        return len(self._sweep.keys)

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        """How often each row is there on a port, from the promise on."""
        if self._sweep.known_from == INF:
            return None
        pieces = self._sweep.standing(unsaid=True)
        found = pieces.said[pieces.said[:, 3 + port] != 0]
        lo, hi, weight = (found[:, column].copy() for column in (1, 2, 3 + port))
        rows = self._sweep.keys.codes[pieces.keys[found[:, 0]]]
        return self._sweep.known_from, Changes(self.codec, lo, hi, weight, rows)

    def state_size(self) -> StateSize:
        return self._sweep.state_size()

    def snapshot(self) -> dict[str, Any]:
        keys = self._sweep.keys
        state = {"rows": self.codec.decode(keys.codes[keys.ids()]), "sweep": self._sweep.snapshot()}
        return {**state, "promises": self._meeting.snapshot()} if len(self._meeting) else state

    def restore(self, state: dict[str, Any]) -> None:
        columns = state["rows"]
        n = len(state["sweep"]["ids"])
        restored.counts(state["sweep"]["edges"][:, 1:])
        self._sweep.restore(restored.rows(self.codec, columns, n), state["sweep"])
        if "promises" in state:
            self._meeting.restore(state["promises"])

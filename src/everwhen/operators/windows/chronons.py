"""Chronons: lifetimes as single instants, one after the other as time goes on (the split that windows of rows need).

A lifetime is cut when the present reaches it, so even an infinite one has no end to worry about until the stream ends.
Kept is the uncut rest.  Instants that are skipped are not cut out, however many there are (`fast_forward`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, Policy, StateSize
from everwhen.operators.signed_bag import after
from everwhen.operators.stateless.linear import ChopOperator
from everwhen.operators.sweep.multiplicity import CountsOperator
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


class ChrononsOperator(Operator):
    """The same snapshots in pieces of one tick, up to the present."""

    keeps = "the uncut rest of lifetimes"

    def __init__(self, codec: RowCodec, policy: Policy) -> None:
        self.codec = codec
        self._rest = CountsOperator("clip", codec, replace(policy, cut=True, open_end=False))
        self._chop = ChopOperator(1, codec)
        self._first = NEVER  # nothing before is of interest

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        frontier = frontiers[0]
        if any(promise.t == INF for promise in frontier.promises):
            # what lives for ever can't be cut into instants at once: a promise that reaches it says nothing
            known = (p for p in frontier.promises if p.t < INF or not self._rest.endless([p]))
            frontier = Frontier(frontier.time, tuple(known))
        present = self._rest.step(inputs, [frontier], tau)
        changes = present.changes if self._first == NEVER else after(present.changes, self._first)
        return self._chop.step([changes], [present.frontier], tau)

    def fast_forward(self, t: int) -> None:
        self._first = max(self._first, t)

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        more = self._rest.emitting(emit, frontiers)
        return None if more is None else self._chop.step([after(more, self._first)], [Frontier()], NEVER).changes

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        whole = self._rest.standing(frontiers)
        return whole and (whole[0], self._chop.step([after(whole[1], self._first)], frontiers, NEVER).changes)

    def state_size(self) -> StateSize:
        return self._rest.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {"first": self._first, "rest": self._rest.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self._first = state.get("first", NEVER)
        self._rest.restore(state.get("rest", state))

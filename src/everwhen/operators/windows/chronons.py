"""Chronons: lifetimes as single instants, one after the other as time goes on (the split that windows of rows need).

A lifetime is cut when the present reaches it, so even an infinite one has no end to worry about until the stream ends.
Kept is the uncut rest.  Instants that are skipped are not cut out, however many there are (`fast_forward`).

When the stream ends, m rows of a partition may be alive for ever.  From the last change on every instant then adds the
same m rows.  A window of the last N of them is full after ⌈N/m⌉ instants and stays as it is: so the instants up to
there are cut out and the others left away, which changes no snapshot (`Counted`).  With a slide of A the window goes on
changing unless A divides m, m divides N, or the m rows are equal: that has no finite answer, and is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everwhen.containers.key_table import KeyTable
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.operators.contract import Operator, Output, Policy, StateSize
from everwhen.operators.key_frontiers import keys_covered
from everwhen.operators.signed_bag import after
from everwhen.operators.stateless.linear import ChopOperator
from everwhen.operators.sweep.multiplicity import CountsOperator
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, slots=True)
class Counted:
    """The window of rows that counts the instants: the last `rows` at multiples of `slide`, per `partition`."""

    rows: int
    slide: int
    partition: tuple[str, ...]

    def settled(self, changes: Changes, last: int) -> Changes:
        """All that is left of a stream that ends, with rows that live for ever only as long as the window changes.

        `last` is the largest instant that was cut out before: with `all` that may be in the future of these.
        """
        endless = changes.hi == INF
        if not endless.any():
            return changes
        last = int(max(last, changes.lo.max(), changes.hi[~endless].max(initial=NEVER)))
        codec = changes.codec
        at = [codec.schema.index(name) for name in self.partition]
        key_codec = RowCodec(codec.schema.select(self.partition), codec.pool)
        rows, weight = changes.rows[endless], changes.weight[endless]
        keys = KeyTable(key_codec.width)
        ids = keys.intern(codec.select(rows, at, key_codec))
        alive = np.bincount(ids, weight, keys.capacity).astype(np.int64)[ids]
        restless = (alive % self.slide != 0) & (self.rows % alive != 0)
        if restless.any():
            payloads = KeyTable(codec.width)
            first = np.full(keys.capacity, -1, np.int64)
            of = payloads.intern(rows)
            first[ids[::-1]] = of[::-1]
            differs = np.zeros(keys.capacity, np.bool_)
            differs[ids[of != first[ids]]] = True
            if (restless & differs[ids]).any():
                several = int(alive[restless & differs[ids]][0])
                raise QueryError(
                    f"the stream has ended, and {several} different rows live for ever: a window of {self.rows} rows "
                    f"that slides by {self.slide} over them changes for ever. Leave SLIDE out, or end the "
                    "rows first: LIFETIME(LENGTH 1 HOUR), in Python .lifetime(length='1 hour')"
                )
        hi = changes.hi.copy()
        hi[endless] = last - (-(self.rows + self.slide) // alive) + 1
        return replace(changes, hi=hi)


class ChrononsOperator(Operator):
    """The same snapshots in pieces of one tick, up to the present."""

    keeps = "the uncut rest of lifetimes"

    def __init__(self, codec: RowCodec, policy: Policy, counted: Counted | None = None) -> None:
        self.codec = codec
        self._counted = counted
        self._rest = CountsOperator("clip", codec, replace(policy, cut=True, open_end=False))
        self._chop = ChopOperator(1, codec)
        self._first = NEVER  # nothing before is of interest
        self._last = NEVER  # the largest end of what has been cut

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        frontier = frontiers[0]
        if any(promise.t == INF for promise in frontier.promises):
            # what lives for ever can't be cut into instants at once: a promise that reaches it says nothing
            come = KeyTable(self.codec.width)
            come.intern(inputs[0].rows[inputs[0].hi == INF])
            known = (p for p in frontier.promises if p.t < INF or not self._endless(p, come))
            frontier = Frontier(frontier.time, tuple(known))
        present = self._rest.step(inputs, [frontier], tau)
        changes = present.changes if self._first == NEVER else after(present.changes, self._first)
        if self._counted is not None and frontier.time == INF:
            changes = self._counted.settled(changes, self._last)
        self._last = int(changes.hi.max(initial=self._last))
        return self._chop.step([changes], [present.frontier], tau)

    def _endless(self, promise: Punctuation, come: KeyTable) -> bool:
        """Whether a promise reaches a row that is alive for ever, or that has come with it."""
        return self._rest.endless([promise]) or bool(len(keys_covered([promise], self.codec, come)[0]))

    def fast_forward(self, t: int) -> None:
        self._first = max(self._first, t)

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        more = self._rest.emitting(emit, frontiers)
        if more is None:
            return None
        more = after(more, self._first)
        self._last = int(more.hi.max(initial=self._last))
        return self._chop.step([more], [Frontier()], NEVER).changes

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        whole = self._rest.standing(frontiers)
        return whole and (whole[0], self._chop.step([after(whole[1], self._first)], frontiers, NEVER).changes)

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        return self._rest.remembers(port)

    def state_size(self) -> StateSize:
        return self._rest.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {"first": self._first, "last": self._last, "rest": self._rest.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self._first, self._last = state.get("first", NEVER), state.get("last", NEVER)
        self._rest.restore(state.get("rest", state))

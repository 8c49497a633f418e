"""The intake of one source: LateRows, Guard, then Finalize(M), then Align(B), then changes for the graph.

    elements ──▶ late rows ──▶ guard ──▶ finalize ──▶ align ──▶ changes, with a promise and the largest start

LateRows is there where the source has a policy.  What follows from the bound of its disorder is promised with the
batch, after all of it has been taken.  The guard holds the source to its own promises.  Finalize and Align stand only
where the level of consistency asks for them, and only below operators with state; what needs neither costs nothing.  An
epoch has two halves: `check` may refuse a batch, and then nothing has happened to any input; `take` and `release`
cannot fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.align import Align
from everwhen.operators.ingress.finalize import DroppedElements, Finalize
from everwhen.operators.ingress.guard import CheckedBatch, Guard
from everwhen.operators.ingress.late_rows import LateRows
from everwhen.operators.net import cancelled
from everwhen.punctuation.api import promises_of, promises_state
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ADJUST, ElementBatch


class SourcePipeline:
    """One source.  Without `finalizes`, `aligns` and a policy (`late`) it is the guard alone."""

    def __init__(
        self,
        guard: Guard,
        remember: int = INF,
        finalizes: bool = False,
        aligns: bool = False,
        late: LateRows | None = None,
    ) -> None:
        self.guard = guard
        self.late = late
        if late is not None and late.policy.late == "drop":
            guard.pass_over()
        self.finalize: Finalize | None = None
        self.align: Align | None = None
        self.latest = NEVER
        """The largest sync time that was admitted."""
        self._tau = NEVER
        self._checked: tuple[ElementBatch, CheckedBatch] | None = None
        self._arrived: CheckedBatch | None = None
        self._said: Sequence[Punctuation] = ()
        self._unsaid: list[Punctuation] = []
        if finalizes:
            self.remember(remember)
        if aligns:
            self.block()

    @property
    def name(self) -> str:
        return self.guard.name

    @property
    def codec(self) -> RowCodec:
        return self.guard.codec

    @property
    def cti(self) -> int:
        """What is promised: by the source itself, or forced."""
        return self.guard.cti if self.finalize is None else max(self.finalize.cti, self.guard.cti)

    @property
    def promise(self) -> int:
        """What the graph may rely on: nothing that waits is passed."""
        return self.cti if self.align is None else min(self.cti, self.align.lowest)

    @property
    def frontier(self) -> Frontier:
        """The promise, and what the source has newly promised about data; that waits while an element that it matches
        does."""
        return Frontier(self.guard.cti if self.finalize is None and self.align is None else self.promise, self._said)

    @property
    def tau(self) -> int:
        """The largest start that has gone on."""
        return self.guard.tau if self.align is None else self._tau

    # -- an epoch -----------------------------------------------------------------------------------------------

    def check(self, batch: ElementBatch) -> None:
        """Check a batch; on an error nothing of it has been taken.  Then `undo`, or `take`."""
        late = self.late
        if late is not None:
            batch = late.step(batch, self.guard.cti)
        if self.finalize is not None:
            self.finalize.check(batch)
        self._checked = batch, self.guard.step(batch)
        if late is not None:
            late.unknown(batch, self.guard.unfound)
            self.guard.reach(late.reached(self.guard.tau))

    def undo(self) -> None:
        self._checked = None
        self.guard.undo()
        if self.late is not None:
            self.late.undo()

    def take(self) -> tuple[CheckedBatch | None, tuple[DroppedElements, ...]]:
        """What is said of the checked batch, or waits from now on, and what was given up."""
        self._said = ()
        if self._checked is None:
            return None, ()
        (batch, guarded), self._checked = self._checked, None
        self.guard.settle()
        self._said = self.guard.fresh
        dropped: tuple[DroppedElements, ...] = () if self.late is None else self.late.settle()
        if self.finalize is not None:
            admitted = self.finalize.step(batch, guarded, self.guard.cti)
            guarded, dropped = admitted.said, dropped + admitted.dropped
            if self.late is not None:
                dropped += self.finalize.force(self.guard.cti)
            if self._said:
                self.finalize.close(self._said)
        if self.align is None:
            return guarded, dropped
        if len(guarded.op):
            sync = guarded.sync
            if guarded.adjusts:
                sync = np.where(sync == INF, NEVER, sync)  # from INF to INF says nothing
            self.latest = max(self.latest, int(sync[-1] if guarded.ordered else sync.max()))
            self._arrived = guarded
        return None, dropped

    def release(self, horizon: int, promised: int) -> CheckedBatch | None:
        """What goes on of that which waits."""
        if self.align is None:
            return None
        found = self.align.step(self._arrived, horizon, promised)
        self._arrived = None
        if self._said or self._unsaid:
            self._unsaid += self._said
            self._said = tuple(p for p in self._unsaid if not self.align.holds(p))
            self._unsaid = [p for p in self._unsaid if p not in self._said and p.t > self.cti]
        starts = found.vs[found.op != ADJUST] if found.adjusts else found.vs
        if len(starts):
            self._tau = max(self._tau, int(starts[-1] if found.ordered else starts.max()))
        return found

    def check_end(self) -> None:
        if self.finalize is not None:
            self.finalize.check_end()

    def close(self) -> None:
        """The input has ended: everything is promised."""
        self.guard.close()
        if self.finalize is not None:
            self.finalize.force(INF)

    # -- other levels -------------------------------------------------------------------------------------------

    def remember(self, ticks: int) -> tuple[DroppedElements, ...]:
        """Remember so much from now on; progress never goes back."""
        if self.finalize is None:
            guard = self.guard
            self.finalize = Finalize(guard.name, guard.codec, ticks, guard.insert_only)
            self.finalize.begin(guard.cti, guard.tau, guard.hand_over())
            self.finalize.raise_floor(guard.floor)
        self.finalize.remember = ticks
        return self.finalize.force()

    def hurry(self, cti: int) -> tuple[DroppedElements, ...]:
        """Take everything before `cti` for promised, though the source has not said so."""
        if self.late is not None:
            self.guard.hurry(cti)  # its policy says what becomes of late rows
            return () if self.finalize is None else self.finalize.force(cti)
        assert self.finalize is not None, "only Finalize can do without what is late then"
        return self.finalize.force(cti)

    def raise_floor(self, floor: int) -> None:
        """Nothing before `floor` is of interest any more; where Finalize is, nothing is skipped."""
        self.guard.raise_floor(floor)
        if self.finalize is not None:
            self.finalize.raise_floor(self.guard.floor)
            self.finalize.force()

    def block(self) -> None:
        """Let elements wait from now on.  What has gone on stays as it is."""
        if self.align is None:
            self.guard.part()
            self._tau = self.guard.tau
            self.align = Align(self.codec, self.guard.insert_only)

    @property
    def known_from(self) -> int:
        """From which instant on `standing` is all that has gone on: what ended before the CTI is forgotten, and what
        ended before a promise about its row, or before the floor."""
        if self.guard.whole:
            return NEVER
        dropped = self.guard.forgotten if self.finalize is None else self.finalize.forgotten
        return max(self.cti, self.guard.floor, self.guard.forgotten, dropped)

    def standing(self) -> Changes | None:
        """The events that have gone on and may still be corrected; None if they are not kept."""
        events = self.guard.standing() if self.finalize is None else self.finalize.standing()
        if events is None or self.align is None:
            return events
        gone_on = cancelled(self.codec, [events, self.align.waiting().events().negated()])
        return gone_on.take(gone_on.weight > 0)  # what waits may be forgotten already: it has not gone on

    def begin(self, other: SourcePipeline) -> None:
        """Go on beside another intake of the same source: what has come there has gone on here, all of it."""
        state = other.snapshot()
        self.guard.restore(state["guard"])
        if state["finalize"] is not None:
            self.remember(INF if self.finalize is None else self.finalize.remember)
            assert self.finalize is not None
            self.finalize.restore(state["finalize"])
            self.finalize.counts.clear()
        elif self.finalize is not None:
            self.finalize.begin(self.guard.cti, self.guard.tau, self.guard.hand_over())
            self.finalize.raise_floor(self.guard.floor)
        if self.finalize is not None:
            self.finalize.force()
        self.latest, self._tau = other.latest, self.guard.tau

    # -- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        parts = [each.state_size() for each in (self.guard, self.finalize, self.align) if each is not None]
        return sum(parts, StateSize())

    def snapshot(self) -> dict[str, Any]:
        return {
            "guard": self.guard.snapshot(),
            "finalize": None if self.finalize is None else self.finalize.snapshot(),
            "remember": None if self.finalize is None else self.finalize.remember,
            "align": None if self.align is None else self.align.snapshot(),
            "latest": self.latest,
            "tau": self._tau,
            "unsaid": promises_state(self._unsaid),
            "late": None if self.late is None else self.late.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot, at the level that it was taken at."""
        self.guard.restore(state["guard"])
        if state["finalize"] is not None:
            self.remember(state["remember"])
            assert self.finalize is not None
            self.finalize.restore(state["finalize"])
        if state["align"] is not None:
            self.block()
            assert self.align is not None
            self.align.restore(state["align"])
        self.latest, self._tau, self._unsaid = state["latest"], state["tau"], promises_of(state["unsaid"])
        if self.late is not None and state.get("late") is not None:
            self.late.restore(state["late"])

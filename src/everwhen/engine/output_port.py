"""The way from a port of the dataflow to the elements of an output: the emission filter, then the changelog encoder.

Where the operators emit no more than the policy does, there is no filter.  To emit less than they do, nothing in the
dataflow changes: the filter lets less through, and retracts nothing that is not wrong.  An encoder that knows groups
cannot stand behind a filter, which knows rows only; `by_rows` makes it one of rows, with the events that it has
emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.engine.change_emit import Standing
from everwhen.engine.node import cut
from everwhen.operators.contract import Output, StateSize
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element_batch import INSERT, ElementBatch, coded_elements

Recalled = Callable[[Port], tuple[int, Changes] | None]


@dataclass
class OutputPort:
    """An encoder at a port.  It sees the port's history from `since` on.

    `nets`: the port brings whole events, and what follows takes segments.
    """

    port: Port
    encoder: ChangelogEncoder | GroupChangelogEncoder | EventChangelogEncoder
    filter: EmitFilter | None = None
    nets: bool = False
    since: int = NEVER
    began: float = 0.0
    moved: tuple[Emit, ...] = ()
    """The policies that it was moved to since it is there, each once, the present one last."""
    rows: bool = False
    """It takes segments of any plan, because a query was replaced."""
    promised: int = NEVER
    """The largest time of what it has promised about data."""
    rows_in: int = 0
    rows_out: int = 0

    @property
    def ports(self) -> tuple[Port, ...]:
        """The port that it reads; behind it that of an old plan, while a query is being replaced."""
        return (self.port,)

    def hear(self, given: tuple[Output, int], old: tuple[Output, int] | None = None) -> ElementBatch:
        """What it says in an epoch: each of its ports with its largest start."""
        changes = given[0].changes if self.since == NEVER else cut(given[0].changes, self.since)
        return self.encode(changes, given[1], given[0].frontier)

    @property
    def ahead(self) -> int:
        """Nothing that was emitted before it was final ends later, if the policy is `final`."""
        return NEVER if self.filter is None else self.filter.ahead

    def by_rows(self, emit: Emit, ahead: int = INF) -> None:
        """Take segments of any plan from now on; nothing has been emitted yet.  `ahead`: nothing that was emitted for
        this output, and may be wrong, ends later."""
        codec = self.encoder.codec
        self.encoder = ChangelogEncoder(codec, ordered=emit is Emit.FINAL)
        self.filter = EmitFilter(codec, emit, ahead=ahead) if emit in (Emit.FINAL, Emit.ENDED) else None
        self.nets = self.rows = True

    def encode(self, changes: Changes, tau: int, frontier: Frontier) -> ElementBatch:
        """The elements."""
        self.rows_in += len(changes)
        if frontier.promises:
            self.promised = max(self.promised, *(each.t for each in frontier.promises))
        if self.nets:
            changes = netted(changes)
        if self.filter is not None:
            changes = self.filter.step(changes, tau, frontier)
        batch = self.encoder.step(changes, frontier.time, frontier.promises)
        self.rows_out += len(batch)
        return batch

    def change_emit(self, emit: Emit, standing: Standing, known: int = NEVER) -> None:
        """Let through from now on what `emit` emits.  `standing` is all that was said from `known` on."""
        self.moved = (*(each for each in self.moved if each is not emit), emit)
        last = emit is Emit.FINAL
        if isinstance(self.encoder, EventChangelogEncoder) and not last:
            return  # events are emitted as they come, whatever the policy
        if isinstance(self.encoder, EventChangelogEncoder):
            said = standing(self.port)
            assert said is not None, "what may still be corrected is kept"
            self.nets = True
            self.encoder = by_rows(self.encoder, cut(said, self.since), last, known)
        elif isinstance(self.encoder, GroupChangelogEncoder):
            pieces = standing(self.port)
            assert pieces is not None, "an operator that knows groups knows what it has emitted"
            pieces = cut(pieces, self.since)
            said = self.encoder.said(pieces) if len(pieces) else pieces
            self.encoder = by_rows(self.encoder, said, last, known)
        else:
            self.encoder.takes_all(last)
        if self.filter is None:
            self.filter = EmitFilter(self.encoder.codec, emit, ahead=INF)
        self.filter.emit = emit

    def standing(self, recalled: Recalled) -> tuple[int, Changes] | None:
        """The events said that live from an instant on, under the names by which they may still be adjusted; None if
        they are not known.  `recalled` tells what a port has brought that stands, and from when on."""
        encoder = self.encoder
        if isinstance(encoder, ChangelogEncoder):
            return encoder.standing()
        found = recalled(self.port)
        if found is None:
            return None
        since, changes = max(found[0], encoder.cti), found[1]
        return since, changes if isinstance(encoder, EventChangelogEncoder) else encoder.said(changes)

    def state_size(self) -> StateSize:
        size = self.encoder.state_size()
        return size if self.filter is None else size + self.filter.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {
            "changelog": self.encoder.snapshot(),
            "filter": None if self.filter is None else self.filter.snapshot(),
            "nets": self.nets,
            "moved": [emit.value for emit in self.moved],
            "since": self.since,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rows": self.rows,
            "emit": None if self.filter is None else self.filter.emit.value,
            "promised": self.promised,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        if state.get("rows", False) and not self.rows:
            self.by_rows(Emit(state["emit"] or Emit.CURRENT.value))
        nothing = no_changes(self.encoder.codec)
        for emit in state["moved"]:  # it has emitted nothing yet
            self.change_emit(Emit(emit), lambda port: nothing)
        self.encoder.restore(state["changelog"])
        self.promised = state.get("promised", NEVER)
        if self.filter is not None and state["filter"] is not None:
            self.filter.restore(state["filter"])
        self.nets, self.since = state["nets"], state["since"]
        self.rows_in, self.rows_out = state["rows_in"], state["rows_out"]


def standing_elements(events: Changes, since: int, cti: int) -> ElementBatch:
    """Events that live from an instant on, as inserts with their own starts, and the CTI.  One that ends just there may
    still grow."""
    at = np.flatnonzero((events.hi >= since) & (events.weight > 0))
    at = at[np.argsort(events.lo[at], kind="stable")]
    alive = events.take(np.repeat(at, events.weight[at]))
    times = np.stack([alive.lo, alive.hi, np.zeros(len(alive), np.int64)])
    op = np.full(len(alive), INSERT, np.uint8)
    return coded_elements(events.codec, op, times, alive.rows, (), cti if cti > NEVER else None)


def by_rows(
    encoder: ChangelogEncoder | GroupChangelogEncoder | EventChangelogEncoder,
    said: Changes,
    ordered: bool,
    known: int = NEVER,
) -> ChangelogEncoder:
    """An encoder of rows that goes on for another one, which has emitted these events: from `known` on no others."""
    return ChangelogEncoder.going_on(encoder.codec, encoder.cti, said.take(said.hi > encoder.cti), ordered, known)

"""New operators are given the past of their inputs in slices, and behind it the epochs that came meanwhile.

**What is over is left out.**  While they are loaded, what is of interest moves on with what the old plan promises.  Let
V be an instant before which nothing is of interest and before which all inputs have promised everything.  Where every
operator's answer from V on depends on its inputs from V on only (`Operator.exact_from`), what ends by V need not be
given any more, and nothing before V will come.  So the new operators are told that V is promised, and forget what is
over by then, as if they had been there all the time; they never keep more than they would keep had they always run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import NO_PROGRESS, Frontier
from everwhen.core.time import INF, NEVER
from everwhen.engine.node import OperatorNode, cut
from everwhen.engine.session.joining.as_of import AsOf
from everwhen.engine.session.joining.pace import LOADING, Pace, Rate
from everwhen.engine.session.joining.row_parts import RowParts
from everwhen.operators.contract import Output, StateSize
from everwhen.plan.physical import PlacedOperator, Port
from everwhen.rows.changes import Changes

Given = Mapping[Port, tuple[Output, int]]
"""What ports bring in a step, and the largest start of each."""
StepOne = Callable[[OperatorNode, Iterable[tuple[Output, int]]], None]
ExactAfter = Callable[[PlacedOperator, int], int]
_FEWEST = 512
"""So many rows of the past are taken at once, or more."""


@dataclass(eq=False)
class Loading:
    """New operators that are given the past of their inputs in slices, then what has come since.

    Rows that wait are recoded with the pool, as those of operators are.
    """

    nodes: Sequence[OperatorNode]
    step_one: StepOne
    exact_after: ExactAfter
    rows: int
    """How many rows of the past an epoch takes at most."""
    past: dict[Port, Changes]
    now: Mapping[Port, tuple[Frontier, int]]
    """What ports had promised when the operators joined, and their largest starts."""
    top: Port
    said: RowParts
    """All that is said at the top."""
    pace: Pace
    _from: int = NEVER
    """Nothing before is of interest."""
    _ready: bool = False
    _loaded: bool = False
    _later: deque[dict[Port, tuple[Output, int]]] = field(default_factory=deque)
    _rate: Rate = field(default_factory=Rate)
    _saying: list[Changes] = field(default_factory=list)
    _whole: dict[Port, int] = field(init=False)
    """How many rows the memory of the past of a port has."""

    def __post_init__(self) -> None:
        self._whole = {port: len(each) for port, each in self.past.items()}
        self.said.codec.pool.register(self)

    @property
    def ports(self) -> Iterable[Port]:
        """What the new operators read of those that run."""
        return self.past

    def epoch(self, given: Given, since: int) -> bool:
        """What came in an epoch; some slices more.  `since`: nothing before is of interest.  Whether all has been
        taken."""
        self._later.append({port: _own(each) for port, each in given.items()})
        self._begin_at(min([since, *(output.frontier.time for output, _ in given.values())]))
        if not self._ready:
            self._make_room()
        elif not self._loaded:
            self._slices()
        if self._loaded:
            self._epochs()
        self._note()
        self.said.tidy(self._from)
        return self._loaded and not self._later

    def _make_room(self) -> None:
        """Tell operators how much is to come.  That is enough for an epoch, or several."""
        self._ready, coming = True, dict(self._whole)
        for node in self.nodes:
            rows = [coming.get(port, 0) for port in node.placed.inputs]
            self._ready = node.placed.operator.expect(rows) and self._ready
            if node.placed.operator.stateless:
                coming[Port(operator=node.number)] = sum(rows)

    def _epochs(self) -> None:
        """Some of the epochs that have come: two, because it must catch up, and more while it is little work; one only
        if this epoch has been much already."""
        taken, epochs, least = 0, 0, 2 if self.pace.left(LOADING) >= 0 else 1
        while self._later and (epochs < least or (taken <= self.rows and self.pace.left(LOADING) > 0)):
            taken += sum(len(output.changes) for output, _ in self._later[0].values())
            epochs += 1
            self._step(self._later.popleft())

    def finish(self) -> None:
        """Take all that is left."""
        while not self._loaded:
            self._slice(max(len(each) for each in self.past.values()))
        while self._later:
            self._step(self._later.popleft())
        self._note()

    def _begin_at(self, since: int) -> None:
        """Let operators see their inputs from an instant on only, if their answers need no more."""
        if since == INF or since <= self._from:
            return
        exact: dict[int, tuple[int, int]] = {}
        for node in self.nodes:
            known = [exact[port.operator][1] if port.operator in exact else since for port in node.placed.inputs]
            first = max(known, default=since)
            exact[node.number] = first, self.exact_after(node.placed, first)
            if exact[node.number][1] != since:
                return
        self._from = since
        for node in self.nodes:
            node.since, node.exact = max(node.since, since), max(node.exact, since)

    def _slices(self) -> None:
        """Rows of the past, until it is enough for an epoch."""
        taken, left = 0, self.pace.left(LOADING)
        while not self._loaded and taken < self.rows and (taken == 0 or left > 0):
            most, began = self.rows - taken, self.pace.done()
            rows = self._rate.fits(left, min(_FEWEST, most), most)
            self._slice(rows)
            self._rate.took(self.pace.done() - began, rows)
            taken, left = taken + rows, self.pace.left(LOADING)

    def _slice(self, rows: int) -> None:
        """So many rows of each port, those first that came last: others may be over before it is their turn."""
        given, left = {}, {}
        self._loaded = all(rows >= len(each) for each in self.past.values())
        for port, each in self.past.items():
            frontier, tau = self.now[port]
            first = max(len(each) - rows, 0)
            some = cut(each.take(slice(first, len(each))), self._from)
            given[port] = Output(some, frontier if self._loaded else NO_PROGRESS), tau
            left[port] = self._shortened(port, each.take(slice(0, first)))
        self.past = left
        self._step(given)

    def _shortened(self, port: Port, left: Changes) -> Changes:
        """The same; when half of its memory is not needed any more, in memory of its own, without what is over."""
        if 2 * len(left) > self._whole.get(port, 0):
            return left
        found = left.take(np.flatnonzero(left.hi > self._from))
        self._whole[port] = len(found)
        return found

    def _step(self, given: Given) -> None:
        made: dict[Port, tuple[Output, int]] = {}
        for port, (output, tau) in given.items():
            promised = Frontier(max(output.frontier.time, self._from))
            made[port] = Output(output.changes, promised), tau
        for node in self.nodes:
            self.step_one(node, [made[port] for port in node.placed.inputs])
            made[Port(operator=node.number)] = node.output, node.tau
        self._saying.append(made[self.top][0].changes)

    def _note(self) -> None:
        for each in self._saying:
            self.said.add(each)
        self._saying = []

    def state_size(self) -> StateSize:
        """Rows that wait."""
        waiting = [*self.past.values(), *(output.changes for epoch in self._later for output, _ in epoch.values())]
        arrays = (a for each in waiting for a in (each.lo, each.hi, each.weight, each.rows))
        return StateSize(sum(int((each.hi > self._from).sum()) for each in waiting), sum(a.nbytes for a in arrays))

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        waiting = list(self.past.values())
        waiting += [output.changes for epoch in self._later for output, _ in epoch.values()]
        return [(each.rows, each.codec.pooled) for each in waiting]

    def recoded(self) -> None:
        """Segments carry no hash."""


def loading_of(
    nodes: Sequence[OperatorNode],
    past: Mapping[Port, AsOf],
    now: Mapping[Port, tuple[Frontier, int]],
    top: Port,
    said: RowParts,
    rows: int,
    pace: Pace,
    step_one: StepOne,
    exact_after: ExactAfter,
) -> Loading:
    """New operators that have seen nothing yet."""
    given = {port: each.changes for port, each in past.items()}
    return Loading(nodes, step_one, exact_after, rows, given, now, top, said, pace)


def _own(given: tuple[Output, int]) -> tuple[Output, int]:
    """The same with rows of its own, because they are recoded in place; what is promised about data is left out: it
    is of use to nobody before the switch."""
    output, tau = given
    changes = output.changes
    rows = Changes(changes.codec, changes.lo, changes.hi, changes.weight, changes.rows.copy())
    return Output(rows, Frontier(output.frontier.time)), tau

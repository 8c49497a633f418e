"""The operator contract.

An operator is a state machine with numbered input ports and one output.  It has no clock, no thread, no I/O; time and
progress are handed in.  The runtime calls

    step(inputs, frontiers, tau)

with all that arrived in one epoch, one batch of changes per port, and what each port has promised by now.  It returns
the changes of its output and its own promise, and guarantees, for whatever cutting of the input into steps:

    1. the sum of all changes returned so far is op(history so far), clipped by the emission policy;
    2. no change returned touches an instant before a promise returned earlier;
    3. when every port has promised everything before t, everything of the output before the returned promise is out;
    4. state that no legal change can need again is gone when `step` returns;
    5. the promise never goes back.

An operator computes its promise from the frontiers of the step.  Promises about data that cover everything together are
progress in time, and they are news in one step only; the frontier of a later step may say less.  So whoever runs an
operator calls `advance`, which keeps the time that has been reached; nobody else may hand an output's promise on.

A step may come without any change (only progress), and several steps may share one frontier: so a loop can bring a
batch back to an operator before progress moves on, and a stage can fuse operators by calling them one after the other.
Promises are `Frontier`s, not only times; an operator that knows no patterns reads `frontier.time`.

How much leaves before it is final is a matter of the output, which has one filter for that (`output/emit_filter.py`).
An operator that takes the policy in (`Policy`) computes nothing that would wait there; any other emits all it knows.

`snapshot()` gives plain data (NumPy, Arrow and Python values, nothing coded); `restore()` on a new operator of the same
plan makes it continue as if nothing had happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.operators.clip import CUT, ENDED, ENDING, INFINITE, KNOWN
from everwhen.punctuation.api import make_frontier
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, slots=True)
class Policy:
    """An emission policy as operators read it.

    `open_end`: CURRENT says the piece open at τ without an end (the paper's order-preserving operator) instead of as
    far as it is known.  `cut`: the answer goes into single instants, so an open piece is cut at the present, and what
    never ends is said no further than that even in ALL.  `moves`: where AlterLifetime below moves starts, how each way
    to the sources does, step by step as (hop, shift); what comes next at τ then begins there, and ENDED counts from it.
    """

    emit: Emit = Emit.CURRENT
    open_end: bool = False
    cut: bool = False
    moves: tuple[tuple[tuple[int, int], ...], ...] = ()

    def ended_by(self, tau: int) -> int:
        """Where what comes in order from now on begins: pieces that have ended by then are over."""
        return min((_moved(tau, way) for way in self.moves), default=tau)

    def clip(self, tau: int, promise: int) -> tuple[int, int]:
        """The sweep's clip mode and its time, for the largest start seen and the operator's promise."""
        match self.emit:
            case Emit.ALL:
                return (ENDING, _present(tau, promise)) if self.cut else (CUT, INF)
            case Emit.FINAL:
                return CUT, promise
            case Emit.ENDED if self.cut:
                return CUT, max(self.ended_by(tau), promise)
            case Emit.ENDED:
                return ENDED, self.ended_by(tau)
        if self.cut:
            return CUT, _present(tau, promise)
        # the piece that starts at the promise is folded into the base now, so it must be said now
        return (INFINITE if self.open_end else KNOWN), max(tau, promise)


def _present(tau: int, promise: int) -> int:
    """The first instant after the present."""
    return max(tau if tau == NEVER else tau + 1, promise)


def _moved(tau: int, way: tuple[tuple[int, int], ...]) -> int:
    for hop, shift in way:
        tau = tau if tau in (INF, NEVER) else tau // hop * hop + shift
    return tau


EVERYTHING = Policy(Emit.ALL)


@dataclass(frozen=True, slots=True)
class Output:
    """What a step gives: the changes and what is promised from now on."""

    changes: Changes
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class StateSize:
    """How much an operator keeps: rows (events, edges, records) and bytes reserved for them."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: StateSize) -> StateSize:
        return StateSize(self.rows + other.rows, self.bytes + other.bytes)


class Operator(ABC):
    """See the module's docstring."""

    ports: int = 1
    codec: RowCodec
    """How the output's rows are coded."""

    keeps: str = "nothing"
    """What state is kept, until which promise: for people."""

    merges: bool = False
    """Whether inputs are copies of one stream: the furthest promise counts, and each event keeps its own start."""

    puts_off = False
    """Another operator has cleared up much in this epoch: what need not be cleared up now waits, so that no epoch takes
    long.  Set before each step."""
    cleared_up = False
    """Whether the last step has cleared up much."""

    @property
    def unfinished(self) -> bool:
        """Whether the next step has something to do although nothing may come."""
        return False

    @abstractmethod
    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        """Take one epoch's input; give the output's changes."""

    @property
    def stateless(self) -> bool:
        """Whether the output of a step is a function of its input alone."""
        return self.keeps == Operator.keeps

    def exact_from(self, since: int) -> int:
        """From which instant on the output is right, if the inputs are known from the instant `since` on only.

        Infinity: never.  Operators on single snapshots need nothing earlier.  `since` is a finite time.
        """
        return since

    def needs_from(self, wanted: int) -> int:
        """If the output is of interest from the instant `wanted` on: from when on the inputs are, the largest since V
        with `exact_from(V)` ≤ `wanted`.  -∞: all of the past is."""
        if wanted in (NEVER, INF):
            return wanted
        known, step = wanted, 1
        while self.exact_from(known) > wanted:
            if known == MIN_TIME:
                return NEVER
            known, step = max(wanted - step, MIN_TIME), 2 * step
        while known + step <= MAX_TIME and self.exact_from(known + step) <= wanted:
            known, step = known + step, 2 * step
        while step:  # what lies so much later than `known` will not do
            step //= 2
            if known + step <= MAX_TIME and self.exact_from(known + step) <= wanted:
                known += step
        return known

    def fast_forward(self, t: int) -> None:  # noqa: B027 - to most operators that is what their frontiers say
        """The output before `t` is of no interest any more; inputs are cut where `needs_from` says.  Changes before `t`
        may be left out, those from `t` on stay the same."""

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        """Say from now on all that `emit` says, and more where it has always said more; what that changes at once, in
        segments or, where the operator says events, in events.

        The sum of it and of all that was said is the answer so far, clipped in the new way.  None: what is said does
        not depend on the policy.
        """
        return None

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        """What has been said and stands: an instant, and the sum of all changes said from that instant on.

        A new operator that is handed this, cut at the instant, and all later changes, cut there too, sees the whole
        output from the instant on.  It is neither before what is promised nor before the end of anything that was
        forgotten because of promises about data.  None: it cannot be told from what is kept.
        """
        return None

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        """What is known here of all that came at a port: an instant, and what stands from that instant on.

        The sum of the changes, restricted to the instant and later, is the port's history restricted so.  So a new
        operator can be given what a running one was given, however long ago.  None: it is not kept.
        """
        return None

    def expect(self, rows: Sequence[int]) -> bool:
        """So many rows will come soon at each port: make room once, rather than often.  Nothing has come yet.  Whether
        that is done: else it is called again, in the next epoch."""
        return True  # most operators grow as they go

    def reach(self, starts: Sequence[int]) -> bool:
        """The largest start that the sources below each port have had, which is the same in all partitions; whether a
        step may say something new because of it."""
        return False

    def end(self, ports: Collection[int]) -> None:  # noqa: B027 - most operators need not know
        """The inputs of these ports have come to their end.  To most operators that is what their frontiers say."""

    def leave(self, ports: Collection[int]) -> None:
        """The inputs of these ports go away before their end; others may come in their place."""
        self.end(ports)

    def finish(self) -> None:  # noqa: B027 - most operators need not know
        """All inputs have ended, and no other will come."""

    def state_size(self) -> StateSize:
        return StateSize()

    def key_count(self) -> int | None:
        """How many keys (groups, partners' keys, rows) it keeps something of; None if it does not go by keys."""
        return None

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot; called once, before the first step."""
        assert not state, "an operator without state has nothing to restore"

    def needs(self, t: int) -> tuple[int, ...]:
        """The least that each port has to promise before the output promises everything before `t`: the inverse of the
        rule for promises, as far as it is known from what has come.  All ports have to, of a merge any one.  Infinity:
        only the end of the port does it.

        Promises about data may bring it earlier.  `t` is later than what is promised.
        """
        return (t,) * self.ports

    def waits_for(self, frontiers: Sequence[Frontier]) -> tuple[int, ...]:
        """The ports whose missing promises hold this operator's output back."""
        low = min((frontier.time for frontier in frontiers), default=INF)
        return tuple(port for port, frontier in enumerate(frontiers) if frontier.time == low) if low < INF else ()


def advance(
    operator: Operator, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int, reached: int
) -> Output:
    """Step an operator that has promised everything before `reached`: its promise does not go back (5)."""
    output = operator.step(inputs, frontiers, tau)
    if output.frontier.time >= reached:
        return output
    return Output(output.changes, make_frontier(reached, output.frontier.promises))


def lowest(frontiers: Sequence[Frontier]) -> int:
    """What all ports have promised."""
    return min(frontier.time for frontier in frontiers)

"""What every test of operators needs: random streams and epochs, and the comparison with the oracle.

`Trial` runs a plan epoch by epoch on the local runtime and checks on the way what the operator contract promises: the
output is valid, its CTI is the one that the table of operators gives, and everything before it is out and right.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.node import StepCheck
from everwhen.reference import LogicalStream, evaluate
from everwhen.reference.order import canonical
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, reorder
from plans import S

SCHEMA: Schema = S.schema
EMITS = ("final", "ended", "current", "all")
FIRST, LAST = -8, 48
"""All finite instants of the tests' inputs and outputs lie between these two."""

Ctis = Mapping[str, int]


# --- the progress that the table gives --------------------------------------------------------------------------------


def promised(node: n.Node, ctis: Ctis) -> int:
    """The output CTI of a plan by the table of operators, for the CTIs of its inputs (coalesce: eager)."""
    below = [promised(child, ctis) for child in node.inputs]
    match node:
        case n.Source(name):
            return ctis[name]
        case n.Recursion() | n.Values():
            return INF
        case n.TimeWindow(_, _, slide):
            return _mapped(below[0], lambda c: math.ceil((c + 1) / slide) * slide - 1)
        case n.Granularity(_, granule):
            return _mapped(below[0], lambda c: math.ceil(c / granule) * granule)
        case n.AlterLifetime(_, hop, shift, _):
            return _mapped(below[0], lambda c: math.floor(c / hop) * hop + shift)
    return min(below)


def _mapped(c: int, f: Callable[[int], int]) -> int:
    return c if c in (INF, NEVER) else f(c)


def flies(node: n.Node) -> bool:
    """Whether a loop in the plan may end an epoch while rows circulate."""
    return any(isinstance(each, n.Fixpoint) and each.options.flying for each in n.walk(node))


def holds_back(node: n.Node) -> bool:
    """Whether a coalesce in the plan holds intervals back in `ended` and `final`, or a stamp tells ends."""
    return any(isinstance(each, n.Coalesce) for each in n.walk(node))


def tells_ends(node: n.Node) -> bool:
    """Whether a stamp in the plan tells ends, and so promises nothing beyond the start of what is open."""
    return any(isinstance(each, n.Stamp) and each.end is not None for each in n.walk(node))


# --- snapshots --------------------------------------------------------------------------------------------------------


def comparable(snapshot: Mapping[tuple[Any, ...], int]) -> Counter[tuple[Any, ...]]:
    """A snapshot whose floats are rounded, so that sums in another order are equal (semantics, 17)."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in snapshot.items():
        if count:
            found[tuple(_rounded(value) for value in row)] += count
    return found


def _rounded(value: Any) -> Any:
    value = canonical(value)
    return round(value, 9) + 0.0 if isinstance(value, float) and math.isfinite(value) else value


class Said:
    """The history of an output, element by element."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.elements: list[Element] = []
        self.cti = NEVER
        self._events: Counter[tuple[int, int, tuple[Any, ...]]] = Counter()

    def take(self, batch: ElementBatch) -> list[Element]:
        assert batch.schema == self.schema
        new = list(batch.elements())
        for element in new:
            if isinstance(element, Cti):
                self.cti = element.t
                continue
            assert isinstance(element, Insert | Adjust)
            event = (element.vs, element.ve, tuple(canonical(value) for value in element.row.values()))
            if isinstance(element, Insert):
                self._events[event] += 1
                continue
            assert self._events[event] > 0, f"{element} adjusts what is not there"
            self._events[event] -= 1
            if element.vnew > element.vs:
                self._events[event[0], element.vnew, event[2]] += 1
        self.elements += new
        return new

    def at(self, t: int) -> Counter[tuple[Any, ...]]:
        alive: Counter[tuple[Any, ...]] = Counter()
        for (vs, ve, row), count in self._events.items():
            if count and vs <= t < ve:
                alive[row] += count
        return comparable(alive)

    def history(self) -> History:
        return History.of(self.elements, self.schema)


def assert_snapshots(said: Said, expected: LogicalStream, instants: Iterable[int], when: str) -> None:
    for t in instants:
        got, wanted = said.at(t), comparable(expected.at(t))
        assert got == wanted, f"{when}, at {t}: missing {dict(wanted - got)}, extra {dict(got - wanted)}"


def sources(query: ew.Stream) -> list[str]:
    """The names of a query's inputs."""
    return sorted({each.name for each in n.walk(query.node) if isinstance(each, n.Source)})


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass
class Trial:
    """A plan on the local runtime, checked against the oracle after every epoch."""

    query: ew.Stream
    emit: str
    histories: Mapping[str, History]
    check: StepCheck | None = None
    runtime: LocalRuntime = field(init=False)
    said: Said = field(init=False)
    oracle: LogicalStream = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = LocalRuntime(self.query, emit=self.emit, check=self.check)
        self.said = Said(self.query.schema)
        self.oracle = evaluate(self.query.node, {name: self.histories[name] for name in self.runtime.inputs})

    def push(self, epoch: Mapping[str, ElementBatch]) -> list[Element]:
        return self._take(self.runtime.push(epoch)["out"])

    def close(self) -> None:
        """The end: everything is out, right, valid and closed."""
        self._take(self.runtime.close()["out"])
        assert self.said.cti == INF
        assert_snapshots(self.said, self.oracle, range(FIRST, LAST), "at the end")
        report = assert_valid(self.said.elements)
        if self.emit == "final":
            assert not report.adjusts, "an adjust in 'final'"
            assert report.ordered, f"not ordered: {report.offences['ordered']}"

    def _take(self, batch: ElementBatch) -> list[Element]:
        before = self.said.cti
        new = self.said.take(batch)
        expected = promised(self.query.node, self.runtime.progress)
        if not (flies(self.query.node) or tells_ends(self.query.node)) and (
            self.emit in ("current", "all") or not holds_back(self.query.node)
        ):
            assert self.said.cti == expected, f"the output's CTI is {self.said.cti}, the table says {expected}"
        else:
            assert before <= self.said.cti <= expected
        settled = range(max(before, FIRST), min(self.said.cti, LAST))
        assert_snapshots(self.said, self.oracle, settled, f"settled by the CTI {self.said.cti}")
        return new

    def restart(self, through: Callable[[Any], Any] = lambda state: state) -> None:
        """Go on in a new runtime from a snapshot of this one."""
        state = through(self.runtime.snapshot())
        self.runtime = LocalRuntime(self.query, emit=self.emit, check=self.check)
        self.runtime.restore(state)

    def collect(self) -> None:
        """Drop and renumber pooled values now."""
        self.runtime.plan.pool.collect(force=True)


def streams_of(given: Mapping[str, History], rng: random.Random, infinite: bool = True) -> dict[str, list[Element]]:
    """Physical streams that mean the histories: in order, late, corrected, or all of it."""
    return {
        name: reorder(
            history,
            rng,
            disorder=rng.choice((0, 2, 8, None)),
            corrections=rng.choice((0.0, 0.4, 0.8)),
            wrong=rng.choice((0.0, 0.3, 1.0)),
            ctis=rng.choice((0.1, 0.3, 1.0)),
            infinite=infinite,
        )
        for name, history in given.items()
    }


def epochs(streams: Mapping[str, Sequence[Element]], rng: random.Random) -> list[dict[str, ElementBatch]]:
    """Streams cut into epochs at random: several elements or one, only some inputs, sometimes none at all."""
    left = {name: list(elements) for name, elements in streams.items()}
    found: list[dict[str, ElementBatch]] = []
    while any(left.values()):
        epoch: dict[str, ElementBatch] = {}
        for name, elements in left.items():
            if rng.random() < 0.7:
                size = rng.choice((13, 8, 5, 3, 2, 1, 1, 0))
                epoch[name] = batch_of(elements[:size], SCHEMA, name)
                del elements[:size]
        found.append(epoch)
    return found


def in_turn(
    elements: Sequence[Element], size: int, name: str = "S", schema: Schema = SCHEMA
) -> list[dict[str, ElementBatch]]:
    """One stream in batches of a size."""
    return [{name: batch_of(elements[at : at + size], schema, name)} for at in range(0, len(elements), size)]


def run_all(
    query: ew.Stream, emit: str, pushes: Iterable[Mapping[str, ElementBatch]], close: bool = True
) -> list[Element]:
    """The output's elements, without any check."""
    runtime = LocalRuntime(query, emit=emit)
    out = [element for epoch in pushes for element in runtime.push(epoch)["out"].elements()]
    return [*out, *runtime.close()["out"].elements()] if close else out

"""Plans under attribute punctuation: random promises that are true, and what must hold of the output after every epoch.

`with_promises` puts punctuation into a stream of elements where it is true of the rest.  `PunctuatedTrial` runs a plan
and compares it with the definitions:

* the answer is the oracle's, however the input is cut (the end, and all that a CTI or a promise of the output covers);
* the output is valid and grammatical, the promises that it says included;
* it promises all that the rules demand, `reference.promise_rules`, and in `final` everything that those promises settle
  is out (completeness); what is out is never taken back, for `final` has no adjusts (safety).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import everwhen as ew
from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.local import LocalRuntime
from everwhen.punctuation.api import show_promise
from everwhen.reference import LogicalStream, evaluate
from everwhen.reference.promise_rules import Said as Known
from everwhen.reference.promise_rules import by_position, promised, promises
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from everwhen.values.sets import spans_of
from operators.differential import FIRST, LAST, assert_snapshots, comparable, holds_back
from operators.differential import Said as Output
from operators.differential import promised as promised_cti

HORIZON = 2 * LAST
"""No finite instant of the tests' inputs, windowed or not, lies behind it."""

# --- punctuation that is true -----------------------------------------------------------------------------------------

INTEGERS, TEXTS = (-8, -7, 0, 1, 2, 3), ("", "a", "b", "ä", "z")


def pattern(rng: random.Random, type_: pa.DataType, likely: Sequence[Any]) -> AttributePattern:
    """A constant, a list, or a range; with a null now and then."""
    values: list[Any] = [*INTEGERS] if pa.types.is_integer(type_) else [*TEXTS]
    likely = [*likely, *values, None]
    match rng.randrange(12):
        case 0 | 1 | 2 | 3 | 4:
            return OneOf((rng.choice(likely),))
        case 5 | 6 | 7:
            return OneOf(tuple(rng.sample([*values, None], rng.randint(1, 4))))
        case 11 if rng.random() < 0.3:
            return Nothing()
    low, high = sorted(rng.choices(values, k=2))
    bounds = [{"ge": low}, {"gt": low}, {"le": high}, {"lt": high}, {"ge": low, "le": high}, {"gt": low, "lt": high}]
    found = Range(**rng.choice(bounds))
    return Nothing() if spans_of(found, type_).empty else found  # a source that says an empty range is refused


def some_match(rng: random.Random, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> dict[str, AttributePattern]:
    """Patterns on one attribute or more; `rows` have values that are worth a promise."""
    names = rng.sample(schema.names, rng.choice((1, 1, 1, 2)) if len(schema) > 1 else 1)
    return {name: pattern(rng, schema.field(name).type, [row[name] for row in rows]) for name in names}


def limit(match: Mapping[str, AttributePattern], rest: Iterable[Element]) -> int:
    """The latest time that may be promised for the pattern before these elements.

    An adjust counts as an insert does, if its row matches: from the earlier of its two ends on (semantics, 16).
    """
    changes = (each for each in rest if isinstance(each, Insert | Adjust))
    return min((each.sync for each in changes if Punctuation(match).matches(each.row)), default=INF)


def with_promises(elements: Sequence[Element], rng: random.Random, schema: Schema, chance: float) -> list[Element]:
    """The stream with true promises in between: mostly as much as is true, sometimes for ever, sometimes less."""
    found: list[Element] = []
    for at, element in enumerate(elements):
        while rng.random() < chance:
            before = [each.row for each in elements[:at] if isinstance(each, Insert | Adjust)][-4:]
            tries = [some_match(rng, schema, before) for _ in range(3)]
            match = max(tries, key=lambda each: limit(each, elements[at:]))
            t = limit(match, elements[at:])
            if rng.random() < 0.3:
                t = min(t, rng.randint(-4, 14))
            found.append(Punct(Punctuation(match, t)))
        found.append(element)
    return found


def punctuated(
    streams: Mapping[str, Sequence[Element]], rng: random.Random, schema: Schema, chance: float | None = None
) -> dict[str, list[Element]]:
    """Streams with promises: a few, many, or none on one of them."""
    return {
        name: with_promises(elements, rng, schema, rng.choice((0.0, 0.2, 0.4)) if chance is None else chance)
        for name, elements in streams.items()
    }


# --- a run ------------------------------------------------------------------------------------------------------------


class PunctuatedOutput(Output):
    """The history of an output, and the promises in it."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.promises: list[Punctuation] = []
        self.all: list[Element] = []

    def take(self, batch: ElementBatch) -> list[Element]:
        new = list(batch.elements())
        self.all += new
        self.promises += [each.promise for each in new if isinstance(each, Punct)]
        super().take(batch_of([each for each in new if not isinstance(each, Punct)], batch.schema))
        return new

    def known(self) -> list[Known]:
        """All that the output has promised, CTI and punctuation."""
        cti = [Punctuation({}, self.cti)] if self.cti > NEVER else []
        return [by_position(promise, self.schema) for promise in (*self.promises, *cti)]


@dataclass
class Inputs:
    """What the sources have said so far."""

    schema: Schema
    elements: dict[str, list[Element]] = field(default_factory=dict)

    def take(self, epoch: Mapping[str, ElementBatch]) -> None:
        for name, batch in epoch.items():
            self.elements.setdefault(name, []).extend(batch.elements())

    def promises(self, name: str) -> list[Punctuation]:
        said = self.elements.get(name, [])
        ctis = [Punctuation({}, each.t) for each in said if isinstance(each, Cti)]
        return [*(each.promise for each in said if isinstance(each, Punct)), *ctis[-1:]]

    def known(self, name: str) -> list[Known]:
        return [by_position(promise, self.schema) for promise in self.promises(name)]

    def history(self, name: str) -> History:
        return History.of(self.elements.get(name, []), self.schema)


@dataclass
class PunctuatedTrial:
    """A plan on the local runtime, checked after every epoch; `demand` leaves out what the rules ask of the output."""

    query: ew.Stream
    emit: str
    histories: Mapping[str, History]
    demand: bool = True
    runtime: LocalRuntime = field(init=False)
    said: PunctuatedOutput = field(init=False)
    oracle: LogicalStream = field(init=False)
    inputs: Inputs = field(init=False)
    rows: list[tuple[Any, ...]] = field(init=False)
    """Every row that is ever in the answer."""

    def __post_init__(self) -> None:
        self.runtime = LocalRuntime(self.query, emit=self.emit)
        self.said = PunctuatedOutput(self.query.schema)
        self.oracle = evaluate(self.query.node, {name: self.histories[name] for name in self.runtime.inputs})
        self.inputs = Inputs(next(iter(self.histories.values())).schema)
        self.rows = list(dict.fromkeys(row for t in range(FIRST, LAST) for row in self.oracle.at(t)))

    def push(self, epoch: Mapping[str, ElementBatch]) -> None:
        self.inputs.take(epoch)
        self._take(self.runtime.push(epoch)["out"])

    def close(self) -> None:
        self.inputs.take({name: _closing(self.inputs.schema, name) for name in self.runtime.inputs})
        self._take(self.runtime.close()["out"])
        assert self.said.cti == INF
        assert_snapshots(self.said, self.oracle, range(FIRST, LAST), "at the end")
        report = assert_valid(self.said.all)
        assert report.grammatical, f"not grammatical: {report.offences['grammatical']}"
        if self.emit == "final":
            assert not report.adjusts, "an adjust in 'final'"

    def restart(self, through: Callable[[Any], Any] = lambda state: state) -> None:
        """Go on in a new runtime from a snapshot of this one."""
        state = through(self.runtime.snapshot())
        self.runtime = LocalRuntime(self.query, emit=self.emit)
        self.runtime.restore(state)

    # -- checks -------------------------------------------------------------------------------------------------

    def _take(self, batch: ElementBatch) -> None:
        before = self.said.cti
        new = self.said.take(batch)
        settled = range(max(before, FIRST), min(self.said.cti, LAST))
        assert_snapshots(self.said, self.oracle, settled, f"settled by the CTI {self.said.cti}")
        for element in new:
            if isinstance(element, Punct):
                self._assert_out([by_position(element.promise, self.query.schema)], show_promise(element.promise))
        if self.demand and not holds_back(self.query.node):
            self.assert_demands()

    def assert_demands(self) -> None:
        """Promises and, in `final`, the answer go as far as the rules demand."""
        cti = promised_cti(self.query.node, self.runtime.progress)
        assert self.said.cti >= cti, f"the output's CTI is {self.said.cti}, the table says {cti}"
        known = self.demanded()
        if self.emit == "final":
            self._assert_out(known, "the rules")
        said = self.said.known()
        for row in self.rows:
            got, wanted = promised(said, row), promised(known, row)
            assert got >= wanted, f"promised for {row} is {show(got)}, the rules demand {show(wanted)}"

    def demanded(self) -> list[Known]:
        names = self.runtime.inputs
        given = {name: self.inputs.promises(name) for name in names}
        return promises(self.query.node, given, {name: self.inputs.history(name) for name in names}, HORIZON)

    def _assert_out(self, known: Sequence[Known], why: str) -> None:
        """Of every row all is out, and right, that lies before what is promised for it."""
        times = {row: promised(known, row) for row in self.rows}
        for t in range(FIRST, min(LAST, max(times.values(), default=FIRST))):
            due = Counter({row: count for row, count in self.oracle.at(t).items() if t < times[row]})
            wanted, got = comparable(due), self.said.at(t)
            for row, count in wanted.items():
                assert got[row] == count, f"at {t} {row} is there {got[row]} times; {count} times is final by {why}"
            for row in got.keys() - comparable(self.oracle.at(t)).keys():
                assert promised(known, row) <= t, (
                    f"at {t} {row} is there, and not in the answer, which is final by {why}"
                )


def _closing(schema: Schema, name: str) -> ElementBatch:
    return batch_of([Cti(INF)], schema, name)

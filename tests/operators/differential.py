"""What every test of operators needs: plans by name, random streams and epochs, and the comparison with the oracle.

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

COLUMNS = {"k": "string", "x": "int64"}
S, T = ew.source("S", COLUMNS), ew.source("T", COLUMNS)
SCHEMA: Schema = S.schema
col = ew.col
EMITS = ("final", "ended", "current", "all")
FIRST, LAST = -8, 48
"""All finite instants of the tests' inputs and outputs lie between these two."""

Ctis = Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """A plan with a name.  `infinite`: whether lifetimes without end are legal for it."""

    name: str
    build: Callable[[], ew.Stream]
    infinite: bool = True
    ordered: bool = False
    """An ungrouped unary operator: ordered input gives ordered output."""

    def __str__(self) -> str:
        return self.name


def plan(name: str, build: Callable[[], ew.Stream], infinite: bool = True, ordered: bool = False) -> Plan:
    return Plan(name, build, infinite, ordered)


UNARY: tuple[Plan, ...] = (
    plan("source", lambda: S, ordered=True),
    plan("filter", lambda: S.where(col("x") > 1), ordered=True),
    plan("map", lambda: S.select("k", y=col("x") * 2), ordered=True),
    plan("map that merges rows", lambda: S.select("k"), ordered=True),
    plan("now", lambda: S.now(), ordered=True),
    plan("range", lambda: S.range(3), ordered=True),
    plan("range slide", lambda: S.range(5, slide=3), ordered=True),
    plan("slide beyond range", lambda: S.range(2, slide=5), ordered=True),
    plan("unbounded", lambda: S.unbounded(), infinite=False, ordered=True),
    plan("granularity", lambda: S.granularity(4), ordered=True),
    plan("distinct", lambda: S.distinct()),
    plan("count and sum by group", lambda: S.group_by("k").agg(n=ew.count(), t=ew.sum("x"), nx=ew.count("x"))),
    plan("scalar aggregate", lambda: S.aggregate(n=ew.count(), t=ew.sum("x"), a=ew.avg("x")), ordered=True),
    plan("min and max by group", lambda: S.group_by("k").agg(lo=ew.min("x"), hi=ew.max("x"), n=ew.count())),
    plan("scalar min and max", lambda: S.aggregate(lo=ew.min("x"), hi=ew.max("k")), ordered=True),
    plan(
        "holistic aggregates",
        lambda: S.group_by("k").agg(
            m=ew.median("x"), d=ew.count_distinct("x"), q=ew.quantile("x", 0.25), top=ew.top_k("x", 2)
        ),
    ),
    plan("variance", lambda: S.group_by("k").agg(v=ew.variance("x"), s=ew.stddev_pop("x"))),
    plan("first and last", lambda: S.aggregate(f=ew.first("k", by="x"), l=ew.last("k", by="x")), ordered=True),
    plan("group by an expression", lambda: S.group_by(odd=col("x") % 2).agg(n=ew.count(), m=ew.min("k"))),
    plan("rows", lambda: S.rows(2), infinite=False, ordered=True),
    plan("rows 4", lambda: S.rows(4), infinite=False, ordered=True),
    plan("rows slide", lambda: S.rows(3, slide=2), infinite=False, ordered=True),
    plan("partitioned rows", lambda: S.rows(2, partition_by=["k"]), infinite=False),
    plan("partitioned rows slide", lambda: S.rows(2, slide=3, partition_by=["k"]), infinite=False),
    plan("istream", lambda: S.istream(), ordered=True),
    plan("dstream", lambda: S.dstream(), ordered=True),
    plan("rstream", lambda: S.rstream(), infinite=False, ordered=True),
    plan("split", lambda: S.split(1), infinite=False, ordered=True),
    plan("split 3", lambda: S.split(3), infinite=False, ordered=True),
    plan("coalesce", lambda: S.coalesce()),
    plan("coalesce longest", lambda: S.coalesce(4), infinite=False),
    plan("lifetime", lambda: S.lifetime(length=4), ordered=True),
    plan("hop", lambda: S.lifetime(hop=4, length=8), ordered=True),
    plan("hop keeping ends", lambda: S.lifetime(hop=4), ordered=True),
    plan("shift", lambda: S.lifetime(shift=3), ordered=True),
    plan("shift back", lambda: S.lifetime(shift=-3, length=2), ordered=True),
    plan("inserts", lambda: S.inserts(), ordered=True),
    plan("deletes", lambda: S.deletes()),
)

BINARY: tuple[Plan, ...] = (
    plan("union", lambda: S.union(T)),
    plan("difference", lambda: S.difference(T)),
    plan("strict difference", lambda: S.strict_difference(T)),
    plan("except", lambda: S.except_(T)),
    plan("intersect", lambda: S.intersect(T)),
    plan("max union", lambda: S.max_union(T)),
    plan("equi-join", lambda: S.join(T, on="k")),
    plan("equi-join and condition", lambda: S.join(T, on="k", where=col("x") != col("x_right"))),
    plan("theta-join", lambda: S.join(T, where=col("x") != col("x_right"))),
    plan("inequality join", lambda: S.join(T, where=col("x") < col("x_right"))),
    plan("band join", lambda: S.join(T, where=(col("x") <= col("x_right") + 1) & (col("x") >= col("x_right") - 1))),
    plan("product", lambda: S.product(T)),
    plan("semi-join", lambda: S.join(T, on="k", how="semi")),
    plan("anti-join", lambda: S.join(T, on="k", how="anti")),
    plan("theta semi-join", lambda: S.join(T, where=col("x") < col("x_right"), how="semi")),
    plan("theta anti-join", lambda: S.join(T, on="k", where=col("x") < col("x_right"), how="anti")),
    plan("left join", lambda: S.join(T, on={"k": "k"}, how="left")),
    plan("right join", lambda: S.join(T, on={"k": "k"}, how="right")),
    plan("full join", lambda: S.join(T, on={"k": "k"}, how="full")),
    plan("theta full join", lambda: S.join(T, where=col("x") < col("x_right"), how="full")),
    plan("join of all columns", lambda: S.join(T, on=["k", "x"])),
)

COMPOSED: tuple[Plan, ...] = (
    plan("self-difference", lambda: S.difference(S.where(col("x") > 1))),
    plan("self-join", lambda: S.join(S.where(col("x") > 0), on="k")),
    plan("stream minus itself", lambda: S.difference(S)),
    plan("aggregate of aggregate", lambda: S.group_by("k").agg(t=ew.sum("x")).aggregate(m=ew.max("t"), n=ew.count())),
    plan("windowed sum", lambda: S.range(4).group_by("k").agg(t=ew.sum("x"))),
    plan("sliding sum", lambda: S.range(6, slide=2).group_by("k").agg(t=ew.sum("x"), m=ew.max("x"))),
    plan(
        "highest bids",
        lambda: S.range(4).join(S.range(4).aggregate(m=ew.max("x")), on={"x": "m"}, how="semi"),
    ),
    plan("rows of sums", lambda: S.group_by("k").agg(t=ew.sum("x")).rows(2, partition_by=["k"]), infinite=False),
    plan("sum of rows", lambda: S.rows(3, partition_by=["k"]).group_by("k").agg(t=ew.sum("x")), infinite=False),
    plan("window of sums", lambda: S.group_by("k").agg(t=ew.sum("x")).range(3)),
    plan("lifetime of coalesced", lambda: S.coalesce().lifetime(length=3)),
    plan("lifetime of coalesced pieces", lambda: S.coalesce(4).lifetime(length=3), infinite=False),
    plan("deletes of coalesced sums", lambda: S.group_by("k").agg(t=ew.sum("x")).coalesce().deletes()),
    plan("changes of a sum", lambda: S.aggregate(t=ew.sum("x")).istream()),
    plan("granular sums", lambda: S.aggregate(t=ew.sum("x")).granularity(3)),
    plan("distinct over a join", lambda: S.join(T, on="k").select("k").distinct()),
    plan("join of windows", lambda: S.range(3).join(T.range(2), on="k").group_by("k").agg(n=ew.count())),
    plan("anti-join, then sum", lambda: S.join(T, on="k", how="anti").aggregate(n=ew.count(), t=ew.sum("x"))),
    plan("dstream of distinct", lambda: S.distinct().dstream()),
    plan("filter on lifetime", lambda: S.lifetime(length=5).where(col("x") > 0).union(T.lifetime(shift=2))),
    plan("sum over a union of windows", lambda: S.range(5, slide=2).union(T.granularity(3)).aggregate(t=ew.sum("x"))),
)

PLANS = (*UNARY, *BINARY, *COMPOSED)


# --- the progress that the table gives --------------------------------------------------------------------------------


def promised(node: n.Node, ctis: Ctis) -> int:
    """The output CTI of a plan by the table of operators, for the CTIs of its inputs (coalesce: eager)."""
    below = [promised(child, ctis) for child in node.inputs]
    match node:
        case n.Source(name):
            return ctis[name]
        case n.TimeWindow(_, _, slide):
            return _mapped(below[0], lambda c: math.ceil((c + 1) / slide) * slide - 1)
        case n.Granularity(_, granule):
            return _mapped(below[0], lambda c: math.ceil(c / granule) * granule)
        case n.AlterLifetime(_, hop, shift, _):
            return _mapped(below[0], lambda c: math.floor(c / hop) * hop + shift)
    return min(below)


def _mapped(c: int, f: Callable[[int], int]) -> int:
    return c if c in (INF, NEVER) else f(c)


def holds_back(node: n.Node) -> bool:
    """Whether a coalesce in the plan holds intervals back in `ended` and `final`."""
    return any(isinstance(each, n.Coalesce) for each in n.walk(node))


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
        if self.emit in ("current", "all") or not holds_back(self.query.node):
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
        self.runtime._plan.pool.collect(force=True)


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

"""Declared chronons: what plans leave out because of them, that it is right, and that breaking them is an error."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.properties.derive import properties
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError, QueryError
from everwhen.operators.contract import Output
from everwhen.operators.ingress.unordered_guard import UnorderedGuard
from everwhen.plan.lower import lower
from everwhen.plan.properties import instants
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import reorder
from everwhen.testing.strategies import histories
from operators.differential import EMITS, SCHEMA, Trial, epochs
from plans import COLUMNS

C = ew.source("S", COLUMNS, chronons=True)
D = ew.source("T", COLUMNS, chronons=True)
J = ew.source("T", COLUMNS)
col = ew.col
TICKS = histories(SCHEMA, max_events=8, chronons=True)

PLANS: dict[str, Callable[[], ew.Stream]] = {
    "rows": lambda: C.rows(2),
    "rows slide": lambda: C.rows(3, slide=2),
    "partitioned rows": lambda: C.rows(2, partition_by="k"),
    "rows of a filter": lambda: C.where(col("x") > 0).rows(2),
    "rows of a map": lambda: C.select("x").rows(3),
    "rows of a union": lambda: C.union(D).rows(3),
    "rows of now": lambda: C.now().rows(2),
    "rows of a join": lambda: C.range(4).join(D, on="k").rows(2),
    "rows of a semi-join": lambda: C.join(D.range(3), on="k", how="semi").rows(2),
    "rows of an anti-join": lambda: C.join(D.range(3), on="k", how="anti").rows(2),
    "rows of a left join": lambda: C.join(D.range(3), on="k", how="left").rows(2),
    "rows of distinct": lambda: C.select("k").distinct().rows(2),
    "rows of groups": lambda: C.group_by("k").agg(n=ew.count()).rows(2, partition_by="k"),
    "rows of counts": lambda: C.aggregate(n=ew.count()).rows(3),
    "rows of a difference": lambda: C.difference(D).rows(2),
    "rows of istream": lambda: C.range(3).istream().rows(2),
    "rows of dstream": lambda: C.range(3).dstream().rows(2),
    "rows of altered lifetimes": lambda: C.lifetime(hop=3, shift=2, length=1).rows(2),
    "sums of rows": lambda: C.rows(2).group_by("k").agg(t=ew.sum("x")),
    "rstream": lambda: C.rstream(),
    "rstream of distinct": lambda: C.distinct().rstream(),
    "rstream of counts": lambda: C.aggregate(n=ew.count()).rstream(),
    "split": lambda: C.where(col("x") > 0).split(1),
    "now": lambda: C.now(),
    "now of counts": lambda: C.aggregate(n=ew.count()).now(),
    "range": lambda: C.range(4),
    "range slide": lambda: C.range(4, slide=3),
}


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), s=TICKS, t=TICKS)
def test_plans_over_declared_chronons_equal_the_oracle(name: str, emit: str, seed: int, s: History, t: History) -> None:
    rng = random.Random(seed)
    query = PLANS[name]()
    given = {"S": s, "T": t}
    trial = Trial(query, emit, given)
    for epoch in epochs({name: _stream(given[name], rng) for name in trial.runtime.inputs}, rng):
        trial.push(epoch)
    trial.close()


def _stream(history: History, rng: random.Random) -> list[Element]:
    """A stream of chronons that means the history: late, with wrong events that are removed again."""
    found = reorder(history, rng, disorder=rng.choice((0, 2, None)), corrections=0.0, wrong=0.6, ctis=0.3)
    return [_one_tick(element) for element in found]


def _one_tick(element: Element) -> Element:
    match element:
        case Insert(vs, _, row):
            return Insert(vs, vs + 1, row)
        case Adjust(vs, _, _, row):
            return Adjust(vs, vs + 1, vs, row)
    return element


def names(stream: ew.Stream, emit: Emit = Emit.CURRENT) -> list[str]:
    return [placed.name for placed in lower({"out": stream.node}, emit).operators]


def test_splits_are_left_out() -> None:
    assert names(C.rows(2)) == ["rows window (split left out: chronon)"]
    assert names(J.rows(2)) == ["chronons", "rows window"]
    assert names(C.range(5).join(J, on={"k": "k"}).rows(2))[-2:] == ["chronons", "rows window"]
    assert names(C.join(J.range(5), on={"k": "k"}).rows(2))[-1] == "rows window (split left out: chronon)"
    assert names(C.group_by("k").agg(n=ew.count()).rows(2)) == ["aggregate", "chronons (of chronons)", "rows window"]
    assert names(C.rstream()) == [] and names(C.now()) == [] and names(J.now()) == []
    assert names(J.rstream()) == ["rstream"] and names(C.select("k").split(1)) == ["map"]


def test_the_split_of_example_12_2_is_left_out() -> None:
    """The closing prices are chronons, due to the now-window over the auctions that close."""
    closed = ew.source("ClosedAuction", {"itemID": "int64", "sellerID": "int64"}, chronons=True)
    bids = ew.source("Bid", {"itemID": "int64", "price": "int64"}, chronons=True)
    closing = closed.now().join(bids.range("2 days"), on="itemID").group_by("itemID", "sellerID").agg(p=ew.max("price"))
    assert properties(closing.node).chronon
    average = closing.rows(10, partition_by="sellerID").group_by("sellerID").agg(p=ew.avg("p"))
    assert "chronons" not in names(average)


# -- what operators say ------------------------------------------------------------------------------------------------


def segments(query: ew.Stream, given: Mapping[str, History]) -> list[tuple[int, int]]:
    """The lifetimes that the query's operator hands on when everything comes at once."""
    plan = lower({}, Emit.CURRENT, handed={"out": query.node})
    dataflow = FixedDataflow(plan)
    inputs = {}
    for port in dataflow.source_ports:
        name = port.source or ""
        events = list(given[name].events())
        codec = plan.codecs[name]
        batch = batch_of([Insert(vs, ve, dict(zip(SCHEMA.names, row, strict=True))) for vs, ve, row in events], SCHEMA)
        guarded = UnorderedGuard(name, codec).step(batch.op, batch.vs, batch.ve, batch.vnew, batch.columns, INF)
        changes = guarded.segments() if port.form == "segments" else guarded.events()
        inputs[port] = Output(changes, Frontier(INF))
    dataflow.step(inputs, 100)
    out = dataflow.handed()["out"].changes
    return list(zip(out.lo.tolist(), out.hi.tolist(), strict=True))


LENGTHS = {
    **PLANS,
    "source": lambda: C,
    "union of windows": lambda: C.range(4).union(D.range(4)),
    "window and granule": lambda: C.range(8).granularity(4),
    "granule": lambda: C.granularity(4),
    "tumbling": lambda: C.range(6, slide=3),
    "join": lambda: J.join(C, on={"k": "k"}),
    "split": lambda: C.range(6).split(3),
}


@pytest.mark.parametrize("name", LENGTHS)
@settings(max_examples=15, deadline=None)
@given(s=TICKS, t=TICKS)
def test_operators_say_the_lifetimes_that_properties_claim(name: str, s: History, t: History) -> None:
    query = LENGTHS[name]()
    found = segments(query, {"S": s, "T": t})
    lifetime = properties(query.node).lifetime
    if instants(query.node):
        assert {hi - lo for lo, hi in found} <= {1}
    elif lifetime is not None:
        assert {hi - lo for lo, hi in found} <= {lifetime}


# -- declarations are checked ------------------------------------------------------------------------------------------

A = {"k": "a", "x": 1}
BROKEN: dict[str, tuple[list[Element], int, str]] = {
    "a longer insert": ([Insert(0, 1, A), Cti(1), Insert(1, 3, A)], 3, r"the lifetime \[1, 3\) on a source"),
    "an infinite insert": ([Insert(-5, INF, A)], 1, r"the lifetime \[-5, ∞\)"),
    "an adjust that prolongs": ([Insert(0, 1, A), Adjust(0, 1, 2, A)], 2, r"the lifetime \[0, 2\)"),
    "an adjust of something longer": ([Adjust(0, 4, 0, A)], 1, r"the lifetime"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_lifetimes_of_more_than_a_tick_are_errors(name: str) -> None:
    elements, line, text = BROKEN[name]
    runtime = LocalRuntime(C)
    with pytest.raises(InputError, match=rf"^file:{line}: {text}.*declared to live one tick") as caught:
        runtime.push({"S": batch_of(elements, SCHEMA, "file")})
    assert "leave the end out" in caught.value.remedy
    good: list[Element] = [Insert(0, 1, A), Adjust(0, 1, 0, A), Insert(2, 3, A)]
    out = runtime.push({"S": batch_of(good, SCHEMA, "file")})["out"]
    assert [str(e) for e in out.elements()][-1] == "insert [2, 3) k='a' x=1"


def test_the_guard_of_an_epoch_checks_too() -> None:
    codec = RowCodec(SCHEMA, Interner())
    guard = UnorderedGuard("S", codec, chronons=True)
    batch = batch_of([Insert(0, 1, A), Insert(1, 3, A)], SCHEMA)
    with pytest.raises(InputError, match=r"the lifetime \[1, 3\) on a source that is declared to live one tick"):
        guard.step(batch.op, batch.vs, batch.ve, batch.vnew, batch.columns, 0)


def test_a_source_is_declared_in_one_way() -> None:
    other = ew.Stream(replace(C.node, chronons=False))
    assert isinstance(other.node, n.Source)
    with pytest.raises(QueryError, match="declared in two ways"):
        LocalRuntime(C.union(other))
